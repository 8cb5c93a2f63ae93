#!/usr/bin/env python3
"""Faults put into a copy of the library, one at a time: which of them do the tests find?

  tests/mutants/mutants.py [--sample N|all] [--seed N] [--part NAME] [--jobs N] [--again] [--list]

The sources of src/ and include/verge/detail/ are copied to build/mutants/tree, and each place that
can be wrong in a small way becomes a switch: `a < b` can be `a <= b`, a condition always true or
false, a number one larger, a call left out. There is one build, and the environment chooses the
fault (VERGE_MUTANT=17). A run of each test without a fault tells which switches it comes by; a
fault is tried with those tests only, the shortest first, until one fails or does not end in time.

The sample takes at least so many of each part (a folder of src/, or detail) that its share means
something. What was tried is kept in build/mutants/tried.json: --again tries only what was not
caught.

Memory orders are not among the faults: on this processor no run can show them. They are the
business of tests/orders.

What survives is listed with a verdict from verdicts.json beside this file, which says why a fault
changes nothing that a test could see; without one it is a hole in the tests, and counts as one. So
does a fault that no test comes by.

"""
import argparse, json, os, pathlib, random, re, resource, signal, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor, as_completed

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ.get("VERGE_MUTANTS_DIR", ROOT / "build" / "mutants"))
TREE = WORK / "tree"
BUILD = WORK / "build"
TESTS = """arithmetic_test quad_heap_test timer_wheel_test timer_queue_test wheel_test wheel_engine_test
  hybrid_test processor_heap_test state_machine_table_test slab_test slab_trim_test run_queue_test
  scheduler_parts_test short_lock_test poller_test chan_test channel_end_test select_test task_test
  time_test monitor_test stuck_thread_test stuck_test cancel_test context_test context_callback_test
  clock_test tsc_anchor_test simulation_test fd_test net_test net_kinds_test runtime_test
  runtime_end_test join_test owed_ticks_test missed_ticks_test turn_test slack_test precise_test
  metrics_test under_test call_order_test fork_test log_test cpu_limits_test runtime_thread_test
  empty_handle_test small_parts_test slow_end_test net_waiting_test withdrawn_test simulated_clock_test
  shared_queue_test slab_threads_test state_machine_bad_test call_explorer_test hybrid_explorer_test
  orders_test conformance_test""".split()
# Of the library, what orders_test has compiled for its hooks (tests/CMakeLists.txt).
TRACED = """base/fence base/short_lock chan/chan chan/select engine/clockwork engine/dead_nodes engine/hybrid
  engine/make_engine memory/slab_pool memory/slab_trim net/poller node/node_store sched/scheduling
  timer/callback timer/handle""".split()
LEAST_OF_A_PART = 24
SLOW = 20  # seconds

