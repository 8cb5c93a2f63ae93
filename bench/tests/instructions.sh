#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The instructions that one start, stop, reset and firing take, by callgrind, against bounds of
# about twice what they were when the bounds were set (in brackets): a change that doubles the work
# of an operation fails here, on any machine. And what is documented as constant time must be: with
# a hundred times as many timers it may take at most 1.5 times as many instructions, to allow for
# further levels of a wheel and for chunks that fill up.
#
#   instructions.sh ENGINE, with PROGRAM (engine_instructions) and VALGRIND in the environment
set -euo pipefail

: "${PROGRAM:?}" "${VALGRIND:?}"
engine=${1:?which engine}
constant=""
case $engine in
  #                     start       stop       reset      fire
  global_heap)    most="630 [315]   400 [198]  550 [275]  1700 [856]" ;;
  sharded_heap)   most="630 [316]   400 [198]  550 [275]  8900 [4443]" ;;
  processor_heap) most="780 [388]   230 [111]  530 [262]  2700 [1325]" ;;
  simple_wheel)   most="650 [324]   280 [137]  490 [243]  4900 [2426]" ;;
  timing_wheel)   most="990 [496]   420 [212]  1010 [508] 5000 [2520]" constant="start stop reset" ;;
  hybrid)         most="540 [266]   270 [135]  420 [208]  2800 [1363]" ;;
  *)
    echo "there are no bounds for the engine '$engine'; add them here" >&2
    exit 1
    ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() {  # FOLDER [LIVE]: prints what each operation takes, as NAME=INSTRUCTIONS
  mkdir "$work/$1"
  "$VALGRIND" --tool=callgrind --callgrind-out-file="$work/$1/counted" "$PROGRAM" "$engine" ${2:-} \
    >"$work/said" 2>&1 || {
    cat "$work/said" >&2
    return 1
  }
  # Each dump has its name and its count; each operation was done a thousand times.
  awk '/^desc: Trigger: Client Request:/ { of = $5 }
    /^totals:/ { sum[of] += $2 }
    END { for (of in sum) printf "%s=%d ", of, sum[of] / 1000 }' "$work/$1"/counted.*
}

few=$(count few)
awk -v engine="$engine" -v most="$most" -v few="$few" 'BEGIN {
    gsub(/\[[0-9]*\]/, "", most)
    split(most, bound)
    for (i = split(few, counts); i > 0; i--) { split(counts[i], c, "="); each[c[1]] = c[2] }
    n = split("start stop reset fire", name)
    for (i = 1; i <= n; i++) {
      printf "%s: a %s takes %d instructions, at most %d are allowed\n", engine, name[i],
        each[name[i]], bound[i]
      if (each[name[i]] < 20 || each[name[i]] > bound[i]) failed = 1
    }
    exit failed
  }'

[ -n "$constant" ] || exit 0
many=$(count many 100000)
awk -v engine="$engine" -v constant="$constant" -v few="$few" -v many="$many" 'BEGIN {
    for (i = split(few, counts); i > 0; i--) { split(counts[i], c, "="); of_few[c[1]] = c[2] }
    for (i = split(many, counts); i > 0; i--) { split(counts[i], c, "="); of_many[c[1]] = c[2] }
    n = split(constant, name)
    for (i = 1; i <= n; i++) {
      a = of_few[name[i]]
      b = of_many[name[i]]
      printf "%s: a %s takes %d instructions among 1,000 timers and %d among 100,000\n", engine,
        name[i], a, b
      if (b < 20 || b > 1.5 * a) failed = 1
    }
    exit failed
  }'
