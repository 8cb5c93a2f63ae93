# SPDX-License-Identifier: Apache-2.0

# For scripts that try a server as a process: a scratch directory, and a server in it, which end with
# the script. To be sourced, with `set -u`.
scratch=$(mktemp -d)
server=
stop_server() {
  if [[ -n $server ]]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  server=
}
trap 'stop_server; rm -rf "$scratch"' EXIT

# Starts a server on free ports, with its tasks in the scratch directory. Sets `port`, and `address`
# if it serves HTTP.
start_server() {  # VERGE [ARGUMENTS]
  : >"$scratch/log"
  "$1" serve --listen 127.0.0.1:0 --data "$scratch/tasks" "${@:2}" \
    >"$scratch/log" 2>"$scratch/errors" &
  server=$!
  for ((i = 0; i < 600; ++i)); do
    port=$(sed -n 's/.* at 127\.0\.0\.1:\([0-9]*\),.*/\1/p' "$scratch/log")
    address=$(sed -n 's|.*https*://\(127\.0\.0\.1:[0-9]*\)/.*|\1|p' "$scratch/log")
    [[ -n $port && (" $* " != *" --http "* || -n $address) ]] && return
    sleep 0.1
  done
  echo "the server does not start" >&2
  cat "$scratch/errors" >&2
  exit 1
}
