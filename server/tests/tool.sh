#!/bin/bash
# `verge token`, `verge top` and the doors of `verge serve`, as an operator uses them.
# usage: tool.sh VERGE
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support/served.sh"
verge=$(realpath "$1")
cd "$scratch" || exit
failed=0
expect() {  # PATTERN COMMAND...
  local pattern=$1 got
  shift
  got=$("$@" 2>&1)
  # shellcheck disable=SC2053  # a pattern
  if [[ $got != $pattern ]]; then
    printf 'FAILED: %s\n  prints:   %s\n  expected: %s\n' "$*" "$got" "$pattern"
    failed=1
  fi
}

# Tokens.
expect 'vt_????????_*' "$verge" token add shop --scope put,work --tube 'orders*' --expires 30d --limit 9
expect '*"hash"*' cat verge-tokens.json
expect '????????  shop  put,work  tubes orders\*  expires 20*Z  limit 9/s' "$verge" token list
expect '*is neither a length*' "$verge" token add bad --scope put --expires soon
expect 'revoked' "$verge" token revoke shop
expect '' "$verge" token list
expect "verge: there is no token 'shop'*" "$verge" token revoke shop
token=$("$verge" token add operator --scope read,put)

# Doors.
expect '*can be reached from other machines: give --tls-cert*' "$verge" serve --listen 0.0.0.0:0
expect '*requires --tls-key*' "$verge" serve --tls-cert x.pem
expect 'verge: the certificate x.pem cannot be used*' \
  "$verge" serve --listen 127.0.0.1:0 --data none --tls-cert x.pem --tls-key x.pem

# A server with tokens, seen by top.
start_server "$verge" --http 127.0.0.1:0 --tokens verge-tokens.json --log json
at=127.0.0.1:$port
expect '*does not accept the token*' "$verge" top --at "$at" --token wrong --times 1
expect '*the server says DENIED*' "$verge" top --at "$at" --times 1
expect 'up * s, * connections*tasks: 0 ready*tube *ready*delayed*default *' \
  "$verge" top --at "$at" --token "$token" --times 2 --every 0.05
kill -HUP "$server"
for ((i = 0; i < 600; ++i)); do
  grep -q 'again' log && break
  sleep 0.1
done
expect '*read tokens and certificate again*' cat log
stop_server
expect '{"time":"*Z","event":"started","version":"*"event":"reloaded"*"event":"stopped","status":0}' cat errors
grep -q "$token" log errors && { echo "FAILED: the token is in the log"; failed=1; }
((failed)) || echo "all as expected"
exit $failed
