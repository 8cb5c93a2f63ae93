#!/bin/bash
# The probes of a program that is linked with the library, as readelf sees them.
# usage: check.sh PROGRAM
set -euo pipefail
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
[[ -e /usr/include/sys/sdt.h || -e /usr/include/$(uname -m)-linux-gnu/sys/sdt.h ]] ||
  { echo "skipped: built without systemtap-sdt-dev"; exit 77; }
notes=$(readelf --notes --wide "$1" 2>/dev/null | grep -A1 'Provider: verge' || true)
failed=0
for probe in start:1 stop:1 reset:2 fire:4 sleep:1 wake:1 steal:2 stall:2; do
  name=${probe%:*}
  count=$(readelf --notes --wide "$1" | grep -c "Name: $name\$" || true)
  arguments=$(readelf --notes --wide "$1" | grep -A3 'Provider: verge' | grep -A2 "Name: $name\$" |
    sed -n 's/.*Arguments: //p' | head -1 | wc -w)
  if ((count == 0 || arguments != ${probe#*:})); then
    echo "FAILED: probe $name: $count places, $arguments arguments"
    failed=1
  fi
done
[[ -n $notes ]] || { echo "FAILED: no probes of verge"; failed=1; }
exit $failed
