#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults put into a copy of the task server's core, one at a time: mutants.py, whose options it has, with
other sources and other tests. The rest of the server, and the library, are those of build/release, which
must be built: ./dev check mutants_server does that.

What mutants.py has beside it in verdicts.json and so on is here in server_verdicts.json and so on.
"""
import os, pathlib

import mutants

ROOT = mutants.ROOT
RELEASE = pathlib.Path(os.environ.get("VERGE_MUTANTS_RELEASE", ROOT / "build" / "release"))
PARTS = ["beanstalk", "broker", "calendar", "model", "text"]
LIBRARIES = ["server/libverge_server.a", "http1/libverge_http1.a", "clients/cpp/libverge_task_client.a",
             "src/libverge.a"]
MORE = "-lgmock -lgtest -lgtest_main -lrocksdb -lpq -lfmt -lssl -lcrypto -ldl"

mutants.BESIDE = "server_"
mutants.WORK = ROOT / "build" / "mutants_server"
mutants.TREE = TREE = mutants.WORK / "tree"
mutants.BUILD = mutants.WORK / "build"
mutants.COPIED = ["server", "tests/support", "src", "include", "http1", "clients/cpp"]
mutants.TESTS = """model_test parser_test once_test broker_test push_rules_test simulated_test history_test
  recurring_test forecast_test text_test beanstalk_behaviour_test""".split()
mutants.SANITIZED = []
mutants.FLAGS = ["-std=c++20", "-w", "-pthread", f"-I{TREE}/server", f"-I{TREE}/include", f"-I{TREE}/src",
                 f"-I{TREE}", f"-I{TREE}/server/tests", f"-I{TREE}/tests", f"-I{TREE}/clients/cpp",
                 "-I/usr/include/postgresql",
                 f"'-DVERGE_OPENAPI=\"{ROOT}/server/web/openapi.json\"'",
                 f"'-DVERGE_CRON_TABLE=\"{ROOT}/server/tests/cron/table.txt\"'",
                 f"'-DVERGE_DASHBOARD=\"{ROOT}/docs/tasks-dashboard.json\"'"]


def sources():
    return [p for p in mutants.files_in(*(f"server/{part}" for part in PARTS)) if p.endswith((".h", ".cc"))]


def configure():
    """The core is compiled in pieces, and comes before the server's library, in which it is as well."""
    files = [p for p in sources() if p.endswith(".cc")]
    compiler = os.environ.get("CXX", "g++")
    work = mutants.WORK
    text = f"""rule compile
  command = {compiler} {' '.join(mutants.FLAGS)} -include {work}/verge_mutants.h -O1 -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = {compiler} -pthread -Wl,--allow-multiple-definition $in {MORE} -o $out
"""
    objects = ["support.o"]
    for part in PARTS:
        piece = work / f"{part}.cc"
        of_part = [p for p in files if p.split("/")[1] == part]
        mutants.write_if_changed(piece, "".join(f'#include "{TREE}/{p}"\n' for p in of_part).encode(), 0o644)
        text += f"build {part}.o: compile {piece}\n"
        objects.append(f"{part}.o")
    text += f"build support.o: compile {work}/support.cc\n"
    libraries = " ".join(str(RELEASE / name) for name in LIBRARIES)
    for test in mutants.TESTS:
        text += f"build {test}.o: compile {TREE}/server/tests/{test}.cc\n"
        text += f"build tests/{test}: link {test}.o {' '.join(objects)} {libraries}\n"
    mutants.write_if_changed(mutants.BUILD / "build.ninja", text.encode(), 0o644)


mutants.sources = sources
mutants.configure = configure

if __name__ == "__main__":
    mutants.main()
