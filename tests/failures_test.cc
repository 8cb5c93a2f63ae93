// SPDX-License-Identifier: Apache-2.0

// A process in which a request for memory, a mapping, a thread or a descriptor fails: the nth, and
// some after it, for every n. The result is an exception of the documented kind, or nothing; and
// everything else continues to work. Each life is a separate process.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <verge/chan.h>
#include <verge/context.h>
#include <verge/net.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/timeout.h>
#include <verge/under.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <support/failures.h>
#include <support/scale.h>
#include <support/sockets.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using test::resource;

/// Failures without a caller to throw to.
std::atomic<int> others{0};
void note_other(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (const std::bad_alloc&) {
    ++others;
  } catch (const std::system_error&) {
    ++others;
  } catch (...) {
    std::_Exit(12);
  }
}

void use_timers() {
  std::vector<verge::timer> timers;
  for (int i = 0; i < 5; ++i) timers.push_back(after_func(10s, [] {}));
  for (auto& t : timers) t.reset(20s);
  timers.push_back(after_func(10s, [p = std::make_shared<int>(1), q = std::string(50, 'x')] {}));
  timers.emplace_back(10s);
  timers.front().stop();
  for (const auto policy : {missed_ticks::skip, missed_ticks::burst, missed_ticks::delay}) {
    const ticker t(1ms, policy);
    if (!t.c().recv()) std::_Exit(20);
  }
  const ticker calls = every(1ms, [] {});
  const auto ticks = tick(1ms);
  if (!after(1us).recv() || !ticks.recv()) std::_Exit(21);
  verge::sleep(1us).wait();
}

task<> use_sockets() {
  auto [near, far] = co_await test::connected();
  near.set_deadline(clock::now() + 10s);
  (co_await near.write_all("hello")).or_throw();
  test::bytes64 bytes{};
  const auto n = (co_await far.read_some(bytes)).or_throw();
  if (test::text(bytes, n) != "hello") std::_Exit(22);
}

task<int> answer() {
  co_await verge::sleep(1us);
  co_return 42;
}

task<> use_tasks() {
  const chan<int> c(1);
  const chan<int> none;
  auto sends = go([c]() -> task<> { co_await verge::send(c, 1); });
  co_await sends;
  int got = 0;
  co_await select(recv(c, [&](std::optional<int> v) { got = v.value_or(0); }), recv(none));
  if (got != 1) std::_Exit(23);
  if (co_await timeout(answer(), 10s) != 42) std::_Exit(24);
  if (co_await go(answer()) != 42) std::_Exit(25);
  co_await go(&use_timers);

  auto [parent, cancel_parent] = with_cancel(background());
  auto [ctx, cancel] = with_timeout(parent, 10s);
  const auto when_done = after_func(ctx, [] {});
  cancel_parent();
  co_await recv(ctx.done());
}

/// On the default runtime, which exists from its first use to the end of the process.
void live_by_default() {
  use_timers();
  std::exception_ptr of_thread;
  std::thread([&] {
    try {
      use_timers();
    } catch (...) {
      of_thread = std::current_exception();
    }
  }).join();
  if (of_thread) std::rethrow_exception(of_thread);
  default_runtime().run(use_tasks());
}

/// Everything once.
void live(engine e) {
  if (e == engine::hybrid) live_by_default();
  auto rt = std::make_unique<runtime>(
      runtime_options{.processors = 2, .engine = e, .on_exception = &note_other});
  rt->run(&use_timers);
  rt->run(use_tasks());
  rt->run(use_sockets());
  rt->set_processors(4);
  static_cast<void>(rt->stats());
  rt->run(use_tasks());
  auto left = rt->run([] { return verge::timer(10s); });
  rt.reset();

  rt = std::make_unique<runtime>(
      runtime_options{.processors = 1, .engine = e, .on_exception = &note_other});
  std::atomic<bool> ended{false};
  rt->spawn([&] {  // a runtime that its own task destroys
      rt.reset();
      ended = true;
    })
      .detach();
  while (!ended) std::this_thread::yield();
}

/// How a process ended in which requests [first, first + in_a_row) failed.
enum outcome : int { unharmed = 0, not_reached = 1, refused = 2 };

pid_t begin_life(engine e, resource kind, long first, long in_a_row) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(120);
    outcome how = unharmed;
    test::fail(kind, first, in_a_row);
    try {
      live(e);
    } catch (const std::bad_alloc&) {
      how = refused;
    } catch (const std::system_error&) {
      how = refused;
    } catch (...) {
      std::_Exit(10);
    }
    const bool reached = test::has_failed();
    test::fail_no_more();
    try {
      live(e);  // and all of it works
    } catch (...) {
      std::_Exit(11);
    }
    std::exit(reached ? how : not_reached);  // not _Exit: leaks are checked at the end
  }
  return pid;
}

