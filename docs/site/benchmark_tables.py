# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/benchmarks.md, from docs/benchmarks.json. Put in and compared by figures.py."""

OURS = "verge/hybrid"
SYSTEMS = [OURS, "verge/timer_queue", "boost_asio", "libuv", "libevent", "libev", "go", "netty", "tokio"]
OF_LATENESS = [OURS, "verge/precise", "bare_loop", *SYSTEMS[2:]]
OF_DENSE = [OURS, "boost_asio", "libevent", "go"]
SIZES = [(1_000, "1k"), (100_000, "100k"), (1_000_000, "1M"), (10_000_000, "10M")]
OPERATIONS = [("start+stop", "start_stop"), ("reset to later", "reset_later"), ("reset", "reset_back_forth")]

# (what is wanted, how much at most, of which unit, workload, timers, metric)
GOALS = [
    ("start+stop, 1k", 25, "ns", "start_stop", 1_000, "ns_per_op"),
    ("start+stop, 100k", 40, "ns", "start_stop", 100_000, "ns_per_op"),
    ("start+stop, 1M", 120, "ns", "start_stop", 1_000_000, "ns_per_op"),
    ("reset (`reset_back_forth`), 1k", 10, "ns", "reset_back_forth", 1_000, "ns_per_op"),
    ("reset (`reset_back_forth`), 100k", 18, "ns", "reset_back_forth", 100_000, "ns_per_op"),
    ("reset (`reset_back_forth`), 1M", 80, "ns", "reset_back_forth", 1_000_000, "ns_per_op"),
    ("reset to later (`reset_later`), 1k", 10, "ns", "reset_later", 1_000, "ns_per_op"),
    ("reset to later (`reset_later`), 100k", 18, "ns", "reset_later", 100_000, "ns_per_op"),
    ("reset to later (`reset_later`), 1M", 80, "ns", "reset_later", 1_000_000, "ns_per_op"),
    ("fill, 1M", 40, "ns", "fill", 1_000_000, "ns_per_op"),
    ("bytes per timer, 1M", 80, "B", "fill", 1_000_000, "bytes_per_timer"),
    ("fire, 100k", 25, "ns", "fire", 100_000, "ns_per_op"),
    ("fire, 1M", 60, "ns", "fire", 1_000_000, "ns_per_op"),
    ("lateness, idle, 50 %", 25, "us", "lateness_idle", 0, "late_p50_us"),
    ("lateness, idle, 99 %", 60, "us", "lateness_idle", 0, "late_p99_us"),
    ("lateness, other core busy, 50 %", 25, "us", "lateness_busy", 0, "late_p50_us"),
    ("lateness, other core busy, 99 %", 65, "us", "lateness_busy", 0, "late_p99_us"),
]
# (threads, how many at least, in millions a second)
GOALS_OF_THREADS = [(1, 15, "1 thread"), (2, 27, "2 threads")]


def amount(value):
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    if value >= 1000:
        return f"{round(value):,}"
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}"


def lateness(value):
    return "0" if value == 0 else amount(value)


def longest(value):
    return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{round(value):,}"


def millions(value):
    return f"{value / 1e6:.1f} M"


def microseconds(value):
    return f"{value / 1000:.1f}"


class Table:
    def __init__(self, figures, systems):
        self.figures = figures
        self.systems = systems
        self.lines = ["| |" + "|".join(systems) + "|", "|---|" + "---:|" * len(systems)]

    def add(self, name, *at, text=amount):
        """A line, if any of the systems was measured there."""
        values = [self.figures.get((*at, s)) for s in self.systems]
        if any(v is not None for v in values):
            self.lines.append(f"| {name} | " + " | ".join("-" if v is None else text(v) for v in values) + " |")


def of_operations(figures):
    table = Table(figures, SYSTEMS)
    for name, workload in OPERATIONS:
        for n, size in SIZES:
            table.add(f"{name}, {size}, ns", workload, n, 1, "ns_per_op")
    for n, size in SIZES[1:]:
        table.add(f"fill, {size}, ns", "fill", n, 1, "ns_per_op")
        table.add(f"bytes per timer after fill, {size}", "fill", n, 1, "bytes_per_timer")
        table.add(f"after churn, {size}", "memory", n, 1, "bytes_per_timer")
        table.add(f"fire, {size}, ns", "fire", n, 1, "ns_per_op")
    for threads in (1, 2):
        table.add(f"two_threads, {threads}, pairs/s", "two_threads", 100_000, threads, "ops_per_s", text=millions)
    table.add("idle_connections, ns", "idle_connections", 100_000, 1, "ns_per_op")
    table.add("rpc_deadlines, ns", "rpc_deadlines", 1_000, 1, "ns_per_op")
    for name, workload in (("start or stop", "start_stop"), ("reset", "reset_back_forth")):
        for n, size in SIZES:
            table.add(f"longest {name}, {size}, ns", workload, n, 1, "longest_ns", text=longest)
    return table.lines


def of_lateness(figures):
    table = Table(figures, OF_LATENESS)
    for workload, n in (("lateness_idle", 0), ("lateness_busy", 0), ("lateness_100k", 100_000)):
        for metric in ("late_p50_us", "late_p99_us", "late_p999_us", "early_count"):
            table.add(f"{workload} {metric}", workload, n, 1, metric, text=lateness)
    return table.lines


def of_dense(figures):
    table = Table(figures, OF_DENSE)
    for n, size, workload in ((10_000, "10,000", "dense_10k"), (100_000, "100,000", "dense_100k")):
        table.add(f"{size} a second", workload, n, 1, "ns_per_op", text=microseconds)
    return table.lines


def outcome(value, goal):
    if value <= goal:
        return "reached"
    times = value / goal
    return f"missed, {times:.1f} times the goal" if times >= 1.05 else f"missed, {times:.3f} times the goal"


def of_goals(report):
    lines = ["| | goal | `verge/hybrid` | | best other |", "|---|---:|---:|---|---:|"]
    for name, goal, unit, workload, n, metric in GOALS:
        ours, best, best_one, _ = report.compared(workload, n, 1, metric)
        lines.append(f"| {name} | {goal} {unit} | {ours:.0f} {unit} | {outcome(ours, goal)} | "
                     f"{best:.0f} {unit} {best_one} |")
    early = sum(v for at, v in report.figures.items() if at[3] == "early_count" and at[4].startswith("verge/"))
    lines.append(f"| fires early | never | {early:.0f} timers | {'reached' if early == 0 else 'missed'} | |")
    for threads, goal, name in GOALS_OF_THREADS:
        ours, best, best_one, _ = report.compared("two_threads", 100_000, threads, "ops_per_s")
        lines.append(f"| `two_threads`, {name} | {goal} M/s | {ours / 1e6:.1f} M/s | "
                     f"{'reached' if ours >= goal * 1e6 else 'missed'} | {best / 1e6:.1f} M/s {best_one} |")
    return lines


def filled_in(text, report):
    """The page with the figures of the report, each table in the place of the one that begins alike."""
    for lines in (of_operations(report.figures), of_lateness(report.figures), of_dense(report.figures),
                  of_goals(report)):
        if text.count(lines[0] + "\n") != 1:
            raise ValueError(f"docs/benchmarks.md has no place for the table {lines[0]}")
        begin = text.index(lines[0] + "\n")
        end = text.index("\n\n", begin)
        text = text[:begin] + "\n".join(lines) + text[end:]
    return text
