# SPDX-License-Identifier: Apache-2.0

# Reads the metrics of an inspector with Prometheus' own parser, and compares what belongs together.
import sys

from prometheus import read_metrics

families = read_metrics(sys.stdin.read())


def total(name):
    return sum(s.value for s in families[name].samples if s.name in (name, name + "_total"))


pending = total("verge_timers_pending")
started = total("verge_timers_started")
stopped = total("verge_timers_stopped")
assert pending > 0 and started >= pending + stopped * 0.9, (pending, started, stopped)
assert total("verge_processor_busy_seconds") > 0
labels = {s.labels["label"]: s.value for s in families["verge_label_timers_pending"].samples}
assert labels["reminder"] > labels["idle time-out"] > 0, labels
fired = sum(s.value for s in families["verge_label_timers_fired"].samples)
assert 0 < fired <= total("verge_timers_fired") * 1.1, (fired, total("verge_timers_fired"))
print(f"prometheus_client reads {len(families)} metrics")
