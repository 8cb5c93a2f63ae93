#!/bin/bash
# Clients of beanstalkd, as they come from npm and Debian, against a verge serve of their own.
# usage: run.sh VERGE
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
server=
cleanup() {
  [[ -n $server ]] && kill "$server" 2>/dev/null && wait "$server" 2>/dev/null
  rm -rf "$scratch"
}
trap cleanup EXIT

: >"$scratch/log"
"$1" serve --listen 127.0.0.1:0 --data "$scratch/tasks" >"$scratch/log" &
server=$!
for ((i = 0; i < 100; ++i)); do
  port=$(sed -n 's/.* at 127\.0\.0\.1:\([0-9]*\),.*/\1/p' "$scratch/log")
  [[ -n $port ]] && break
  sleep 0.1
done
[[ -n $port ]] || { echo "clients: the server does not start" >&2; exit 1; }

cp "$here/package.json" "$here/clients.js" "$scratch"
(cd "$scratch" && npm install --no-audit --no-fund --loglevel=error >/dev/null)
failed=0
node "$scratch/clients.js" "$port" || failed=1
timeout 60 ruby "$here/beaneater.rb" "$port" || failed=1
timeout 60 php "$here/pheanstalk.php" "$port" || failed=1
exit $failed
