#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What counting costs: engine_bench of this tree and of the same tree built with VERGE_COUNTERS=OFF,
# taking turns, so that a slow moment of the machine affects both. Prints the medians of each line.
#
#   bench/observability_cost.sh [ROUNDS]     default: 9
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-9}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for counters in ON OFF; do
  cmake -S . -B "build/counters-$counters" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DVERGE_COUNTERS=$counters >"$scratch/log" || { cat "$scratch/log"; exit 1; }
  cmake --build "build/counters-$counters" --target engine_bench >"$scratch/log" ||
    { cat "$scratch/log"; exit 1; }
done
for ((i = 0; i < rounds; ++i)); do
  for counters in OFF ON; do
    "build/counters-$counters/bench/engine_bench" --engines=hybrid --rounds=1 --largest=100000 |
      sed -n "s/^| \([0-9]* timers\) | hybrid |\$/# \1/p; s/^| \(.*, [nu]s\) | \([0-9.]*\) |\$/\1|\2/p" |
      awk -F'|' -v counters=$counters '/^#/ { of = substr($0, 3); next } { print of ": " $1 "|" counters "|" $2 }'
  done
done >"$scratch/all"
echo "| | not counted | counted |"
echo "|---|---:|---:|"
sort -t'|' -k1,1 -k2,2 -k3,3n "$scratch/all" | awk -F'|' '
  function flush() { if (n != 0) middle[name, of] = values[int((n + 1) / 2)] }
  $1 != name || $2 != of { flush(); n = 0; if ($1 != name) order[++lines] = $1; name = $1; of = $2 }
  { values[++n] = $3 }
  END {
    flush()
    for (i = 1; i <= lines; ++i) print "| " order[i] " | " middle[order[i], "OFF"] " | " middle[order[i], "ON"] " |"
  }'
