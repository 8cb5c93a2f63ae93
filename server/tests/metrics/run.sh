#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The task server's metrics as Prometheus reads them: its own tool, its client for Python, and the
# queries of the dashboard. usage: run.sh VERGE DASHBOARD
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../support/served.sh"

start_server "$1" --http 127.0.0.1:0
put() {  # TUBE TASK
  curl --silent --show-error --fail --output /dev/null --json "$2" "$address/v1/tubes/$1/tasks"
}
# One in each state, in a tube whose name has every kind of character; one that was late, and a push
# that fails.
odd='a%2Fb+;.$_()'
for _ in 1 2 3 4; do put "$odd" '{"body": "x", "ttr": 3600000}'; done
put "$odd" '{"body": "later", "delay": 3600000}'
put "$odd" '{"body": "soon", "delay": 1, "priority": 0}'
curl --silent --fail --request POST "$address/v1/tubes/$odd/reserve?max=3&wait=10s" >"$scratch/reserved"
mapfile -t leases < <(grep -o '"lease":"[^"]*"' "$scratch/reserved" | sed 's/.*:"\(.*\)"/\1/')
curl --silent --fail --output /dev/null --request POST "$address/v1/leases/${leases[0]}/bury"
curl --silent --fail --output /dev/null --request POST "$address/v1/leases/${leases[1]}/ack"
curl --silent --fail --output /dev/null --request PUT \
  --json '{"url": "http://127.0.0.1:1/", "max_attempts": 1}' "$address/v1/tubes/hooks/push"
put hooks '{"body": "nowhere"}'
for ((i = 0; i < 600; ++i)); do
  curl --silent --fail "$address/metrics" >"$scratch/metrics"
  grep -q '^verge_push_failed_total 1$' "$scratch/metrics" && break
  sleep 0.1
done

promtool check metrics <"$scratch/metrics"
echo "promtool is satisfied with the metrics"
for python in python3 /usr/bin/python3; do
  "$python" -c 'import prometheus_client' 2>/dev/null && break
done
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../../../tests/support" "$python" "$here/metrics.py" "$2" "$scratch/rules.yml" <"$scratch/metrics"
promtool check rules "$scratch/rules.yml"
echo "promtool is satisfied with the dashboard's queries"
