#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of the README, from docs/benchmarks.json: how many workloads verge is ahead in, even and behind,
the table, lateness at the median, and the versions of what it is compared with; and the tables of docs/benchmarks.md.

usage: figures.py            they have these figures: else it says which line differs, and fails
       figures.py --write    puts them in
"""

import json
import pathlib
import re
import sys

import benchmark_tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = "verge/hybrid"
NAMES = {"boost_asio": "Boost.Asio", "libuv": "libuv", "libevent": "libevent", "libev": "libev", "go": "Go",
         "netty": "Netty", "tokio": "tokio"}

# (what the README calls it, workload, timers, threads, metric)
ROWS = [
    *[(f"{name}, {text} live", workload, n, 1, "ns_per_op")
      for name, workload in (("start + stop", "start_stop"), ("reset to later", "reset_later"),
                             ("reset, earlier or later", "reset_back_forth"))
      for n, text in ((1_000, "1k"), (100_000, "100k"), (1_000_000, "1M"))],
    *[(f"{name}, {text}", workload, n, 1, "ns_per_op")
      for name, workload in (("fire what is overdue", "fire"), ("fill", "fill"))
      for n, text in ((100_000, "100k"), (1_000_000, "1M"))],
    ("longest operation, 1M", "start_stop", 1_000_000, 1, "longest_ns"),
    ("memory after churn, 100k", "memory", 100_000, 1, "bytes_per_timer"),
    ("memory after churn, 1M", "memory", 1_000_000, 1, "bytes_per_timer"),
    ("start + stop, one thread", "two_threads", 100_000, 1, "ops_per_s"),
    ("start + stop, two threads", "two_threads", 100_000, 2, "ops_per_s"),
    ("100,000 idle time-outs, per packet", "idle_connections", 100_000, 1, "ns_per_op"),
    ("deadline of a call, 1 % fire", "rpc_deadlines", 1_000, 1, "ns_per_op"),
    ("due one by one, 10,000 a second", "dense_10k", 10_000, 1, "ns_per_op"),
    ("due one by one, 100,000 a second", "dense_100k", 100_000, 1, "ns_per_op"),
    ("lateness, 99 %", "lateness_idle", 0, 1, "late_p99_us"),
    ("lateness, 99 %, other core busy", "lateness_busy", 0, 1, "late_p99_us"),
    ("lateness, 99 %, 100,000 others live", "lateness_100k", 100_000, 1, "late_p99_us"),
]
EVEN = 1.25  # "within a quarter"


class Report:
    def __init__(self, json_):
        self.machine = json_["machine"]
        self.figures = {}
        for r in json_["results"]:
            # Of the longest operations the least one: the others are time slices of other programs.
            value = r["min"] if r["metric"] == "longest_ns" else r["median"]
            self.figures[(r["workload"], r["timers"], r["threads"], r["metric"], r["system"])] = value

    def compared(self, workload, timers, threads, metric):
        """Our figure, the best other one and its name, and how many times better ours is."""
        at = (workload, timers, threads, metric)
        others = {s: self.figures[(*at, s)] for s in NAMES if (*at, s) in self.figures}
        more = metric == "ops_per_s"
        best = (max if more else min)(others, key=others.get)
        ours = self.figures[(*at, OURS)]
        return ours, others[best], NAMES[best], ours / others[best] if more else others[best] / ours


def amount(value, metric):
    if metric == "ops_per_s":
        return f"{value / 1e6:.1f} M/s"
    if metric == "bytes_per_timer":
        return f"{value:.0f} B"
    if metric == "late_p99_us":
        return f"{value:.0f} us"
    return f"{value:.0f} ns" if value < 1000 else f"{value / 1000:.1f} us"


def ratio(value):
    return f"{value:.1f}x" if value >= 0.995 else f"{value:.2f}x"


def table(report):
    lines = ["| | verge | best other | |", "|---|---:|---:|---:|"]
    for name, *at in ROWS:
        ours, best, best_one, times = report.compared(*at)
        lines.append(f"| {name} | {amount(ours, at[3])} | {amount(best, at[3])} {best_one} | {ratio(times)} |")
    return lines


def summary(report):
    times = [report.compared(*at)[3] for _, *at in ROWS]
    ahead = sum(t > EVEN for t in times)
    behind = sum(t < 1 / EVEN for t in times)
    return (f"Of {len(times)} workloads, verge is **ahead in {ahead}, even in {len(times) - ahead - behind}, "
            f"behind in {behind}**.")


def median(report):
    at = ("lateness_idle", 0, 1, "late_p50_us")
    ours, best, best_one, _ = report.compared(*at)
    precise = report.figures[(*at, "verge/precise")]
    return (f"At the median timers are {ours:.0f} us late, {best:.0f} with {best_one}, and {precise:.1f} where `precise` is "
            "asked for.")


def versions(report):
    said = [f"{name} {re.match(r'[0-9.]*[0-9]', report.machine['versions'][system]).group(0)}"
            for system, name in NAMES.items()]
    return f"beside {', '.join(said[:-1])} and {said[-1]};"


def filled_in(text, report):
    """The README with the figures of the report."""
    text, counts = re.subn(r"Of \d+ workloads, verge is \*\*.*?\*\*\.", lambda _: summary(report), text)
    text, tables = re.subn(r"\| \| verge \| best other \| \|\n(\|.*\n)+", lambda _: "\n".join(table(report)) + "\n",
                           text)
    text, medians = re.subn(r"At the median timers are .*? asked for\.", lambda _: median(report), text)
    wanted = versions(report)
    here = re.search(r"beside Boost\.Asio .*? and tokio [\d.]+;", text, flags=re.S)
    if here and " ".join(here.group(0).split()) != wanted:
        text = text.replace(here.group(0), wanted)
    if (counts, tables, medians, bool(here)) != (1, 1, 1, True):
        raise ValueError("the README has no place for the figures")
    return text


def main():
    report = Report(json.loads((ROOT / "docs/benchmarks.json").read_text()))
    same = True
    for name, fill_in in (("README.md", filled_in), ("docs/benchmarks.md", benchmark_tables.filled_in)):
        page = ROOT / name
        text = page.read_text()
        right = fill_in(text, report)
        if "--write" in sys.argv:
            page.write_text(right)
            continue
        for has, wanted in zip(text.splitlines(), right.splitlines()):
            if has != wanted:
                print(f"{name} has:  {has}\nby the figures: {wanted}", file=sys.stderr)
        same = same and text == right
    if not same:
        print("Put them in: python3 docs/site/figures.py --write", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
