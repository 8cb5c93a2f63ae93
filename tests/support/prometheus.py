# SPDX-License-Identifier: Apache-2.0

# Metrics as Prometheus' own parser reads them, with what holds for all of ours checked.
from prometheus_client.parser import text_string_to_metric_families


def read_metrics(text):
    """Returns the families by name."""
    found = list(text_string_to_metric_families(text))
    # A counter x_total and a gauge x would be one family x, of which one half is lost.
    names = [f.name for f in found]
    assert len(names) == len(set(names)), f"these are there twice: {[n for n in names if names.count(n) > 1]}"
    for family in found:
        check_family(family)
    return {f.name: f for f in found}


def check_family(family):
    name = family.name
    assert name.startswith("verge_"), name
    assert family.type in ("counter", "gauge", "histogram"), (name, family.type)
    assert family.documentation, name
    series = [(s.name, tuple(sorted(s.labels.items()))) for s in family.samples]
    assert len(series) == len(set(series)), f"{name} has a series twice"
    if family.type != "histogram":
        return
    buckets = [s for s in family.samples if s.name.endswith("_bucket")]
    values = [s.value for s in buckets]
    assert values == sorted(values), name
    assert buckets[-1].labels["le"] == "+Inf", name
    (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
    assert values[-1] == count, name
