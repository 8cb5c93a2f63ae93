#!/usr/bin/env python3
"""Faults put into a copy of the library, one at a time: which of them do the tests find?

  tests/mutants/mutants.py [--sample N|all] [--seed N] [--part NAME] [--jobs N] [--json FILE] [--list]

The sources of src/ and include/verge/detail/ are copied to build/mutants/tree, and each place that
can be wrong in a small way becomes a switch: `a < b` can be `a <= b`, a condition always true or
false, a call can be left out. There is one build, and the environment chooses the fault
(VERGE_MUTANT=17). A run of each test without a fault tells which switches it comes by; a fault is
tried with those tests only, the shortest first, until one fails or does not end in time.

Memory orders are not among the faults: on this processor no run can show them.

What survives is listed with a verdict from verdicts.json, which says why a fault changes nothing
that could be tested; without one it is a hole in the tests.
"""
import argparse, json, os, pathlib, random, re, shutil, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
BUILD = WORK / "build"
TESTS = """arithmetic_test quad_heap_test timer_wheel_test timer_queue_test wheel_test hybrid_test
  processor_heap_test slab_test run_queue_test scheduler_parts_test short_lock_test poller_test
  chan_test select_test task_test time_test monitor_test stuck_thread_test""".split()

HEADER = r"""
#pragma once
#include <type_traits>
#include <utility>
extern "C" int verge_mutant_active;
extern "C" unsigned char verge_mutant_reached[];
namespace verge_mutants {
constexpr bool on(int n) noexcept {
  if (std::is_constant_evaluated()) return false;
  verge_mutant_reached[n] = 1;
  return verge_mutant_active == n;
}
template <class T>
constexpr bool truth(int always, int never, T&& condition) noexcept {
  const bool is = static_cast<bool>(condition);
  if (std::is_constant_evaluated()) return is;
  return on(always) ? true : on(never) ? false : is;
}
#define VERGE_SWITCH(name, op, instead)                                        \
  struct name { int n; };                                                      \
  template <class A> struct name##_of { const A& a; int n; };                  \
  template <class A> constexpr name##_of<A> operator op(const A& a, name s) noexcept { \
    return {a, s.n};                                                           \
  }                                                                            \
  template <class A, class B>                                                  \
  constexpr auto operator op(name##_of<A> l, const B& b) noexcept {            \
    if constexpr (requires { l.a instead b; }) {                               \
      if constexpr (std::is_same_v<decltype(l.a op b), decltype(l.a instead b)>) { \
        return on(l.n) ? l.a instead b : l.a op b;                             \
      } else {                                                                 \
        return l.a op b;                                                       \
      }                                                                        \
    } else {                                                                   \
      return l.a op b;                                                         \
    }                                                                          \
  }
VERGE_SWITCH(lt, <, <=)
VERGE_SWITCH(le, <=, <)
VERGE_SWITCH(gt, >, >=)
VERGE_SWITCH(ge, >=, >)
VERGE_SWITCH(eq, ==, !=)
VERGE_SWITCH(ne, !=, ==)
VERGE_SWITCH(add, +, -)
VERGE_SWITCH(sub, -, +)
#undef VERGE_SWITCH
}  // namespace verge_mutants
"""

SUPPORT = r"""
#include <cstdio>
#include <cstdlib>
extern "C" {
int verge_mutant_active = -1;
unsigned char verge_mutant_reached[%d];
[[gnu::constructor(101)]] void verge_mutant_begin() {
  if (const char* n = std::getenv("VERGE_MUTANT")) verge_mutant_active = std::atoi(n);
}
[[gnu::destructor(101)]] void verge_mutant_end() {
  const char* path = std::getenv("VERGE_MUTANT_COVERAGE");
  if (path == nullptr) return;
  if (std::FILE* f = std::fopen(path, "a")) {
    for (unsigned i = 0; i < sizeof verge_mutant_reached; ++i) {
      if (verge_mutant_reached[i] != 0) std::fprintf(f, "%%u\n", i);
    }
    std::fclose(f);
  }
}
}
"""

OPERATORS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "+": "add", "-": "sub"}
INSTEAD = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+"}
NOT_HERE = re.compile(r'^\s*(#|//|///|template|requires|using|typedef|friend|static_assert|concept|case |'
                      r'namespace|public:|private:|protected:|struct |class |enum |union |\* |/\*)')
CONSTANT = re.compile(r'\b(constexpr|constinit|static const|static_assert|alignas|operator|requires|'
                      r'decltype|sizeof|__extension__|mutated|Mutation)\b')
STATEMENT = re.compile(r'^(\s+)([a-z_][\w:.\[\]*]*(?:->[\w:.\[\]*]+|\([^()]*\)(?:\.|->)\w+)*\(.*\));$')