HEADER = r"""
#pragma once
#include <type_traits>
#include <utility>
extern "C" int verge_mutant_active;
extern "C" unsigned char verge_mutant_reached[];
namespace verge_mutants {
[[gnu::no_sanitize("thread")]] constexpr bool on(int n) noexcept {
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
template <class T>
constexpr T more(int n, T v) noexcept {
  return on(n) ? static_cast<T>(v + 1) : v;
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
                      r'decltype|sizeof|__extension__|mutated|Mutation|asm|__builtin_\w+)\b')
STATEMENT = re.compile(r'^(\s+)([a-z_][\w:.\[\]*]*(?:->[\w:.\[\]*]+|\([^()]*\)(?:\.|->)\w+)*\(.*\));$')
# A number in an expression: an operand, an argument, or what is returned.
NUMBER = re.compile(r'((?:[-+*/%<>=,] |\(|return ))(\d+U?)\b(?![\'.\w>])')


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
    """All switches, numbered, and the text of each line with its switches. A switch keeps its number
    if others are left out, so that little is compiled again."""

    def __init__(self, excluded):
        self.all = []
        self.keys = {}
        self.excluded = excluded

    def new(self, path, line, kind, text):
        text = text.strip()
        key = f"{path}: {kind}: {text}"
        self.keys[key] = self.keys.get(key, 0) + 1
        if self.keys[key] > 1:
            key += f" #{self.keys[key]}"
        self.all.append({"id": len(self.all), "file": path, "line": line, "kind": kind, "text": text,
                         "key": key, "out": f"{path}: {text}" in self.excluded})
        return len(self.all) - 1

    def mutate(self, path, number, line, before):
        code = line.split("//")[0].rstrip()
        if NOT_HERE.match(line) or CONSTANT.search(code):
            return line
        if '"' in code or "'" in code or not code.strip() or code.rstrip().endswith("\\"):
            return line
        changed = self.changed(path, number, code, before)
        return line if f"{path}: {code.strip()}" in self.excluded else changed

    def changed(self, path, number, code, before):
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

        def larger(m):
            n = self.new(path, number, f"{m[2]} is one more", whole)
            return f"{m[1]}verge_mutants::more({n}, {m[2]})"
        if re.search(r"\bfor \(.*:.*\)", code):
            return code
        if not re.search(r"[\[{<]\d|template|std::array|\bint \w+\(|\{\d", code):
            code = NUMBER.sub(larger, code)
        return re.sub(r" (<=|>=|==|!=|<|>|\+|-) (?=[\w(*&!~:\[])", replace, code)


def generate(excluded):
    mutants = Mutants(excluded)
    TREE.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True,
                            check=True).stdout.split("\n")
    mutated = set(sources())
    for path in filter(None, listed):
        top = path.split("/")[0]
        if top in ("docs", "clients", "examples", "abi", "bindings", "tools", "packaging"):
            continue
        if not (ROOT / path).is_file():
            continue
        target = TREE / path
        text = (ROOT / path).read_bytes()
        if path in mutated:
            lines, before = [], ";"
            for number, line in enumerate(text.decode().split("\n"), 1):
                lines.append(mutants.mutate(path, number, line, before))
                if line.strip() and not line.strip().startswith("//"):
                    before = line.split("//")[0]
            text = "\n".join(lines).encode()
        if path == "src/version.cc":
            text += (SUPPORT % 100000).encode()
        write_if_changed(target, text, (ROOT / path).stat().st_mode)
    write_if_changed(WORK / "verge_mutants.h", HEADER.encode(), 0o644)
    return [m for m in mutants.all if not m["out"]]


def write_if_changed(path, text, mode):
    if path.exists() and path.read_bytes() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    path.chmod(mode & 0o777)


def excluded_lines():
    file = pathlib.Path(__file__).with_name("excluded.json")
    return set(json.loads(file.read_text())) if file.exists() else set()


FLAGS = ["-std=c++20", "-w", "-pthread", "-include", str(WORK / "verge_mutants.h"), f"-I{TREE}/src",
         f"-I{TREE}/include", f"-I{TREE}/tests"]
LIBRARIES = "-lgmock -lgtest -lgtest_main -ldl"


def sources_of(test):
    """A test of several files is compiled in one piece."""
    folder = TREE / "tests" / test.removesuffix("_test")
    one = TREE / "tests" / f"{test}.cc"
    if one.exists():
        return one
    whole = WORK / f"{test}.cc"
    write_if_changed(whole, "".join(f'#include "{p}"\n' for p in sorted(folder.glob("*.cc"))).encode(), 0o644)
    return whole


def orders_rules(compiler):
    """orders_test: its hooks stand before the library, a part of which is compiled for them."""
    pieces = {"orders_library": [TREE / "src" / f"{p}.cc" for p in TRACED],
              "orders_scenes": [TREE / "tests/orders" / f"{n}.cc" for n in
                                ("channels", "events", "locks", "memory", "queues", "timers")]}
    text = f"""rule link_orders
  command = {compiler} -pthread -Wl,--allow-multiple-definition $in -lgtest -lgtest_main -ldl -o $out
"""
    objects = []
    for name in ("orders_test", "hooks", "system", "traced_memory"):
        objects.append(f"orders_{name}.o")
        text += (f"build {objects[-1]}: compile {TREE}/tests/orders/{name}.cc\n"
                 f"  more = -O1 -DVERGE_SOURCE_DIR='\"{ROOT}\"'\n")
    for name, files in pieces.items():
        write_if_changed(WORK / f"{name}.cc", "".join(f'#include "{f}"\n' for f in files).encode(), 0o644)
        objects.append(f"{name}.o")
        text += (f"build {name}.o: compile {WORK}/{name}.cc\n"
                 f"  more = -O1 -fsanitize=thread -DVERGE_COHERENCE\n")
    return text + f"build tests/orders_test: link_orders {' '.join(objects)} half_0.o half_1.o half_2.o\n"


def configure():
    """Not with CMake: the library is compiled in two pieces (some names are in two files), which takes a
    quarter of the time."""
    files = [p for p in sources() if p.endswith(".cc")]
    pieces = [files[0::2], files[1::2],
              sorted(str(p.relative_to(TREE)) for p in (TREE / "src").rglob("*.cc")
                     if str(p.relative_to(TREE)) not in files)]
    compiler = os.environ.get("CXX", "g++")
    text = f"""rule compile
  command = {compiler} {' '.join(FLAGS)} $more -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = {compiler} -pthread $in {LIBRARIES} -o $out
