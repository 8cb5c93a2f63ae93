// SPDX-License-Identifier: Apache-2.0

// Stalls of threads that hold a lock which a report must not need: the allocator's, the dynamic
// linker's.
//
// The allocator is replaced by one that knows when it is called again while it is at work: a
// handler of a signal that allocates would wait for itself there.

#include <verge/stall.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>
#include <support/patience.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

#include <sched/thread_probe.h>

// NOLINTBEGIN(bugprone-reserved-identifier): the C library's own
extern "C" {
void* __libc_malloc(std::size_t n) noexcept;
void* __libc_calloc(std::size_t n, std::size_t size) noexcept;
void* __libc_realloc(void* p, std::size_t n) noexcept;
void __libc_free(void* p) noexcept;
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {

std::atomic<bool> reported = false;
std::atomic<int> called_again = 0;
thread_local constinit bool allocator_shall_hang = false;
thread_local constinit bool allocator_is_at_work = false;

/// With the allocator's lock held, as it were, until the stall was reported.
void in_allocator() noexcept {
  if (allocator_is_at_work) ++called_again;
  if (!allocator_shall_hang) return;
  allocator_shall_hang = false;
  allocator_is_at_work = true;
  while (!reported) {
  }
  allocator_is_at_work = false;
}

}  // namespace

extern "C" {
void* malloc(std::size_t n) noexcept {
  in_allocator();
  return __libc_malloc(n);
}
void* calloc(std::size_t n, std::size_t size) noexcept {
  in_allocator();
  return __libc_calloc(n, size);
}
void* realloc(void* p, std::size_t n) noexcept {
  in_allocator();
  return __libc_realloc(p, n);
}
void free(void* p) noexcept {
  in_allocator();
  __libc_free(p);
}
}

namespace {

using namespace std::chrono_literals;
using verge::test::eventually;

/// One report, and its text: names are looked up while the lock is held.
struct report {
  std::mutex lock;
  verge::stall got;
  std::string text;

  std::function<void(const verge::stall&)> handler() {
    return [this](const verge::stall& s) {
      const std::lock_guard held(lock);
      got = s;
      text = verge::to_string(s);
      reported = true;
    };
  }
};

/// Runs f as a callback of a runtime, and waits until its stall was reported.
template <class F>
report* stall_of(F f) {
  static report r;
  reported = false;
  verge::runtime rt({.processors = 2, .stall_after = 20ms, .on_stall = r.handler()});
  std::atomic<bool> ended = false;
  const auto t = verge::after_func(rt, 1ms,
                                   [&] {
                                     f();
                                     ended = true;
                                   },
                                   {.label = "with a lock"});
  EXPECT_TRUE(eventually([&] { return ended.load(); })) << "the report waits for what it reports";
  return &r;
}

TEST(stall, of_a_thread_inside_the_allocator_is_reported_and_allocates_nothing_there) {
  called_again = 0;
  const report* r = stall_of([] {
    allocator_shall_hang = true;
    free(malloc(100));
  });
  EXPECT_EQ(r->got.label, "with a lock");
  EXPECT_GE(r->got.backtrace.size(), 4);
  EXPECT_THAT(r->text, testing::HasSubstr("malloc"));
  EXPECT_EQ(called_again, 0) << "the handler of the signal has called the allocator";
}

int hold_until_reported(dl_phdr_info* /*info*/, std::size_t /*size*/, void* /*arg*/) {
  while (!reported) {
  }
  return 1;
}

TEST(stall, of_a_thread_that_has_the_dynamic_linkers_lock_is_reported) {
  const report* r = stall_of([] { dl_iterate_phdr(&hold_until_reported, nullptr); });
  EXPECT_EQ(r->got.label, "with a lock");
  EXPECT_THAT(r->text, testing::HasSubstr("hold_until_reported"));
}

TEST(stall, is_reported_while_another_thread_has_the_dynamic_linkers_lock) {
  std::atomic<bool> held = false;
  std::thread other;
  const report* r = stall_of([&] {
    other = std::thread([&] {
      dl_iterate_phdr(
          [](dl_phdr_info*, std::size_t, void* is_held) {
            *static_cast<std::atomic<bool>*>(is_held) = true;
            return hold_until_reported(nullptr, 0, nullptr);
          },
          &held);
    });
    while (!held) {
    }
    while (!reported) {
    }
  });
  other.join();
  EXPECT_EQ(r->got.label, "with a lock");
  EXPECT_GE(r->got.backtrace.size(), 2) << "the unwinder has waited for the lock";
}

std::atomic<bool> handler_may_go_on = false;

// As if the unwinder did wait for something. What the thread runs, and where it is, is known
// before.
TEST(stall, what_is_known_is_reported_if_the_handler_does_not_end_and_nothing_waits_for_it) {
  using verge::detail::thread_probe;
  thread_probe::before_unwinding = +[]() noexcept {
    while (!handler_may_go_on) {
    }
  };
  static report first;
  static report second;
  std::atomic<bool> stop = false;
  {
    verge::runtime rt({.processors = 1, .stall_after = 20ms, .on_stall = first.handler()});
    reported = false;
    auto stuck = rt.spawn([&] {
      while (!stop) {
      }
    });
    ASSERT_TRUE(eventually([] { return reported.load(); }));
    EXPECT_TRUE(first.got.is_task);
    EXPECT_EQ(first.got.backtrace.size(), 1);
    // Another runtime's stall is reported, without what cannot be asked.
    verge::runtime other({.processors = 1, .stall_after = 20ms, .on_stall = second.handler()});
    reported = false;
    auto too = other.spawn([&] {
      while (!stop) {
      }
    });
    ASSERT_TRUE(eventually([] { return reported.load(); }));
    EXPECT_EQ(second.got.what, "?");
    handler_may_go_on = true;
    stop = true;
    stuck.join();
    too.join();
  }
  thread_probe::before_unwinding = nullptr;
  // And from then on all is as before.
  const report* r = stall_of([] {
    while (!reported) {
    }
  });
  EXPECT_EQ(r->got.label, "with a lock");
  EXPECT_GE(r->got.backtrace.size(), 2);
}

}  // namespace