def sources():
    listed = subprocess.run(["git", "ls-files", "src", "include/verge/detail"], cwd=ROOT, text=True,
                            capture_output=True, check=True).stdout.split()
    return [p for p in listed if p.endswith((".h", ".cc")) and "asio" not in p and "random" not in p]


def matching(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return -1


class Mutants:
    """All switches, numbered, and the text of each line with its switches."""

    def __init__(self):
        self.all = []

    def new(self, path, line, kind, text):
        self.all.append({"id": len(self.all), "file": path, "line": line, "kind": kind,
                         "text": text.strip()})
        return len(self.all) - 1

    def mutate(self, path, number, line, before, excluded):
        code = line.split("//")[0].rstrip()
        if (path, number) in excluded or NOT_HERE.match(line) or CONSTANT.search(code):
            return line
        if '"' in code or "'" in code or not code.strip() or code.rstrip().endswith("\\"):
            return line
        condition = re.match(r"^(\s*(?:\} else )?if \()", code)
        if condition and "[[" not in code[:condition.end()]:
            end = matching(code, condition.end() - 1)
            inside = code[condition.end():end] if end > 0 else ""
            if inside and ";" not in inside and not re.search(r"[^=!<>]=[^=]", inside):
                yes = self.new(path, number, "always true", code)
                no = self.new(path, number, "always false", code)
                return (code[:condition.end()] +
                        f"verge_mutants::truth({yes}, {no}, ({self.operators(path, number, inside, code)}))" +
                        code[end:])
        statement = STATEMENT.match(code)
        ends = before.rstrip().endswith((";", "{", "}", ")", ":", "else"))
        if statement and ends and not re.match(r"\s*(return|throw|co_|delete|for|while|if|switch|else)\b", code):
            n = self.new(path, number, "left out", code)
            return f"{statement[1]}verge_mutants::on({n}) ? void() : void({statement[2]});"
        return self.operators(path, number, code, code)

    def operators(self, path, number, code, whole):
        def replace(m):
            op = m[1]
            n = self.new(path, number, f"{op} to {INSTEAD[op]}", whole)
            return f" {op} verge_mutants::{OPERATORS[op]}{{{n}}} {op} "
        if re.search(r"\bfor \(.*:.*\)", code):
            return code
        return re.sub(r" (<=|>=|==|!=|<|>|\+|-) (?=[\w(*&!~:\[])", replace, code)


def generate(excluded):
    mutants = Mutants()
    TREE.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True,
                            check=True).stdout.split("\n")
    mutated = set(sources())
    for path in filter(None, listed):
        top = path.split("/")[0]
        if top in ("docs", "clients", "examples", "abi", "bindings", "tools"):
            continue
        target = TREE / path
        text = (ROOT / path).read_bytes()
        if path in mutated:
            lines, before = [], ";"
            for number, line in enumerate(text.decode().split("\n"), 1):
                lines.append(mutants.mutate(path, number, line, before, excluded))
                if line.strip() and not line.strip().startswith("//"):
                    before = line.split("//")[0]
            text = "\n".join(lines).encode()
        if path == "src/version.cc":
            text += (SUPPORT % 100000).encode()
        write_if_changed(target, text, (ROOT / path).stat().st_mode)
    write_if_changed(WORK / "verge_mutants.h", HEADER.encode(), 0o644)
    return mutants.all


def write_if_changed(path, text, mode):
    if path.exists() and path.read_bytes() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    path.chmod(mode & 0o777)


def build(jobs):
    """Builds, and leaves out the switches on lines that do not compile with them."""
    excluded_file = WORK / "excluded.json"
    excluded = {tuple(e) for e in json.loads(excluded_file.read_text())} if excluded_file.exists() else set()
    for _ in range(30):
        mutants = generate(excluded)
        if not (BUILD / "build.ninja").exists():
            subprocess.run(["cmake", "-G", "Ninja", "-S", TREE, "-B", BUILD, "-DCMAKE_BUILD_TYPE=None",
                            f"-DCMAKE_CXX_FLAGS=-std=c++20 -O1 -w -include {WORK}/verge_mutants.h",
                            "-DVERGE_BUILD_BENCH=OFF", "-DVERGE_BUILD_EXAMPLES=OFF",
                            "-DVERGE_BUILD_TOOLS=OFF", "-DVERGE_BUILD_SERVER=OFF", "-DVERGE_BUILD_C=OFF",
                            "-DVERGE_INSTALL=OFF", "-DVERGE_CHECK_HEADERS=OFF"], check=True,
                           stdout=subprocess.DEVNULL)
        done = subprocess.run(["ninja", "-C", BUILD, "-k", "0", f"-j{jobs}", *TESTS], text=True,
                              capture_output=True)
        if done.returncode == 0:
            return mutants
        # Every line that an error, or the note of a template that led to it, names.
        found = set()
        for path, line in re.findall(r"tree/((?:src|include)/[\w/.]+):(\d+):\d+: (?:fatal )?error", done.stdout):
            found.add((path, int(line)))
        for path, line in re.findall(r"tree/((?:src|include)/[\w/.]+):(\d+):\d+:   required from", done.stdout):
            found.add((path, int(line)))
        found -= excluded
        if not found:
            sys.exit("mutants: the build fails, and not because of a switch:\n" + done.stdout[-4000:])
        print(f"mutants: {len(found)} lines do not take a switch", flush=True)
        # The lines around belong to the same expression.
        excluded |= {(p, l + d) for p, l in found for d in (-1, 0, 1)}
        excluded_file.write_text(json.dumps(sorted(excluded)))
    sys.exit("mutants: no end of lines that do not compile")