"""
    for n, piece in enumerate(pieces):
        unity = WORK / f"half_{n}.cc"
        write_if_changed(unity, "".join(f'#include "{TREE}/{p}"\n' for p in piece).encode(), 0o644)
        text += f"build half_{n}.o: compile {unity}\n  more = -O1\n"
    text += orders_rules(compiler)
    for test in TESTS:
        if test == "orders_test":
            continue
        text += f"build {test}.o: compile {sources_of(test)}\n  more = -O1\n"
        text += f"build tests/{test}: link {test}.o half_0.o half_1.o half_2.o\n"
    write_if_changed(BUILD / "build.ninja", text.encode(), 0o644)


def build(jobs):
    """Builds, and leaves out the switches on lines that do not compile with them: excluded.json."""
    excluded = excluded_lines()
    for _ in range(40):
        mutants = generate(excluded)
        configure()
        done = subprocess.run(["ninja", "-C", BUILD, "-k", "0", f"-j{jobs}", *(f"tests/{t}" for t in TESTS)],
                              text=True, capture_output=True)
        if done.returncode == 0:
            return mutants
        # Every line that an error, or the note of a template that led to it, names, and those
        # around, which belong to the same expression.
        found = set()
        for path, line in re.findall(r"tree/((?:src|include)/[\w/.]+):(\d+):\d+: "
                                     r"(?:(?:fatal )?error|  required from)", done.stdout):
            lines = (ROOT / path).read_text().split("\n")
            for n in range(int(line) - 2, int(line) + 1):
                if 0 <= n < len(lines):
                    found.add(f"{path}: {lines[n].split('//')[0].strip()}")
        found -= excluded
        if not found:
            sys.exit("mutants: the build fails, and not because of a switch:\n" + done.stdout[-4000:])
        print(f"mutants: {len(found)} lines do not take a switch", flush=True)
        excluded |= found
        pathlib.Path(__file__).with_name("excluded.json").write_text(
            json.dumps(sorted(excluded), indent=0, ensure_ascii=False) + "\n")
    sys.exit("mutants: no end of lines that do not compile")


def limits():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))


def run(program, mutant=None, coverage=None, limit=300):
    env = dict(os.environ, VERGE_TEST_SCALE="quick", VERGE_STRESS_SECONDS="1")
    if mutant is not None:
        env["VERGE_MUTANT"] = str(mutant)
    if coverage:
        env["VERGE_MUTANT_COVERAGE"] = str(coverage)
    begin = time.monotonic()
    child = subprocess.Popen([program, "--gtest_brief=1", "--gtest_fail_fast"], env=env, cwd=WORK,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=limits)
    try:
        code = child.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        code = "no end"
    try:
        os.killpg(child.pid, signal.SIGKILL)  # and what it has started
    except ProcessLookupError:
        pass
    child.wait()
    return code, time.monotonic() - begin


def part_of(path):
    return path.split("/")[1] if path.startswith("src/") else "detail"


def coverage_of(test, program):
    """The switches it comes by, and how long it takes. None if it fails without a fault."""
    coverage = WORK / f"{test}.reached"
    coverage.unlink(missing_ok=True)
    code, seconds = run(program, coverage=coverage)
    if code != 0:
        print(f"mutants: {test} fails without a fault ({code}), and is left out", flush=True)
        return None, seconds
    return (set(map(int, coverage.read_text().split())) if coverage.exists() else set()), seconds


def sampled(pool, n, seed):
    """At least LEAST_OF_A_PART of each part, if it has so many, and the rest in proportion."""
    chance = random.Random(seed)
    parts = {}
    for m in pool:
        parts.setdefault(part_of(m["file"]), []).append(m)
    chosen, left = [], []
    for name in sorted(parts):
        # Shuffled by a key of its own, so that a change elsewhere does not change all of it.
        order = sorted(parts[name], key=lambda m: random.Random(f"{seed} {m['key']}").random())
        chosen += order[:LEAST_OF_A_PART]
        left += order[LEAST_OF_A_PART:]
    left.sort(key=lambda m: random.Random(f"{seed} {m['key']}").random())
    chosen += left[:max(0, n - len(chosen))]
    chance.shuffle(chosen)
    return chosen


def try_all(pool, reached, seconds, path_of, jobs, minutes=0, keep=lambda results: None):
    began = time.monotonic()
    results = []

    def try_one(m):
        if minutes and time.monotonic() - began > 60 * minutes:
            return dict(m, outcome="not tried")
        tests = sorted((t for t in reached if m["id"] in reached[t]), key=seconds.get)
        for test in tests:
            code, _ = run(path_of(test), m["id"], limit=max(30, 10 * seconds[test]))
            if code != 0:
                return dict(m, outcome="caught", by=test, how=code)
        return dict(m, outcome="survived" if tests else "not reached", tests=tests)

    with ThreadPoolExecutor(jobs) as workers:
        for done in as_completed([workers.submit(try_one, m) for m in pool]):
            results.append(done.result())
            keep(results)
    return results


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", default="100")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--part")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--list", action="store_true")
    options.add_argument("--again", action="store_true", help="only what was not caught the last time")
    options.add_argument("--build", action="store_true", help="only build")
    options.add_argument("--built", action="store_true", help="with the tests that were built before")
    options.add_argument("--share", default="0/1", help="of several runs side by side, which: 0/2, 1/2")
    options.add_argument("--report", action="store_true", help="only the table of what was tried")
    options.add_argument("--tests", help="only these, with commas")
    options.add_argument("--minutes", type=float, default=0, help="begin no more after so many")
    chosen = options.parse_args()
    share, shares = map(int, chosen.share.split("/"))
    tried = WORK / ("tried.json" if shares == 1 else f"tried_{share}.json")
    if chosen.list:
        for m in generate(excluded_lines()):
            print(m["id"], f"{m['file']}:{m['line']}", m["kind"], m["text"], sep="\t")
        return
    if chosen.report:
        return report(sum((json.loads(p.read_text()) for p in sorted(WORK.glob("tried*.json"))), []))
    if chosen.tests:
        TESTS[:] = chosen.tests.split(",")
    mutants = generate(excluded_lines()) if chosen.built else build(chosen.jobs)
    print(f"mutants: {len(mutants)} in all", flush=True)
    if chosen.build:
        return

    kept = WORK / "coverage.json"
    reached, seconds = {}, {}
    if chosen.built and kept.exists():
        seconds = json.loads(kept.read_text())
        reached = {t: set(map(int, (WORK / f"{t}.reached").read_text().split())) for t in seconds}
        TESTS[:] = [t for t in TESTS if t not in reached]
    there = [t for t in TESTS if (BUILD / "tests" / t).exists()]
    with ThreadPoolExecutor(chosen.jobs) as workers:
        for test, (found, seconds[test]) in zip(there, workers.map(
                lambda t: coverage_of(t, BUILD / "tests" / t), there)):
            if found is not None:
                reached[test] = found
    kept.write_text(json.dumps({t: seconds[t] for t in reached}))
    # What takes minutes is for faults that nothing else comes by.
    quick_ids = set().union(*(reached[t] for t in reached if seconds[t] < SLOW))
    for t in reached:
        if seconds[t] >= SLOW:
            reached[t] -= quick_ids
    print("mutants: seconds of each test: " +
          ", ".join(f"{t} {seconds[t]:.1f}" for t in sorted(reached, key=seconds.get)), flush=True)

    pool = [m for m in mutants if not chosen.part or part_of(m["file"]) == chosen.part]
    if chosen.sample != "all":
        pool = sampled(pool, int(chosen.sample), chosen.seed)
    pool = pool[share::shares]
    before = {m["key"]: m for m in json.loads(tried.read_text())} if chosen.again and tried.exists() else {}
    known = [dict(before[m["key"]], id=m["id"], line=m["line"]) for m in pool
             if before.get(m["key"], {}).get("outcome") == "caught"]
    pool = [m for m in pool if before.get(m["key"], {}).get("outcome") != "caught"]
    print(f"mutants: to try: {len(pool)}", flush=True)

    def keep(results):
        tried.write_text(json.dumps(known + results, indent=1))
    report(known + try_all(pool, reached, seconds, lambda t: BUILD / "tests" / t, chosen.jobs,
                           chosen.minutes, keep))


def judged(results):
    """With the verdicts of those that change nothing."""
    file = pathlib.Path(__file__).with_name("verdicts.json")
    verdicts = json.loads(file.read_text()) if file.exists() else {}
    for m in results:
        if m["outcome"] in ("survived", "not reached") and m["key"] in verdicts:
            m["outcome"], m["verdict"] = "equivalent", verdicts[m["key"]]
    return results


def report(results):
    results = judged(results)
    parts = {}
    for m in results:
        counts = parts.setdefault(part_of(m["file"]), {})
        counts[m["outcome"]] = counts.get(m["outcome"], 0) + 1
    columns = ["caught", "survived", "not reached", "equivalent", "not tried"]
    print("| part | " + " | ".join(columns) + " | caught, of those not equivalent |")
    print("|---|" + "---:|" * (len(columns) + 1))
    for name in [*sorted(parts), "all"]:
        counts = parts.get(name) or {c: sum(p.get(c, 0) for p in parts.values()) for c in columns}
        row = [counts.get(c, 0) for c in columns]
        of = row[0] + row[1] + row[2]
        print(f"| {name} | " + " | ".join(map(str, row)) + f" | {100 * row[0] / of if of else 0:.0f} % |")
    for m in sorted(results, key=lambda m: (m["outcome"], m["file"], m["line"])):
        if m["outcome"] in ("survived", "not reached", "equivalent"):
            print(f"{m['outcome']}: {m['file']}:{m['line']}: {m['kind']}: {m['text']}" +
                  (f"  ({m['verdict']})" if "verdict" in m else ""))


if __name__ == "__main__":
    main()
