#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The report in a browser without a window: it draws itself without errors and without the network,
# light on a light background and dark on a dark one, and there is something to see. Another page of
# ours checks the screenshots, in the same browser.
#
#   report.sh, with VERGE, the tool, and CHROMIUM in the environment
set -euo pipefail

: "${VERGE:?}" "${CHROMIUM:?}"
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export HOME=$work

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
browser() {
  timeout 120 "$CHROMIUM" --headless --no-sandbox --disable-gpu --hide-scrollbars \
    --disable-dev-shm-usage --disable-extensions --no-first-run --user-data-dir="$work/profile" \
    --host-resolver-rules='MAP * ~NOTFOUND' --window-size=1240,2600 "$@" 2>>browser.log
}
# judge FILE.png: "light" or "dark", and how many colours there are.
judge() {
  {
    echo '<!doctype html><body><img id=i src="data:image/png;base64,'
    base64 -w0 "$1"
    echo '"><script>window.onload=()=>{const i=document.getElementById("i");
      const c=document.createElement("canvas");c.width=i.width;c.height=i.height;
      const x=c.getContext("2d");x.drawImage(i,0,0);
      const d=x.getImageData(0,0,c.width,c.height).data;const seen=new Map();let light=0;
      for(let k=0;k<d.length;k+=4){light+=d[k]+d[k+1]+d[k+2];
        const p=d[k]>>4<<8|d[k+1]>>4<<4|d[k+2]>>4;seen.set(p,(seen.get(p)||0)+1);}
      const many=[...seen.values()].filter(n=>n>40).length;
      document.body.textContent="judge"+"d "+(light/(d.length/4*3)>128?"light":"dark")+" "+c.width+
        "x"+c.height+" colours="+many;};</script>'
  } >judge.html
  browser --dump-dom "file://$work/judge.html" |
    grep -o 'judged [^<]*'
}

"$VERGE" bench --merge "$source/report.json" --html report.html >/dev/null

dom=$(browser --dump-dom "file://$work/report.html")
drawn=$(grep -o 'data-drawn="[0-9]*"' <<<"$dom" | tr -dc 0-9)
[[ ${drawn:-0} -ge 12 ]] || fail "it drew ${drawn:-no} plots; $(cat browser.log)"
for words in 'verge/hybrid is ahead in' 'What an operation costs' 'How late timers are' \
  'Longest single operation' 'percent of the timers' 'All [0-9]* figures'; do
  grep -q "$words" <<<"$dom" || fail "the page does not say: $words"
done
grep -qE 'NaN|undefined|Infinity' <<<"$(sed 's/<script.*//' <<<"$dom" | grep '<svg')" &&
  fail "a plot has a place that is no number"

for scheme in dark light; do
  browser --blink-settings=preferredColorScheme=$([[ $scheme == dark ]] && echo 0 || echo 1) \
    --screenshot="$work/$scheme.png" "file://$work/report.html" >/dev/null
  [[ -s $scheme.png ]] || fail "there is no screenshot; $(cat browser.log)"
  verdict=$(judge "$scheme.png")
  echo "$scheme: $verdict"
  [[ $verdict == "judged $scheme 1240x2600 "* ]] || fail "the $scheme page is not: $verdict"
  ((${verdict##*=} >= 12)) || fail "the $scheme page has hardly any colours: nothing is drawn"
done
if cmp -s dark.png light.png; then fail "dark and light look the same"; fi
exit 0