def run(test, mutant=None, coverage=None, limit=300):
    env = dict(os.environ, VERGE_TEST_SCALE="quick", VERGE_STRESS_SECONDS="1")
    if mutant is not None:
        env["VERGE_MUTANT"] = str(mutant)
    if coverage:
        env["VERGE_MUTANT_COVERAGE"] = str(coverage)
    begin = time.monotonic()
    try:
        code = subprocess.run([BUILD / "tests" / test, "--gtest_brief=1"], env=env, timeout=limit,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    except subprocess.TimeoutExpired:
        code = "no end"
    return code, time.monotonic() - begin


def part_of(path):
    return path.split("/")[1] if path.startswith("src/") else "detail"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", default="100")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--part")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--json", type=pathlib.Path, default=WORK / "mutants.json")
    options.add_argument("--list", action="store_true")
    options.add_argument("--minutes", type=float, default=0, help="begin no more after so many")
    chosen = options.parse_args()
    if chosen.list:
        for m in generate(set()):
            print(m["id"], f"{m['file']}:{m['line']}", m["kind"], m["text"], sep="\t")
        return
    began = time.monotonic()
    mutants = build(chosen.jobs)
    print(f"mutants: {len(mutants)} in all", flush=True)

    reached, seconds = {}, {}
    for test in TESTS:
        coverage = WORK / f"{test}.reached"
        coverage.unlink(missing_ok=True)
        code, seconds[test] = run(test, coverage=coverage)
        if code != 0:
            print(f"mutants: {test} fails without a fault ({code}), and is left out", flush=True)
            continue
        reached[test] = set(map(int, coverage.read_text().split())) if coverage.exists() else set()

    pool = [m for m in mutants if not chosen.part or part_of(m["file"]) == chosen.part]
    if chosen.sample != "all":
        pool = random.Random(chosen.seed).sample(pool, min(int(chosen.sample), len(pool)))

    def try_one(m):
        if chosen.minutes and time.monotonic() - began > 60 * chosen.minutes:
            return dict(m, outcome="not tried")
        tests = sorted((t for t in reached if m["id"] in reached[t]), key=seconds.get)
        for test in tests:
            code, _ = run(test, m["id"], limit=max(20, 8 * seconds[test]))
            if code != 0:
                return dict(m, outcome="caught", by=test, how=code)
        return dict(m, outcome="survived" if tests else "not reached")

    with ThreadPoolExecutor(chosen.jobs) as workers:
        results = list(workers.map(try_one, pool))
    report(results, len(mutants), chosen.json)


def report(results, total, path):
    verdicts_file = pathlib.Path(__file__).with_name("verdicts.json")
    verdicts = json.loads(verdicts_file.read_text()) if verdicts_file.exists() else {}
    for m in results:
        key = f"{m['file']}: {m['kind']}: {m['text']}"
        if m["outcome"] == "survived" and key in verdicts:
            m["outcome"], m["verdict"] = "equivalent", verdicts[key]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"total": total, "tried": results}, indent=1))
    parts = {}
    for m in results:
        counts = parts.setdefault(part_of(m["file"]), {})
        counts[m["outcome"]] = counts.get(m["outcome"], 0) + 1
    columns = ["caught", "survived", "equivalent", "not reached", "not tried"]
    print("| part | " + " | ".join(columns) + " | caught of what counts |")
    print("|---" * (len(columns) + 2) + "|")
    for name in [*sorted(parts), "all"]:
        counts = parts.get(name) or {c: sum(p.get(c, 0) for p in parts.values()) for c in columns}
        row = [counts.get(c, 0) for c in columns]
        of = row[0] + row[1]
        print(f"| {name} | " + " | ".join(map(str, row)) + f" | {100 * row[0] / of if of else 0:.0f} % |")
    for m in results:
        if m["outcome"] in ("survived", "equivalent"):
            print(f"{m['outcome']}: {m['file']}:{m['line']}: {m['kind']}: {m['text']}" +
                  (f"  ({m['verdict']})" if "verdict" in m else ""))


if __name__ == "__main__":
    main()
