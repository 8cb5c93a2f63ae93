#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults put into a copy of the library, one at a time: which of them do the tests find?

  tests/mutants/mutants.py [--sample N|all] [--seed N] [--part NAME,NAME] [--jobs N] [--open] [--list]

The sources of src/ and include/verge/ are copied to build/mutants/tree, and each place that
can be wrong in a small way becomes a switch: `a < b` can be `a <= b`, a condition always true or
false, a number one larger, a call or an assignment left out. Beside these there are faults that no rule makes, in
by_hand.json: the text that is found, and the text in its place, in which @ is whether the fault is
chosen. There is one build, and the environment chooses the fault (VERGE_MUTANT=17). Some of the tests
are built with the address sanitizer as well. A run of each test without a fault tells which switches
each of its cases comes by, and how long the case takes; a fault is tried with those cases only, of the
program where they are quickest first, until one fails twice or does not end in time. A switch that is
come by outside of the cases is tried with the whole program. One that has a verdict is not tried.

The sample takes at least so many of each part (a folder of src/, detail, or public) that its share means
something. What was tried is kept in build/mutants/tried.json: --again tries only what was not
caught. What was not caught and has no verdict is kept in open.json beside this file, by the text of
its line: --open tries those, and each run strikes out what it has found caught.

Some lines are left as they are, by the rules SKIPPED below: what only prints, counts for a probe or
ends a process that is already broken, and hints to the processor or the system, which change
nothing but time.

Memory orders are not among the faults: on this processor no run can show them. They are the
business of tests/orders.

What survives is listed with a verdict from verdicts.json beside this file, which says why a fault
changes nothing that a test could see; without one it is a hole in the tests, and counts as one. So
does a fault that no test comes by.

