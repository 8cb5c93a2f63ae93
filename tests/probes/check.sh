#!/bin/bash
# The probes of a program that is linked with the library, as readelf sees them.
# usage: check.sh PROGRAM
set -euo pipefail
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
[[ -e /usr/include/sys/sdt.h || -e /usr/include/$(uname -m)-linux-gnu/sys/sdt.h ]] ||
  { echo "skipped: no systemtap-sdt-dev"; exit 77; }
notes=$(readelf --notes --wide "$1" 2>/dev/null | grep -A3 'Provider: verge' || true)
[[ -n $notes ]] || { echo "FAILED: no probes of verge: configured without systemtap-sdt-dev?"; exit 1; }
failed=0
for probe in start:1 stop:1 reset:2 fire:4 sleep:1 wake:1 steal:2 stall:2; do
  name=${probe%:*}
  count=$(grep -c "Name: $name\$" <<<"$notes" || true)
  arguments=$({ grep -A2 "Name: $name\$" <<<"$notes" || true; } | sed -n 's/.*Arguments: //p' | sed -n 1p | wc -w)
  if ((count == 0 || arguments != ${probe#*:})); then
    echo "FAILED: probe $name: $count places, $arguments arguments"
    failed=1
  fi
done
exit $failed
