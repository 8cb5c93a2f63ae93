#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of the README, from the figures of docs/benchmarks.json: bars that can be read on a phone.

usage: picture.py > docs/picture.svg
       picture.py --check               docs/picture.svg is that picture
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = {"verge/hybrid": "verge", "boost_asio": "Boost.Asio", "libuv": "libuv", "libevent": "libevent",
         "libev": "libev", "go": "Go", "netty": "Netty", "tokio": "tokio"}
CHARTS = [("start_stop", 1_000_000, 1, "ns_per_op", "start + stop, a million timers"),
          ("idle_connections", 100_000, 1, "ns_per_op", "100,000 idle time-outs, per packet")]

STYLE = """
text { font: 21px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 23px; } .unit { fill: #59636e; }
.ours { fill: #3f51b5; } .bar { fill: #9aa4b2; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .unit { fill: #9198a1; } .ours { fill: #8c9eff; } .bar { fill: #59636e; }
}
"""


def bars(results, workload, timers, threads, metric):
    found = {}
    for r in results:
        if r["system"] in NAMES and (r["workload"], r["metric"], r["threads"]) == (workload, metric, threads) \
                and r["timers"] in (timers, 0):
            found[r["system"]] = r["median"]
    return sorted(found.items(), key=lambda f: f[1])


def main():
    results = json.loads((ROOT / "docs/benchmarks.json").read_text())["results"]
    body, y = [], 0
    for workload, timers, threads, metric, title in CHARTS:
        rows = bars(results, workload, timers, threads, metric)
        assert len(rows) > 4, (workload, rows)
        body.append(f'<text class="title" x="8" y="{y + 30}">{title}</text>')
        y += 46
        most = max(v for _, v in rows)
        for system, value in rows:
            width = max(360 * value / most, 2)
            kind = "ours" if system.startswith("verge") else "bar"
            body.append(f'<text x="8" y="{y + 22}">{NAMES[system]}</text>'
                        f'<rect class="{kind}" x="140" y="{y + 4}" width="{width:.0f}" height="22" rx="3"/>'
                        f'<text class="unit" x="{148 + width:.0f}" y="{y + 22}">{value:,.0f} ns</text>')
            y += 32
        y += 18
    svg = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {y}" width="640" height="{y}" role="img">'
           f"<title>verge compared with other timer systems: processor time in nanoseconds</title>"
           f"<style>{STYLE}</style>{''.join(body)}</svg>\n")
    if "--check" not in sys.argv:
        sys.stdout.write(svg)
    elif svg != (ROOT / "docs/picture.svg").read_text():
        sys.exit("docs/picture.svg has other figures than docs/benchmarks.json. Let it be drawn anew:\n"
                 "  python3 docs/site/picture.py >docs/picture.svg")


if __name__ == "__main__":
    main()
