#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `verge token`, `verge top` and the doors of `verge serve`, as an operator uses them.
# usage: tool.sh VERGE SOCKET_LAUNCHER LIVE_SHOP
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support/served.sh"
verge=$(realpath "$1")
launcher=$(realpath "$2")
live_shop=$(realpath "$3")
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

# Top of a program with an inspector, which is told apart by what answers.
"$live_shop" --timers 20000 --port 0 --seconds 300 >shop 2>shop_errors &
shop=$!
for ((i = 0; i < 600; ++i)); do
  grep -q 'http://' shop && break
  sleep 0.1
done
inspected=$(sed -n 's|.*http://\([^/]*\)/.*|\1|p' shop)
expect 'process * processors by *timers: 20*pending*late: half*  p0 *within*reminder*courier*sleep*' \
  "$verge" top "$inspected" --times 1
expect 'process *process *' "$verge" top --at "$inspected" --times 2 --every 0.05 --rows 3
kill "$shop"
wait "$shop"
expect '*nothing answers at*' "$verge" top "$inspected" --times 1

# Socket activation: two sockets that listen before the server does, and connections that wait in them.
expect '*needs one or two sockets of systemd*' "$verge" serve --socket-activation --data none
expect '*needs one or two sockets of systemd*' \
  env LISTEN_FDS=1 LISTEN_PID=1 "$verge" serve --socket-activation --data none
: >log
"$launcher" "$verge" serve --socket-activation --data "$scratch/activated" >log 2>errors &
server=$!
for ((i = 0; i < 600; ++i)); do
  read -r first second <log && break
  sleep 0.1
done
expect 'INSERTED 1' "$verge" put hello --at "127.0.0.1:$first"
expect '*"ready":1*' curl --silent "http://127.0.0.1:$second/v1/tubes/default"

# Schedules.
expect 'next at 20*-01-01T00:00:00Z' "$verge" schedule set yearly @yearly 'a new year' --at "127.0.0.1:$second"
expect 'yearly  @yearly  UTC  tube default  next 20*Z' "$verge" schedule list --at "127.0.0.1:$second"
expect '*"body":"a new year"*' "$verge" schedule show yearly --at "127.0.0.1:$second"
expect 'verge: *five fields*' "$verge" schedule set bad '* *' x --at "127.0.0.1:$second"
expect 'removed' "$verge" schedule remove yearly --at "127.0.0.1:$second"
expect '' "$verge" schedule list --at "127.0.0.1:$second"
expect $'2027-03-28T01:30:00Z\n2027-03-29T00:30:00Z' \
  "$verge" schedule next '30 2 * * *' --zone Europe/Berlin --from 2027-03-27T12:00:00Z --count 2
stop_server
expect '*stopped*' cat log

# A task every second, over kill -9: each second has its task, and has it once.
start_server "$verge" --http 127.0.0.1:0
"$verge" schedule set tick 'every 1s' x --tube ticks --if-missed all --at "$address" >/dev/null
seconds() {
  curl --silent "http://$address/v1/tubes/ticks/tasks?limit=1000" | grep -o '"key":"tick@[^"]*"' |
    sed 's/.*@\(.*\)"/\1/' | date --file=- +%s
}
for round in 1 2 3; do
  for ((i = 0; i < 600; ++i)); do
    (($(seconds | wc -l) >= 2 * round)) && break
    sleep 0.1
  done
  kill -KILL "$server"
  wait "$server" 2>/dev/null
  start_server "$verge" --http 127.0.0.1:0
done
seconds >found
expect "$(seq "$(head -n 1 found)" "$(tail -n 1 found)")" cat found
((failed)) || echo "all as expected"
exit $failed
