# SPDX-License-Identifier: Apache-2.0

# Reads the metrics of an inspector with Prometheus' own parser, and compares what belongs together.
import sys

from prometheus_client.parser import text_string_to_metric_families

found = list(text_string_to_metric_families(sys.stdin.read()))
# A counter x_total and a gauge x would be one family x, of which one half is lost.
names = [f.name for f in found]
assert len(names) == len(set(names)), f"these are there twice: {[n for n in names if names.count(n) > 1]}"
families = {f.name: f for f in found}
for family in found:
    series = [(s.name, tuple(sorted(s.labels.items()))) for s in family.samples]
    assert len(series) == len(set(series)), f"{family.name} has a series twice"


def total(name):
    return sum(s.value for s in families[name].samples if s.name in (name, name + "_total"))


for name, family in families.items():
    assert name.startswith("verge_"), name
    assert family.type in ("counter", "gauge", "histogram"), (name, family.type)
    assert family.documentation, name
    if family.type != "histogram":
        continue
    buckets = [s for s in family.samples if s.name.endswith("_bucket")]
    values = [s.value for s in buckets]
    assert values == sorted(values), name
    assert buckets[-1].labels["le"] == "+Inf", name
    (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
    assert values[-1] == count, name
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
