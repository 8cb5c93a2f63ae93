#!/bin/bash
# The instructions that one start, stop, reset and firing take, by callgrind, against bounds of about
# twice what they were when the bounds were set (in brackets): a change that doubles the work of an
# operation fails here, on any machine.
#
#   instructions.sh ENGINE, with PROGRAM (engine_instructions) and VALGRIND in the environment
set -euo pipefail

: "${PROGRAM:?}" "${VALGRIND:?}"
engine=${1:?which engine}
case $engine in
  #                     start       stop       reset      fire
  global_heap)    most="630 [315]   400 [198]  550 [275]  1700 [856]" ;;
  sharded_heap)   most="630 [316]   400 [198]  550 [275]  8900 [4443]" ;;
  processor_heap) most="780 [388]   230 [111]  530 [262]  2700 [1325]" ;;
  simple_wheel)   most="650 [324]   280 [137]  490 [243]  4900 [2426]" ;;
  timing_wheel)   most="810 [403]   300 [149]  650 [325]  3400 [1680]" ;;
  hybrid)         most="540 [266]   270 [135]  420 [208]  2800 [1363]" ;;
  *)
    echo "there are no bounds for the engine '$engine'; add them here" >&2
    exit 1
    ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$VALGRIND" --tool=callgrind --callgrind-out-file="$work/counted" "$PROGRAM" "$engine" \
  >"$work/said" 2>&1 || {
  cat "$work/said"
  exit 1
}
# Each dump says what it is of and how much it counted; each operation was done a thousand times.
awk -v engine="$engine" -v most="$most" '
  /^desc: Trigger: Client Request:/ { of = $5 }
  /^totals:/ { sum[of] += $2 }
  END {
    gsub(/\[[0-9]*\]/, "", most)
    split(most, bound)
    n = split("start stop reset fire", name)
    for (i = 1; i <= n; i++) {
      each = sum[name[i]] / 1000
      printf "%s: a %s takes %.0f instructions, at most %d are allowed\n", engine, name[i], each, bound[i]
      if (each < 20 || each > bound[i]) failed = 1
    }
    exit failed
  }' "$work"/counted.*