int end_of_life(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

class a_life : public testing::TestWithParam<std::tuple<engine, long>> {
 protected:
  static void with_every_failure_of(resource kind) {
    const engine e = std::get<0>(GetParam());
    const long in_a_row = std::get<1>(GetParam());
    int refusals = 0;
    int unharmed_lives = 0;
    const auto ends_well = [&](long n, pid_t life) {
      const int how = end_of_life(life);
      EXPECT_LE(how, 2) << "request " << n << ", " << in_a_row << " in a row";
      if (how == refused) ++refusals;
      if (how == unharmed) ++unharmed_lives;
      return how == refused || how == unharmed;
    };
    // All of them with the default engine; every second one with each of the others. Half as many
    // of several in a row, which are all of them still. Lives mostly wait, so a few run at a time.
    constexpr std::size_t at_a_time = 3;
    const long each = e == engine::hybrid ? test::scale(1, 7) : test::scale(2, 14);
    const long step = in_a_row > 1 ? 2 * each : each;
    std::deque<std::pair<long, pid_t>> lives;
    for (long n = e != engine::hybrid && in_a_row > 1 ? 2 : 1;; n += step) {
      lives.emplace_back(n, begin_life(e, kind, n, in_a_row));
      if (lives.size() < at_a_time) continue;
      const auto [first, life] = lives.front();
      lives.pop_front();
      if (!ends_well(first, life)) break;  // no request was left to fail
    }
    for (const auto& [first, life] : lives) ends_well(first, life);
    EXPECT_GT(refusals + unharmed_lives, 0);
    std::cout << refusals << " failures threw, " << unharmed_lives << " did no harm\n";
  }
};

TEST_P(a_life, continues_without_memory) { with_every_failure_of(resource::memory); }
TEST_P(a_life, continues_without_mappings) { with_every_failure_of(resource::mapping); }
TEST_P(a_life, continues_without_threads) { with_every_failure_of(resource::thread); }
TEST_P(a_life, continues_without_descriptors) { with_every_failure_of(resource::descriptor); }

INSTANTIATE_TEST_SUITE_P(engines, a_life,
                         testing::Combine(testing::ValuesIn(engines().begin(), engines().end()),
                                          testing::Values(1, 5)),
                         [](const auto& p) {
                           return std::string(name_of(std::get<0>(p.param))) + "_" +
                                  std::to_string(std::get<1>(p.param)) + "_in_a_row";
                         });

/// Waits, throws whatever ends the wait, and says whether it is under way.
task<> hold(std::atomic<int>& under_way) {
  struct counted {
    std::atomic<int>& n;
    explicit counted(std::atomic<int>& count) : n(count) { ++n; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { --n; }
  };
  const counted c(under_way);
  co_await verge::sleep(1h);
}

/// Starts a task under a limit once for every request for memory, which fails.
template <class Limited>
task<> with_every_failure(Limited limited, std::atomic<int>& under_way, int& failures) {
  for (long n = 1;; ++n) {
    test::fail(resource::memory, n, 1);
    try {
      co_await limited();
    } catch (const std::bad_alloc&) {
      ++failures;
    } catch (const timed_out&) {
    } catch (const context_error&) {
    }
    const bool done = !test::has_failed();
    test::fail_no_more();
    EXPECT_EQ(under_way, 0) << "request " << n;
    co_await yield();  // what was left to run begins
    EXPECT_EQ(under_way, 0) << "request " << n;
    if (done) co_return;
  }
}

// The limit is set after the task has been started: if that fails, the task is ended, not let go.
TEST(a_limit_that_cannot_be_set, ends_the_task_before_it_throws) {
  others = 0;
  runtime rt({.processors = 1, .on_exception = &note_other});
  std::atomic<int> under_way{0};
  int failures = 0;
  const auto in_time = [&] { return timeout(hold(under_way), 1ms); };
  rt.run(with_every_failure(in_time, under_way, failures));
  EXPECT_GT(failures, 2);
  failures = 0;
  const auto in_context = [&]() -> task<> {
    auto [ctx, cancel] = with_timeout(background(), 1ms);
    co_await under(ctx, hold(under_way));
  };
  rt.run(with_every_failure(in_context, under_way, failures));
  EXPECT_GT(failures, 2);
  EXPECT_EQ(others, 0);
}

}  // namespace
}  // namespace verge
