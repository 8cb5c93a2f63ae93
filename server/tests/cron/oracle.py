#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""When cron expressions fire, by croniter and Python's zoneinfo: what verge's own are compared with.

oracle.py table            the table that server/tests/cron/table.txt keeps
oracle.py compare VERGE    random expressions: `verge schedule next` has to say the same

croniter says which local times an expression fits. What that means in a zone is as docs/tasks.md has
it: an expression about times of day (neither minute nor hour begins with *) is taken by PEP 495 with
fold=0, which is the first of two times, and in a gap the time by the offset before it; any other one
is at every minute whose local time fits.
"""
import random
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from croniter import croniter

UTC = timezone.utc
COUNT = 6


def times(expression, zone, start, count):
    """The first `count` times after `start`, in UTC."""
    words = expression.split()
    if words[0].startswith("*") or words[1].startswith("*"):
        return every_minute(expression, zone, start, count)
    return times_of_day(expression, zone, start, count)


def times_of_day(expression, zone, start, count):
    # Two days back, as a time in a gap comes later than others that are after it.
    local = (start.astimezone(zone) - timedelta(days=2)).replace(tzinfo=None)
    found = set()
    walk = croniter(expression, local)
    while True:
        naive = walk.get_next(datetime)
        at = naive.replace(tzinfo=zone).astimezone(UTC)
        if at > start:
            found.add(at)
        if len(found) >= count and at > sorted(found)[count - 1] + timedelta(days=2):
            return sorted(found)[:count]


def every_minute(expression, zone, start, count):
    # Local times that fit, each at the moments at which clocks show it: none in a gap, two where
    # they are set back. Two days are enough for these to come in another order.
    local = (start.astimezone(zone) - timedelta(days=2)).replace(tzinfo=None)
    found = set()
    walk = croniter(expression, local)
    while True:
        naive = walk.get_next(datetime)
        for fold in (0, 1):
            at = naive.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            if at > start and at.astimezone(zone).replace(tzinfo=None) == naive:
                found.add(at)
        if len(found) >= count and at > sorted(found)[count - 1] + timedelta(days=2):
            return sorted(found)[:count]


def text(at):
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


EXPRESSIONS = [
    "* * * * *", "*/15 * * * *", "0 * * * *", "30 2 * * *", "0 2 * * *", "59 1 * * *", "0 3 * * *",
    "30 1 * * *", "15,45 1-3 * * *", "*/20 2 * * *", "0 */6 * * *", "0 0 * * *", "5 4 * * sun",
    "0 22 * * 1-5", "23 0-20/2 * * *", "0 0,12 1 */2 *", "0 4 8-14 * *", "0 0 1,15 * 3",
    "0 0 13 * fri", "0 0 29 2 *", "30 2 31 * *", "0 9 * jan,jul mon-fri", "10/20 5 * * 7",
    "0 0 31 12 *",
]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]
# The day before clocks go forward and back, in each, and before a leap day.
STARTS = {
    "UTC": ["2026-12-30T00:00:00Z", "2028-02-28T12:00:00Z"],
    "Europe/Berlin": ["2027-03-27T20:00:00Z", "2026-10-24T20:00:00Z", "2028-02-28T12:00:00Z"],
    "America/New_York": ["2027-03-13T22:00:00Z", "2026-10-31T22:00:00Z"],
    "Australia/Lord_Howe": ["2026-10-03T02:00:00Z", "2027-04-03T02:00:00Z"],
    "Asia/Kolkata": ["2027-01-01T00:00:00Z"],
}


def parse(start):
    return datetime.strptime(start, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def table():
    print("# expression | zone | after | the next times; made by oracle.py with croniter")
    for name in ZONES:
        for start in STARTS[name]:
            for e in EXPRESSIONS:
                got = times(e, ZoneInfo(name), parse(start), COUNT)
                print(" | ".join([e, name, start, " ".join(text(t) for t in got)]))


def random_field(rng, low, high, wild):
    def value():
        return rng.randint(low, high)

    kind = rng.random()
    if kind < wild:
        return "*"
    if kind < wild + 0.1:
        return f"*/{rng.randint(2, max(2, (high - low) // 2))}"
    if kind < wild + 0.3:
        a, b = sorted((value(), value()))
        return f"{a}-{b}" if a < b else str(a)
    if kind < wild + 0.4:
        a, b = sorted((value(), value()))
        return f"{a}-{b}/{rng.randint(1, 5)}" if a < b else str(a)
    return ",".join(str(v) for v in sorted({value() for _ in range(rng.randint(1, 3))}))


def random_expression(rng):
    minute = random_field(rng, 0, 59, 0.15)
    hour = random_field(rng, 0, 23, 0.3)
    day = random_field(rng, 1, 28, 0.6)
    month = random_field(rng, 1, 12, 0.7)
    weekday = random_field(rng, 0, 6, 0.6)
    # With a step after a star croniter and Vixie's cron differ in how the two fields of days go
    # together.
    if day.startswith("*/") or weekday.startswith("*/"):
        weekday = "*" if day.startswith("*/") else weekday
        day = "*"
    # A range of all days is a star to croniter, and a given field to Vixie's cron.
    if weekday in ("0-6", "0-6/1"):
        weekday = "*"
    return " ".join([minute, hour, day, month, weekday])


def compare(verge, rounds, seed):
    rng = random.Random(seed)
    names = ZONES + ["Europe/Dublin", "America/St_Johns", "Africa/Casablanca", "Pacific/Apia",
                     "America/Santiago", "Asia/Tehran", "Pacific/Chatham"]
    for i in range(rounds):
        e, name = random_expression(rng), rng.choice(names)
        start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=rng.randrange(2_000_000))
        if rng.random() < 0.5 and name in STARTS:
            start = parse(rng.choice(STARTS[name])) + timedelta(minutes=rng.randrange(600))
        expected = "\n".join(text(t) for t in times(e, ZoneInfo(name), start, COUNT)) + "\n"
        got = subprocess.run([verge, "schedule", "next", e, "--zone", name, "--from", text(start),
                              "--count", str(COUNT)], capture_output=True, text=True, check=False)
        if got.stdout != expected:
            print(f"{e} in {name} after {text(start)}:\nverge:\n{got.stdout}{got.stderr}"
                  f"croniter:\n{expected}(seed {seed}, round {i})")
            sys.exit(1)
    print(f"{rounds} random expressions are as croniter has them")


if sys.argv[1:2] == ["table"]:
    table()
elif sys.argv[1:2] == ["compare"]:
    compare(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1_000,
            int(sys.argv[4]) if len(sys.argv) > 4 else 1)
else:
    sys.exit(__doc__)
