// SPDX-License-Identifier: Apache-2.0

// A task has ended after all of its code has run, on any thread.

#include <gtest/gtest.h>
#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/task.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <exception>
#include <thread>

#include <support/lone_engine.h>
#include <support/patience.h>
#include <support/stepper.h>

namespace verge {
namespace {

using namespace std::chrono_literals;
using test::eventually;

/// Receives, and stays in the coroutine's code for a while when another thread could already resume
/// it.
class lingering_receive {
 public:
  lingering_receive(const chan<int>& c, std::atomic<bool>& lingers, const std::atomic<bool>& leave)
      : receive_(from_(c)), lingers_(lingers), leave_(leave) {}

  bool await_ready() const { return receive_.await_ready(); }
  bool await_suspend(std::coroutine_handle<> h) {
    std::atomic<bool>& lingers = lingers_;  // this may be destroyed once the coroutine can resume
    const std::atomic<bool>& leave = leave_;
    const bool suspended = receive_.await_suspend(h);
    lingers = true;
    while (!leave) std::this_thread::yield();
    return suspended;
  }
  auto await_resume() { return receive_.await_resume(); }

 private:
  using operation = detail::recv_operation<int>;
  operation& from_(const chan<int>& c) { return operation_ = operation(c); }

  operation operation_{chan<int>()};
  detail::operation_awaiter<operation::action> receive_;
  std::atomic<bool>& lingers_;
  const std::atomic<bool>& leave_;
};

TEST(join, waits_for_the_worker_that_the_task_was_suspended_on_to_leave_its_code) {
  runtime rt({.processors = 2});
  const chan<int> c(0);
  std::atomic<bool> lingers{false};
  std::atomic<bool> leave{false};
  std::atomic<bool> went_on{false};
  auto h = rt.spawn([&]() -> task<> {
    lingering_receive receive(c, lingers, leave);
    co_await receive;
    went_on = true;
  });
  ASSERT_TRUE(eventually([&] { return lingers.load(); }));
  c.send(1);
  ASSERT_TRUE(eventually([&] { return went_on.load(); }));
  bool ended_before = false;
  for (int i = 0; i < 100 && !ended_before; ++i) {
    std::this_thread::sleep_for(100us);  // for an end that must not come
    ended_before = h.done();
  }
  EXPECT_FALSE(ended_before);
  leave = true;
  h.join();
}

/// A task whose code goes on after it has said that it has ended: as all code does that returns.
class ends_before_it_returns final : public detail::spawned_base {
 public:
  ends_before_it_returns(detail::scheduler& s, bool& ended_inside)
      : spawned_base(s, "", nullptr), ended_inside_(ended_inside) {}

 private:
  void begin() noexcept override {
    finish();
    ended_inside_ = ended.fired();
  }
  void destroy_work() noexcept override {}
  void set_error(std::exception_ptr) noexcept override {}
  std::exception_ptr take_error() noexcept override { return nullptr; }

  bool& ended_inside_;
};

/// A scheduler that lets the handle of a task go while it is told that the task has ended.
class lets_go final : public test::lone_engine {
 public:
  lets_go() : lone_engine(engine::hybrid) {}
  void job_ended(detail::job& j) noexcept override {
    static_cast<detail::spawned_base&>(j).drop_handle();
  }
  void unhandled(std::exception_ptr e) noexcept override {
    try {
      std::rethrow_exception(e);
    } catch (int thrown) {
      unhandled_ = thrown;
    }
  }
  int unhandled_ = 0;
};

TEST(a_task, whose_handle_is_destroyed_as_it_ends_passes_its_exception_on) {
  lets_go s;
  class throws final : public detail::spawned<int> {
   public:
    explicit throws(detail::scheduler& of) : spawned(of, "", nullptr) {}

   private:
    void begin() noexcept override {
      set_error(std::make_exception_ptr(7));
      finish();
    }
    void destroy_work() noexcept override {}
  };
  (new throws(s))->launch();
  EXPECT_EQ(s.unhandled_, 7);
}

TEST(a_task, has_not_ended_while_its_code_returns) {
  test::stepper s;
  bool ended_inside = true;
  auto* const t = new ends_before_it_returns(s, ended_inside);
  t->launch();
  s.run();
  EXPECT_FALSE(ended_inside);
  EXPECT_TRUE(t->ended.fired());
  t->drop_handle();
}

}  // namespace
}  // namespace verge
