# SPDX-License-Identifier: Apache-2.0

# Reads the metrics of a task server with Prometheus' own parser, compares what belongs together, and
# writes the dashboard's queries as rules, for promtool. usage: metrics.py DASHBOARD RULES <metrics
import json
import re
import sys

from prometheus import read_metrics

families = read_metrics(sys.stdin.read())


def value(name, **labels):
    found = [s.value for f in families.values() for s in f.samples if s.name == name and labels.items() <= s.labels.items()]
    assert found, (name, labels)
    return sum(found)


odd = "a/b+;.$_()"
for state, wanted in (("ready", 2), ("delayed", 1), ("reserved", 1), ("buried", 1)):
    assert value("verge_tasks", tube=odd, state=state) == wanted, (state, value("verge_tasks", tube=odd, state=state))
assert value("verge_put_total", tube=odd) == 6
assert value("verge_handed_out_total", tube=odd) == 3
assert value("verge_deleted_total", tube=odd) == 1
assert value("verge_lateness_seconds_count") == 1
assert value("verge_push_attempts_total") == 1
assert value("verge_committed_commands_total") >= value("verge_commits_total") > 0
assert 0 < value("verge_disk_free_bytes") <= value("verge_disk_size_bytes")

known = {s.name for f in families.values() for s in f.samples}
queries = [t["expr"] for p in json.load(open(sys.argv[1]))["panels"] for t in p["targets"]]
for query in queries:
    for name in re.findall(r"verge_[a-z_]+", query):
        assert name in known, f"the dashboard asks for {name}, which there is not"
rules = [{"record": f"dashboard:query_{i}", "expr": q.replace("$tube", ".*")} for i, q in enumerate(queries)]
json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, open(sys.argv[2], "w"))
print(f"prometheus_client reads {len(families)} metrics; the dashboard has {len(queries)} queries")