"""
import argparse, json, os, pathlib, random, re, resource, signal, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor, as_completed

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ.get("VERGE_MUTANTS_DIR", ROOT / "build" / "mutants"))
TREE = WORK / "tree"
BUILD = WORK / "build"
BESIDE = ""  # what the names of the files beside this one begin with
COPIED = ["src", "include", "tests", "bench"]
TESTS = """arithmetic_test quad_heap_test timer_wheel_test timer_queue_test wheel_test wheel_engine_test due_run_test
  hybrid_test processor_heap_test state_machine_table_test slab_test slab_trim_test slab_ahead_test run_queue_test
  scheduler_parts_test short_lock_test poller_test chan_test channel_end_test select_test task_test
  time_test monitor_test stuck_thread_test stuck_test cancel_test context_test context_callback_test
  clock_test tsc_anchor_test simulation_test fd_test net_test net_kinds_test runtime_test
  runtime_end_test join_test owed_ticks_test missed_ticks_test turn_test slack_test precise_test
  metrics_test under_test call_order_test fork_test log_test cpu_limits_test runtime_thread_test
  empty_handle_test small_parts_test slow_end_test net_waiting_test withdrawn_test simulated_clock_test
  shared_queue_test slab_threads_test state_machine_bad_test call_explorer_test hybrid_explorer_test
  context_explorer_test context_race_test failures_test scheduler_test dump_test stall_test trace_test
  inspect_test orders_test conformance_test label_test group_test retry_test grid_test
  default_runtime_test chosen_runtime_test quad_heap_memory_test quad_heap_walk_test
  state_machine_memory_test state_machine_explorer_test context_cost_test without_monitor_test hybrid_timers_test
  late_thread_test stall_lock_test net_failures_test timer_failures_test
  deadlines_test""".split()
# Of the library, what orders_test has compiled for its hooks (tests/CMakeLists.txt).
TRACED = """base/fence base/short_lock chan/chan chan/select context/callback context/context context/scope
  engine/clockwork engine/dead_nodes engine/hybrid engine/make_engine memory/slab_ahead memory/slab_pool memory/slab_trim
  net/deadlines net/descriptor net/io_operation net/poller node/node_store sched/scheduling
  timer/callback timer/handle""".split()
# Those that are built with the address sanitizer as well, which finds what is leaked or used after its end.
SANITIZED = """context_test context_callback_test time_test runtime_end_test processor_heap_test fd_test
  channel_end_test timer_wheel_test timer_failures_test""".split()
# Of these only some are run: the others take minutes; or compare how many states there are with and
# without what the switches add.
FILTERS = {"hybrid_explorer_test": "*-*has_no_state*",
           "context_explorer_test": "*of_every_pair*:*of_a_stop_while*",
           "state_machine_explorer_test": "*of_every_pair*:*of_two_processors*",
           "context_race_test": "*one_tree*:*destruction*"}
LEAST_OF_A_PART = 24
FIRST_BY_HAND = 99000
SLOW = 20  # seconds of a processor

HEADER = r"""
#pragma once
#include <type_traits>
#include <utility>
extern "C" int verge_mutant_active;
extern "C" unsigned char* verge_mutant_reached;
namespace verge_mutants {
[[gnu::no_sanitize("thread")]] constexpr bool on(int n) noexcept {
  if (std::is_constant_evaluated()) return false;
  if ((verge_mutant_reached[n] & 1) == 0) verge_mutant_reached[n] |= 1;
  return verge_mutant_active == n;
}
/// The operands have no such operator: nothing can be chosen.
[[gnu::no_sanitize("thread")]] constexpr void none(int n) noexcept {
  if (!std::is_constant_evaluated() && (verge_mutant_reached[n] & 2) == 0) verge_mutant_reached[n] |= 2;
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
        none(l.n);                                                             \
        return l.a op b;                                                       \
      }                                                                        \
    } else {                                                                   \
      none(l.n);                                                               \
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
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/times.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
extern "C" {
int verge_mutant_active = -1;
unsigned char verge_mutant_before[%(size)d];
unsigned char* verge_mutant_reached = verge_mutant_before;
[[gnu::constructor(101)]] void verge_mutant_begin() {
  if (const char* n = std::getenv("VERGE_MUTANT")) verge_mutant_active = std::atoi(n);
  // Shared with the processes that a test forks, most of which end without a destructor.
  void* const all = mmap(nullptr, %(size)d, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (all != MAP_FAILED) verge_mutant_reached = static_cast<unsigned char*>(all);
}
// What was reached since the last time, and whose it is; of no case what a process leaves at its end.
static void verge_mutant_write(const char* of, double seconds, double processor) {
  std::FILE* const f = std::fopen(std::getenv("VERGE_MUTANT_COVERAGE"), "a");
  if (f == nullptr) return;
  for (unsigned i = 0; i < %(size)d; ++i) {
    if ((verge_mutant_reached[i] & 1) != 0) std::fprintf(f, "%%u\n", i);
    if ((verge_mutant_reached[i] & 2) != 0) std::fprintf(f, "!\t%%u\n", i);
  }
  if (of != nullptr) std::fprintf(f, "=\t%%s\t%%.3f\t%%.3f\n", of, seconds, processor);
  std::fclose(f);
}
[[gnu::destructor(101)]] void verge_mutant_end() {
  if (std::getenv("VERGE_MUTANT_COVERAGE") != nullptr) verge_mutant_write(nullptr, 0, 0);
}
}
namespace {
double processor_time() {
  tms t{};
  ::times(&t);
  return double(t.tms_utime + t.tms_stime + t.tms_cutime + t.tms_cstime) / double(::sysconf(_SC_CLK_TCK));
}
struct each_case : testing::EmptyTestEventListener {
  double began = 0;
  void OnTestStart(const testing::TestInfo&) override {
    verge_mutant_write("", 0, 0);
    std::memset(verge_mutant_reached, 0, %(size)d);
    began = processor_time();
  }
  void OnTestEnd(const testing::TestInfo& of) override {
    const std::string name = std::string(of.test_suite_name()) + "." + of.name();
    verge_mutant_write(name.c_str(), double(of.result()->elapsed_time()) / 1000, processor_time() - began);
    std::memset(verge_mutant_reached, 0, %(size)d);
  }
};
const bool verge_mutant_listens = [] {
  if (std::getenv("VERGE_MUTANT_COVERAGE") != nullptr)
    testing::UnitTest::GetInstance()->listeners().Append(new each_case);
  return true;
}();
}  // namespace
"""

OPERATORS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "+": "add", "-": "sub"}
INSTEAD = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+"}
NOT_HERE = re.compile(r'^\s*(\w+ = \d+,|#|//|///|template|requires|using|typedef|friend|static_assert|concept|case |'
                      r'namespace|public:|private:|protected:|struct |class |enum |union |\* |/\*)')
CONSTANT = re.compile(r'\b(constexpr|constinit|static const|static_assert|alignas|operator|requires|'
                      r'decltype|sizeof|offsetof|__extension__|mutated|Mutation|asm|__builtin_\w+)\b|verge_mutants')
# Pure virtual functions, attributes; assertions and the ends of broken processes; messages, probes;
# hints: prefetching, pauses, huge pages; and what only a sanitizer has.
SKIPPED = re.compile(r'\) (const )?(noexcept )?= (0|default);$|^\s*\[\[gnu::\w+\(|'
                     r'\bassert\(|std::(abort|terminate)\(|abort_on_bad|va_(start|end)\(|'
                     r'(^|[ :(])log\(|VERGE_PROBE|prefetch\w*\(|(^|[ :])pause\(\);|'
                     r'shrink_to_fit|prefer_huge_pages\(|__[alt]san_')
STATEMENT = re.compile(r'^(\s+)([a-z_][\w:.\[\]*]*(?:->[\w:.\[\]*]+|\([^()]*\)(?:\.|->)\w+)*\(.*\));$')
# A value that is stored, counted up or down.
ASSIGNMENT = re.compile(r'^(\s+)((?:\+\+|--)[a-z_*][\w:.\[\]>()*-]*|'
                        r'[a-z_*][\w:.\[\]>()*-]* (?:[-+|&]?=) [^{}]*);$')
# A number in an expression: an operand, an argument, or what is returned.
NUMBER = re.compile(r'((?:[-+*/%<>=,] |\(|return ))(\d+U?)\b(?![\'.\w>])')


# Headers that need another library: the tests of the adapters include them.
OF_ANOTHER_LIBRARY = re.compile(r"asio|include/verge/(execution|glib|libevent|libev|uv)\.h$")


def sources():
    return [p for p in files_in("src", "include/verge")
            if p.endswith((".h", ".cc")) and not OF_ANOTHER_LIBRARY.search(p) and "random" not in p]


def files_in(*folders):
    return sorted(str(p.relative_to(ROOT)) for f in folders for p in (ROOT / f).rglob("*") if p.is_file())


def matching(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return -1


class Mutants:
    """All switches, numbered, and the text of each line with its switches. A switch keeps its number
    if others are left out or other files change, so that little is compiled again."""
    OF_A_FILE = 400

    def __init__(self, excluded):
        self.all = []
        self.next = self.end = 0
        self.keys = {}
        self.excluded = excluded

    def new(self, path, line, kind, text):
        text = text.strip()
        key = f"{path}: {kind}: {text}"
        self.keys[key] = self.keys.get(key, 0) + 1
        if self.keys[key] > 1:
            key += f" #{self.keys[key]}"
        self.next += 1
        if self.next > self.end:
            sys.exit(f"mutants: more than {self.OF_A_FILE} switches in {path}: raise that number")
        self.all.append({"id": self.next - 1, "file": path, "line": line, "kind": kind, "text": text,
                         "key": key, "out": f"{path}: {text}" in self.excluded})
        return self.next - 1

    def begin(self, number):
        """The switches of the file with that number are next."""
        self.next = number * self.OF_A_FILE
        self.end = self.next + self.OF_A_FILE

    def by_hand(self, path, text):
        """The text with the faults of by_hand.json that are in this file."""
        for n, fault in enumerate(beside("by_hand.json", [])):
            if fault["file"] != path:
                continue
            found = fault["find"]
            if text.count(found) != 1 or found.count("\n") != fault["put"].count("\n"):
                sys.exit(f"mutants: by_hand.json: not once in {path}, or of another number of lines: {found}")
            number = FIRST_BY_HAND + n
            text = text.replace(found, fault["put"].replace("@", f"verge_mutants::on({number})"))
            self.all.append({"id": number, "file": path, "line": text[:text.index(f"on({number})")].count("\n") + 1,
                             "kind": "by hand", "text": fault["fault"],
                             "key": f"{path}: by hand: {fault['fault']}", "out": False})
        return text

    def mutate(self, path, number, line, before):
        code = line.split("//")[0].rstrip()
        if NOT_HERE.match(line) or CONSTANT.search(code) or SKIPPED.search(code):
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
        stores = None if "co_await" in code or "co_yield" in code else ASSIGNMENT.match(code)
        statement = statement or stores
        if statement and ends and not re.match(r"\s*(return|throw|co_|delete|for|while|if|switch|else)\b", code):
            n = self.new(path, number, "left out", code)
            inside = self.operators(path, number, statement[2], code) if statement is stores else statement[2]
            return f"{statement[1]}verge_mutants::on({n}) ? void() : void({inside});"
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


def generate(excluded, only=None):
    mutants = Mutants(excluded)
    TREE.mkdir(parents=True, exist_ok=True)
    mutated = {path: n for n, path in enumerate(sources() if only is None else sorted(only))}
    for path in files_in(*COPIED):
        target = TREE / path
        text = (ROOT / path).read_bytes()
        if path in mutated:
            lines, before = [], ";"
            mutants.begin(mutated[path])
            for number, line in enumerate(mutants.by_hand(path, text.decode()).split("\n"), 1):
                lines.append(mutants.mutate(path, number, line, before))
                if line.strip() and not line.strip().startswith("//"):
                    before = line.split("//")[0]
            text = "\n".join(lines).encode()
        write_if_changed(target, text, (ROOT / path).stat().st_mode)
    write_if_changed(WORK / "verge_mutants.h", HEADER.encode(), 0o644)
    write_if_changed(WORK / "support.cc", (SUPPORT % {"size": 100000}).encode(), 0o644)
    return [m for m in mutants.all if not m["out"]]


def write_if_changed(path, text, mode):
    if path.exists() and path.read_bytes() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    path.chmod(mode & 0o777)


def excluded_lines():
    return set(beside("excluded.json", []))


FLAGS = ["-std=c++20", "-w", "-pthread", f"-I{TREE}/src", f"-I{TREE}/include", f"-I{TREE}/tests"]
# What tests include is compiled once; those that compute much are optimized.
TEST_HEADERS = """#include "verge_mutants.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/verge.h>
#include <map>
#include <random>
#include <thread>
"""
COMPUTES = re.compile("explorer|conformance|wheel|heap|slab|queue|arithmetic|state_machine")
LIBRARY = "half_0.o half_1.o half_2.o support.o"
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
                                ("channels", "contexts", "descriptors", "events", "locks", "memory", "queues", "timers")]}
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
    return text + f"build tests/orders_test: link_orders {' '.join(objects)} {LIBRARY}\n"


def configure():
    """Not with CMake: the library is compiled in two pieces (some names are in two files), which takes a
    quarter of the time."""
    files = [p for p in sources() if p.endswith(".cc")]
    pieces = [files[0::2], files[1::2],
              sorted(str(p.relative_to(TREE)) for p in (TREE / "src").rglob("*.cc")
                     if str(p.relative_to(TREE)) not in files)]
    compiler = os.environ.get("CXX", "g++")
    text = f"""before = {WORK}/verge_mutants.h
rule compile
  command = {compiler} {' '.join(FLAGS)} -include $before $more -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = {compiler} $more -pthread $in {LIBRARIES} -o $out
"""
    for n, piece in enumerate(pieces):
        unity = WORK / f"half_{n}.cc"
        write_if_changed(unity, "".join(f'#include "{TREE}/{p}"\n' for p in piece).encode(), 0o644)
        text += f"build half_{n}.o: compile {unity}\n  more = -O1\n"
    text += orders_rules(compiler)
    for level in ("O0", "O1"):
        write_if_changed(WORK / f"headers_{level}.h", TEST_HEADERS.encode(), 0o644)
        text += (f"build {WORK}/headers_{level}.h.gch: compile {WORK}/headers_{level}.h\n"
                 f"  more = -{level} -x c++-header\n")
    for test in TESTS:
        if test == "orders_test" or "/" in test:
            continue
        level = "O1" if COMPUTES.search(test) else "O0"
        text += (f"build {test}.o: compile {sources_of(test)} | {WORK}/headers_{level}.h.gch\n"
                 f"  more = -{level}\n  before = {WORK}/headers_{level}.h\n")
        text += f"build tests/{test}: link {test}.o {LIBRARY}\n"
    asan_library = " ".join(f"asan_{o}" for o in LIBRARY.split())
    asan = "-O1 -fsanitize=address -fno-omit-frame-pointer"
    for name in (*(f"half_{n}" for n in range(len(pieces))), "support"):
        text += f"build asan_{name}.o: compile {WORK}/{name}.cc\n  more = {asan}\n"
    text += f"build support.o: compile {WORK}/support.cc\n  more = -O1\n"
    for test in SANITIZED:
        text += f"build asan_{test}.o: compile {sources_of(test)}\n  more = {asan}\n"
        text += (f"build asan/{test}: link asan_{test}.o {asan_library}\n"
                 f"  more = -fsanitize=address\n")
    write_if_changed(BUILD / "build.ninja", text.encode(), 0o644)


def path_of(test):
    return BUILD / (test if "/" in test else f"tests/{test}")


def build(jobs):
    """Builds, and leaves out the switches on lines that do not compile with them: excluded.json."""
    excluded = excluded_lines()
    for _ in range(40):
        mutants = generate(excluded)
        configure()
        done = subprocess.run(["ninja", "-C", BUILD, "-k", "0", f"-j{jobs}",
                               *(path_of(t).relative_to(BUILD) for t in TESTS)],
                              text=True, capture_output=True)
        if done.returncode == 0:
            return mutants
        # Every line that an error, or the note of a template that led to it, names, and those
        # around, which belong to the same expression.
        found = set()
        for path, line in re.findall(r"tree/((?:src|include|server)/[\w/.]+):(\d+):\d+: "
                                     r"(?:(?:fatal )?error|  required from)", done.stdout):
            lines = (ROOT / path).read_text().split("\n")
            for n in range(int(line) - 2, int(line) + 1):
                if 0 <= n < len(lines):
                    found.add(f"{path}: {lines[n].split('//')[0].strip()}")
        found -= excluded
        if not found:
            sys.exit("mutants: the build fails, and not because of a switch:\n" +
                     (done.stdout + done.stderr)[-4000:])
        print(f"mutants: {len(found)} lines do not take a switch", flush=True)
        excluded |= found
        file_beside("excluded.json").write_text(
            json.dumps(sorted(excluded), indent=0, ensure_ascii=False) + "\n")
    sys.exit("mutants: no end of lines that do not compile")


def limits(sanitized):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
    if not sanitized:  # the sanitizer maps terabytes
        resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))


def wanted(session):
    """The seconds that the processes of a session have used a processor, and whether a thread of them
    uses one now or waits for one."""
    used, runnable = 0.0, False
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            runnable |= any(t.read_text().rpartition(")")[2].split()[0] == "R"
                            for t in stat.parent.glob("task/*/stat"))
        except OSError:  # it has ended
            continue
    return used, runnable


def run(program, mutant=None, coverage=None, limit=300, computes=300, output=None, cases=None):
    env = dict(os.environ, VERGE_TEST_SCALE="quick", VERGE_STRESS_SECONDS="1")
    if mutant is not None:
        env["VERGE_MUTANT"] = str(mutant)
    if coverage:
        env["VERGE_MUTANT_COVERAGE"] = str(coverage)
    spent = 0.0
    arguments = ["--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={cases or FILTERS.get(program.name, '*')}"]
    child = subprocess.Popen([program, *arguments], env=env, cwd=WORK,
                             stdin=subprocess.DEVNULL, stdout=output or subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True,
                             preexec_fn=lambda: limits(program.parent.name == "asan"))
    # While all of it is stopped (SIGSTOP) no time passes. A program has no end if it has used a
    # processor for too long, or if its time is over and for a while it has wanted none. So a loaded
    # machine gives it more time.
    code, waited, last = "no end", 0.0, time.monotonic()
    look, before, quiet_since = 2.0, 0.0, 0.0
    while waited < 10 * limit:
        now = time.monotonic()
        waited, last = waited + min(now - last, 1), now
        pid, status, used = os.wait4(child.pid, os.WNOHANG)
        if pid != 0:
            child.returncode = code = os.waitstatus_to_exitcode(status)
            spent = used.ru_utime + used.ru_stime
            break
        if waited >= look:
            running, runnable = wanted(child.pid)
            if runnable or running - before > 0.1 * (waited - quiet_since):
                quiet_since, before = waited, running
            if running > computes or (waited > limit and waited - quiet_since > 10):
                break
            look = waited + 2
        time.sleep(0.005)
    try:
        os.killpg(child.pid, signal.SIGKILL)  # and what it has started
    except ProcessLookupError:
        pass
    child.wait()
    return code, waited, spent


def part_of(path):
    if path.startswith(("src/", "server/")):
        return path.split("/")[1]
    return "detail" if "/detail/" in path else "public"


def reached_file(test):
    return WORK / f"{test.replace('/', '_')}.reached"


class Coverage:
    """Which switches each case of a test comes by, and for how long it runs and uses a processor."""
    LONGEST_FILTER = 100000

    def __init__(self, file):
        self.cases, self.outside, self.nothing, switches = {}, set(), set(), set()
        for line in file.read_text().split("\n") if file.exists() else []:
            if line.startswith("!"):
                self.nothing.add(int(line[2:]))
                continue
            if not line.startswith("="):
                switches |= {int(line)} if line else set()
                continue
            _, name, seconds, spent = line.split("\t")
            if name:
                self.cases[name] = (switches, float(seconds), float(spent))
            else:
                self.outside |= switches
            switches = set()
        self.outside |= switches

    def __contains__(self, switch):
        return switch in self.outside or any(switch in c[0] for c in self.cases.values())

    def of(self, switch):
        """The cases that come by it, as a filter, and their seconds; None for the whole program."""
        found = {name: c for name, c in self.cases.items() if switch in c[0]}
        names = ":".join(found)
        if switch in self.outside or len(names) > self.LONGEST_FILTER:
            return None
        return names, sum(c[1] for c in found.values()), sum(c[2] for c in found.values())


def coverage_of(test, program):
    """The switches it comes by, how long it takes, and how much of a processor. None if it fails without
    a fault."""
    coverage = reached_file(test)
    coverage.unlink(missing_ok=True)
    code, seconds, spent = run(program, coverage=coverage)
    if code != 0:
        print(f"mutants: {test} fails without a fault ({code}), and is left out", flush=True)
        return None, seconds, spent
    return Coverage(coverage), seconds, spent


def sampled(pool, n, seed):
    """At least LEAST_OF_A_PART of each part, if it has so many, and the rest in proportion; in a small
    sample the same number of each."""
    chance = random.Random(seed)
    parts = {}
    for m in pool:
        parts.setdefault(part_of(m["file"]), []).append(m)
    least = min(LEAST_OF_A_PART, n // len(parts))
    chosen, left = [], []
    for name in sorted(parts):
        # Shuffled by a key of its own, so that a change elsewhere does not change all of it.
        order = sorted(parts[name], key=lambda m: random.Random(f"{seed} {m['key']}").random())
        chosen += order[:least]
        left += order[least:]
    left.sort(key=lambda m: random.Random(f"{seed} {m['key']}").random())
    chosen += left[:max(0, n - len(chosen))]
    chance.shuffle(chosen)
    return chosen


def failed_case(output):
    output.seek(0)
    found = re.findall(r"^\[  FAILED  \] ([\w./]+)", output.read().decode(errors="replace"), re.M)
    return found[0] if found else ""


def try_all(pool, reached, seconds, spent, jobs, minutes=0, quick=0, keep=lambda results: None):
    began = time.monotonic()
    results = []
    verdicts = beside("verdicts.json", {})

    def try_one(m):
        if minutes and time.monotonic() - began > 60 * minutes:
            return dict(m, outcome="not tried")
        if m["key"] in verdicts:
            return dict(m, outcome="equivalent", verdict=verdicts[m["key"]])
        cases = {t: reached[t].of(m["id"]) or ("", seconds[t], spent[t])
                 for t in reached if m["id"] in reached[t]}
        tests = sorted((t for t in cases if not quick or cases[t][2] < quick),
                       key=lambda t: (cases[t][2] >= SLOW, cases[t][1]))
        if not cases and any(m["id"] in c.nothing for c in reached.values()):
            return dict(m, outcome="equivalent", verdict="The operands have no such operator.")
        once = []
        for test in tests:
            def attempt(output):
                names, lasts, computes = cases[test]
                return run(path_of(test), m["id"], limit=max(15, 10 * lasts),
                           computes=max(10, 10 * computes), output=output, cases=names)[0]
            with tempfile.TemporaryFile() as output:
                code = attempt(output)
                if code == 0:
                    continue
                case = failed_case(output)
            # A loaded machine may make a test fail. One that had time and did not end has had more
            # than that.
            with tempfile.TemporaryFile() as output:
                if code == "no end" or attempt(output) != 0:
                    return dict(m, outcome="caught", by=test, how=code, case=case)
            once.append(test)
        return dict(m, outcome="survived" if tests else "not reached", tests=tests, once=once)

    with ThreadPoolExecutor(jobs) as workers:
        for done in as_completed([workers.submit(try_one, m) for m in pool]):
            results.append(done.result())
            keep(results)
    return results


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", default="100")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--part", help="only of these, with commas")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--list", action="store_true")
    options.add_argument("--again", action="store_true", help="only what was not caught the last time")
    options.add_argument("--open", action="store_true", help="what earlier runs left open: open.json")
    options.add_argument("--by-hand", action="store_true", help="the faults of by_hand.json")
    options.add_argument("--fixed", action="store_true", help="only the few of sample.json, which must be caught")
    options.add_argument("--build", action="store_true", help="only build")
    options.add_argument("--built", action="store_true", help="with the tests that were built before")
    options.add_argument("--share", default="0/1", help="of several runs side by side, which: 0/2, 1/2")
    options.add_argument("--report", action="store_true", help="only the table of what was tried")
    options.add_argument("--tests", help="only these, with commas")
    options.add_argument("--quick", type=float, default=0,
                         help="without the tests whose cases that come by the fault use a processor for so many "
                              "seconds: a first run, before one with --again")
    options.add_argument("--minutes", type=float, default=0, help="begin no more after so many")
    chosen = options.parse_args()
    share, shares = map(int, chosen.share.split("/"))
    tried = WORK / ("tried.json" if shares == 1 else f"tried_{share}.json")
    if chosen.fixed:
        return try_fixed_sample()
    if chosen.list:
        for m in generate(excluded_lines()):
            print(m["id"], f"{m['file']}:{m['line']}", m["kind"], m["text"], sep="\t")
        return
    if chosen.report:
        return report(generate(excluded_lines()),
                      sum((json.loads(p.read_text()) for p in sorted(WORK.glob("tried*.json"))), []))
    TESTS[:] = chosen.tests.split(",") if chosen.tests else TESTS + [f"asan/{t}" for t in SANITIZED]
    mutants = generate(excluded_lines()) if chosen.built else build(chosen.jobs)
    print(f"mutants: {len(mutants)} in all", flush=True)
    if chosen.build:
        return

    kept = WORK / "coverage.json"
    reached, seconds, spent = {}, {}, {}
    if chosen.built and kept.exists():
        seconds, spent = json.loads(kept.read_text())
        reached = {t: Coverage(reached_file(t)) for t in seconds}
        TESTS[:] = [t for t in TESTS if t not in reached]
    there = [t for t in TESTS if path_of(t).exists()]
    with ThreadPoolExecutor(chosen.jobs) as workers:
        for test, (found, seconds[test], spent[test]) in zip(there, workers.map(
                lambda t: coverage_of(t, path_of(t)), there)):
            if found is not None:
                reached[test] = found
    kept.write_text(json.dumps([{t: seconds[t] for t in reached}, {t: spent[t] for t in reached}]))
    print("mutants: seconds of each test: " +
          ", ".join(f"{t} {seconds[t]:.1f}" for t in sorted(reached, key=seconds.get)), flush=True)

    parts = chosen.part.split(",") if chosen.part else []
    pool = [m for m in mutants if not parts or part_of(m["file"]) in parts]
    if chosen.open:
        still = set(open_ones())
        pool = [m for m in pool if m["key"] in still]
    elif chosen.by_hand:
        pool = [m for m in pool if m["kind"] == "by hand"]
    elif chosen.sample != "all":
        pool = [m for m in pool if m["kind"] != "by hand"]
        pool = sampled(pool, int(chosen.sample), chosen.seed)
    pool = pool[share::shares]
    before = {m["key"]: m for m in json.loads(tried.read_text())} if chosen.again and tried.exists() else {}
    known = [dict(before[m["key"]], id=m["id"], line=m["line"]) for m in pool
             if before.get(m["key"], {}).get("outcome") == "caught"]
    pool = [m for m in pool if before.get(m["key"], {}).get("outcome") != "caught"]
    print(f"mutants: to try: {len(pool)}", flush=True)

    def keep(results):
        tried.write_text(json.dumps(known + results, indent=1))
    report(mutants, known + try_all(pool, reached, seconds, spent, chosen.jobs, chosen.minutes, chosen.quick,
                                    keep))


def file_beside(name):
    return pathlib.Path(__file__).with_name(BESIDE + name)


def beside(name, otherwise):
    file = file_beside(name)
    return json.loads(file.read_text()) if file.exists() else otherwise


def fixed_sample():
    """Faults that are known to be caught, by the test that catches each: sample.json."""
    return beside("sample.json", {})


def build_fixed_sample():
    """Its tests need little of the library: so all of them, and that, are one file, which takes a few
    seconds. Returns the program, and the number of each switch."""
    files = {key.split(":")[0] for keys in fixed_sample().values() for key in keys}
    mutants = generate(excluded_lines(), files)
    whole = WORK / "sample.cc"
    parts = [sources_of(t) for t in fixed_sample()] + [TREE / f for f in sorted(files) if f.endswith(".cc")]
    write_if_changed(whole, "".join(f'#include "{p}"\n' for p in [*parts, WORK / "support.cc"]).encode(), 0o644)
    program = WORK / "sample"
    command = [*os.environ.get("CXX", "g++").split(), *FLAGS, "-O0", "-include", WORK / "verge_mutants.h"]
    for step in ([*command, "-c", whole, "-o", f"{program}.o"],
                 [*command[:-2], f"{program}.o", "-lgtest", "-lgtest_main", "-o", program]):
        done = subprocess.run(step, text=True, capture_output=True)
        if done.returncode != 0:
            sys.exit("mutants: the build fails; if a new line does not take a switch, "
                     "tests/mutants/mutants.py --build learns that:\n" + done.stderr[-4000:])
    return program, {m["key"]: m["id"] for m in mutants}


def try_fixed_sample():
    """Checks that each test of the sample passes, and finds its faults."""
    program, numbers = build_fixed_sample()
    missed, tried = [], 0
    for test, keys in fixed_sample().items():
        suites = re.findall(r"^TEST(?:_[FP])?\((\w+),", sources_of(test).read_text(), re.M)
        FILTERS[program.name] = ":".join(f"*{suite}.*" for suite in sorted(set(suites)))
        code = run(program)[0]
        if code != 0:
            sys.exit(f"mutants: {test} fails without a fault: {code}")
        for key in keys:
            tried += 1
            if key not in numbers:
                missed.append(f"no longer in the sources, choose another: {key}")
            elif run(program, numbers[key], limit=60, computes=20)[0] == 0:
                missed.append(f"not caught by {test}: {key}")
    if missed:
        sys.exit("\n".join(f"mutants: {m}" for m in missed))
    print(f"mutants: all {tried} of the fixed sample are caught")


def open_ones():
    return beside("open.json", [])


def keep_open(mutants, results):
    """Those of before that are still in the sources, and those of this run, that are neither caught
    nor have a verdict."""
    settled = {m["key"] for m in results if m["outcome"] in ("caught", "equivalent")}
    settled |= set(beside("verdicts.json", {}))
    there = {m["key"] for m in mutants}
    found = {m["key"] for m in results if m["outcome"] in ("survived", "not reached")}
    left = sorted((found | (set(open_ones()) & there)) - settled)
    file_beside("open.json").write_text(
        json.dumps(left, indent=0, ensure_ascii=False) + "\n")


def judged(results):
    """With the verdicts of those that change nothing."""
    verdicts = beside("verdicts.json", {})
    for m in results:
        if m["outcome"] in ("survived", "not reached") and m["key"] in verdicts:
            m["outcome"], m["verdict"] = "equivalent", verdicts[m["key"]]
    return results


def report(mutants, results):
    results = judged(results)
    keep_open(mutants, results)
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
