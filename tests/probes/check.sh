#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The probes of the shared library, as readelf sees them. usage: check.sh LIBRARY
set -euo pipefail
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
[[ -e /usr/include/sys/sdt.h || -e /usr/include/$(uname -m)-linux-gnu/sys/sdt.h ]] ||
  { echo "skipped: no systemtap-sdt-dev"; exit 77; }
notes=$(readelf --notes --wide "$1" 2>/dev/null | grep -A3 'Provider: verge' || true)
[[ -n $notes ]] || { echo "FAILED: no probes of verge: configured without systemtap-sdt-dev?"; exit 1; }
failed=0
for probe in start:2 stop:2 reset:3 fire:4 sleep:1 wake:1 steal:2 stall:2; do
  name=${probe%:*}
  count=$(grep -c "Name: $name\$" <<<"$notes" || true)
  arguments=$({ grep -A2 "Name: $name\$" <<<"$notes" || true; } | sed -n 's/.*Arguments: //p' | sed -n 1p | wc -w)
  if ((count == 0 || arguments != ${probe#*:})); then
    echo "FAILED: probe $name: $count places, $arguments arguments"
    failed=1
  fi
done
# In which functions they are: every way to start, stop, reset and fire a timer has one.
functions=$(nm --demangle --numeric-sort --defined-only "$1" | awk '$2 ~ /^[tTwW]$/')
where() {  # PROBE: the functions that have it
  awk -v name="$1" '/Name:/ { of = $2 } /Location:/ && of == name { sub(/,.*/, "", $2); print $2 }' <<<"$notes" |
    while read -r address; do
      awk -v at="$((address))" 'function number(hex,   i, n) {
          for (i = 1; i <= length(hex); i++) n = n * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1
          return n
        }
        number($1) > at { exit } { last = $0 } END { print substr(last, 20) }' <<<"$functions"
    done | sort -u
}
has() {  # PROBE FUNCTION..: it is in a function of each name
  local probe=$1 found name
  shift
  found=$(where "$probe")
  for name in "$@"; do
    grep -qE "$name" <<<"$found" || { echo "FAILED: probe $probe is not in $name, only in:" $'\n'"$found"; failed=1; }
  done
}
has start start_small_timer start_timer_after start_timer_at start_channel 'sleep_action::start' 'context_scope::arm' \
  'io_descriptor::arm' 'start_small_slowly|clockwork::start'
has stop stop_timer 'stop_channel|clockwork::stop' destroy_timer destroy_slowly 'sleep_action::withdraw' 'stop_slowly|clockwork::stop'
has reset reset_timer_after 'reset_slowly|reset_to|reset_timer_at' reset_channel 'io_descriptor::arm'
has fire 'live_scheduler::fire_all' 'queue_thread<.*heap_queue' 'queue_thread<.*simple_wheel' 'queue_thread<.*timing_wheel' \
  'processor_heap|run_one_timer|run_timers?'
exit $failed
