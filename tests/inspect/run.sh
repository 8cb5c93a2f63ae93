#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The inspector of examples/live_shop.cc: its metrics as Prometheus reads them, and its page in a
# browser. usage: run.sh CHROMIUM LIVE_SHOP [PICTURES]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
shop=
trap '[[ -z $shop ]] || kill "$shop" 2>/dev/null || true; rm -rf "$scratch"' EXIT

"$2" --timers "${VERGE_INSPECT_TIMERS:-100000}" --port 0 >"$scratch/shop" 2>"$scratch/errors" &
shop=$!
for ((i = 0; i < 600; ++i)); do
  grep -q 'http://' "$scratch/shop" && break
  sleep 0.1
done
url=$(sed -n 's|.*\(http://[^/]*\)/.*|\1|p' "$scratch/shop")
[[ -n $url ]] || { echo "FAILED: no page"; cat "$scratch/errors"; exit 1; }

# Prometheus' own tool, and its client for Python.
curl --silent --show-error --fail "$url/metrics" >"$scratch/metrics"
command -v promtool >/dev/null || { echo "FAILED: there is no promtool (Debian's prometheus)"; exit 1; }
promtool check metrics <"$scratch/metrics"
echo "promtool is satisfied"
python=$(for p in python3 /usr/bin/python3; do "$p" -c 'import prometheus_client' 2>/dev/null && echo "$p" && break; done || true)
[[ -n $python ]] || { echo "FAILED: there is no prometheus_client (Debian's python3-prometheus-client)"; exit 1; }
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../support" "$python" "$here/metrics.py" <"$scratch/metrics"

cp "$here/package.json" "$here/page.js" "$here/../support/page_tests.js" "$scratch"
(cd "$scratch" && npm install --no-audit --no-fund --loglevel=error >/dev/null)
node "$scratch/page.js" "$1" "$url/" "$scratch/browser" "${@:3}"
