// SPDX-License-Identifier: Apache-2.0

// Waiting under a context: every wait ends when the context is done.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <verge/context.h>
#include <verge/fd.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/timeout.h>
#include <verge/under.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include <context/scope.h>
#include <support/patience.h>
#include <support/scale.h>

namespace {

using namespace verge;
using namespace std::chrono_literals;
using test::eventually;
using test::scale;

TEST(under, ends_every_kind_of_wait) {
  simulation sim;
  sim.run([]() -> task<> {
    auto [ctx, cancel] = with_timeout(background(), 1s);
    chan<int> ch;
    auto h = go([c = ctx]() -> task<> {
      co_await verge::recv(c.done());
      co_await verge::sleep(1h);
    });
    EXPECT_THROW(co_await under(ctx, verge::recv(ch)), context_error);
    EXPECT_THROW(co_await under(ctx, verge::send(ch, 1)), context_error);
    auto [second, cancel_second] = with_timeout(background(), 1s);
    EXPECT_THROW(co_await under(second, verge::select(verge::recv(ch))), context_error);
    auto [third, cancel_third] = with_timeout(background(), 1s);
    EXPECT_THROW(co_await under(third, verge::sleep(1h)), context_error);
    auto [fourth, cancel_fourth] = with_timeout(background(), 1s);
    EXPECT_THROW(co_await under(fourth, std::move(h)), context_error);
    EXPECT_FALSE(ch.try_send(1)) << "nothing waits any more";
    EXPECT_FALSE(ch.try_recv());
  });
}

TEST(under, ends_a_wait_of_a_plain_thread) {
  auto [ctx, cancel] = with_cancel(background());
  chan<int> ch;
  std::jthread waits(
      [&, c = ctx] { EXPECT_THROW(under(c, verge::recv(ch)).wait(), context_error); });
  EXPECT_TRUE(eventually([&, c = ctx] { return !detail::context_access::scope(c)->is_leaf(); }));
  cancel();
  waits.join();
  EXPECT_FALSE(ch.try_send(1));
}

TEST(under, returns_the_result_of_an_operation_that_completes_first) {
  simulation sim;
  auto [ctx, cancel] = with_cancel(background());
  chan<int> ch(1);
  ch.send(1);
  EXPECT_EQ(*under(ctx, verge::recv(ch)).wait(), 1) << "at once";
  const auto later = after_func(1s, [&] { ch.send(2); });
  EXPECT_EQ(*under(ctx, verge::recv(ch)).wait(), 2) << "after a wait";
  EXPECT_TRUE(detail::context_access::scope(ctx)->is_leaf());
  EXPECT_TRUE(under(background(), verge::recv(verge::after(1s))).wait());
}

TEST(under, says_why_the_context_is_done) {
  simulation sim;
  const std::error_code out_of_paper = std::make_error_code(std::errc::no_space_on_device);
  auto [ctx, cancel] = with_timeout(background(), 1s, out_of_paper);
  try {
    under(ctx, verge::sleep(1h)).wait();
    ADD_FAILURE() << "it slept for an hour";
  } catch (const context_error& e) {
    EXPECT_EQ(e.code(), context_errc::deadline_exceeded);
    EXPECT_EQ(e.cause(), out_of_paper);
    EXPECT_THAT(e.what(), testing::HasSubstr("deadline"));
  }
  auto [other, cancel_other] = with_cancel(background());
  cancel_other();
  EXPECT_THAT(([c = other] { under(c, verge::sleep(1h)).wait(); }),
              testing::ThrowsMessage<context_error>(testing::HasSubstr("was cancelled")));
}

TEST(under, ends_a_task_that_is_not_joined_silently) {
  simulation sim({.on_exception = [](const std::exception_ptr&) { ADD_FAILURE(); }});
  auto [ctx, cancel] = with_timeout(background(), 1s);
  go([c = ctx]() -> task<> { co_await under(c, verge::sleep(1h)); }).detach();
  sim.run_for(2s);
}

TEST(under, does_not_begin_what_comes_too_late) {
  auto [ctx, cancel] = with_cancel(background());
  cancel();
  chan<int> ch(1);
  ch.send(1);
  EXPECT_THROW(under(ctx, verge::recv(ch)).wait(), context_error);
  EXPECT_EQ(ch.size(), 1u);
}

TEST(under, tells_which_of_several_limits_ended_it) {
  simulation sim;
  chan<int> ch;
  auto [far, cancel_far] = with_timeout(background(), 1h);
  auto [near, cancel_near] = with_timeout(background(), 1s);
  const auto start = sim.now();
  EXPECT_THROW(under(far, under(near, verge::recv(ch))).wait(), context_error);
  EXPECT_EQ(sim.now() - start, 1s);
  auto [nearer, cancel_nearer] = with_timeout(background(), 1s);
  EXPECT_THROW(under(nearer, under(far, verge::recv(ch))).wait(), context_error);
  EXPECT_EQ(sim.now() - start, 2s);
  EXPECT_THROW(under(far, verge::timeout(verge::recv(ch), 1s)).wait(), timed_out);
  EXPECT_THROW(verge::timeout(under(far, verge::recv(ch)), 1s).wait(), timed_out);
  EXPECT_EQ(sim.now() - start, 4s);
  const auto soon = after_func(1s, [c = std::move(cancel_far)] { c(); });
  EXPECT_THROW(verge::timeout(under(far, verge::recv(ch)), 1h).wait(), context_error);
  EXPECT_EQ(sim.now() - start, 5s);
  EXPECT_FALSE(ch.try_send(1));
}

TEST(under, cancels_a_task_and_waits_for_its_end) {
  simulation sim;
  sim.run([]() -> task<> {
    bool cleaned_up = false;
    const auto work = [](bool& clean) -> task<int> {
      try {
        co_await verge::sleep(1h);
      } catch (const cancelled&) {
        clean = true;
        throw;
      }
      co_return 1;
    };
    auto [ctx, cancel] = with_timeout(background(), 1s);
    EXPECT_THROW(co_await under(ctx, work(cleaned_up)), context_error);
    EXPECT_TRUE(cleaned_up);
    auto [other, cancel_other] = with_timeout(background(), 2h);
    EXPECT_EQ(co_await under(other, work(cleaned_up)), 1);
    cancel_other();
    EXPECT_THROW(co_await under(other, work(cleaned_up)), context_error) << "it does not begin";
  });
}

TEST(under, lets_the_cancellation_of_its_task_win) {
  simulation sim;
  sim.run([]() -> task<> {
    auto [ctx, cancel] = with_timeout(background(), 1h);
    auto waits = go([c = ctx]() -> task<> { co_await under(c, verge::sleep(2h)); });
    auto works = go([c = ctx]() -> task<> {
      co_await under(c, [](int) -> task<> { co_await verge::sleep(2h); }(1));
    });
    co_await verge::sleep(1s);
    waits.cancel();
    works.cancel();
    EXPECT_THROW(co_await waits, cancelled);
    EXPECT_THROW(co_await works, cancelled);
    EXPECT_FALSE(ctx.err());
    EXPECT_TRUE(detail::context_access::scope(ctx)->is_leaf());
  });
}

TEST(under, leaves_nothing_behind_when_its_runtime_ends) {
  auto [ctx, cancel] = with_cancel(background());
  {
    runtime rt({.processors = 2});
    rt.spawn([c = ctx]() -> task<> { co_await under(c, verge::sleep(1h)); }).detach();
    ASSERT_TRUE(eventually([&, c = ctx] { return !detail::context_access::scope(c)->is_leaf(); }));
  }
  EXPECT_TRUE(detail::context_access::scope(ctx)->is_leaf());
}

TEST(under, ends_what_waits_for_a_descriptor) {
  runtime rt({.processors = 2});
  rt.run([]() -> task<> {
    auto [from, to] = make_pipe().or_throw();
    std::array<char, 8> bytes{};
    {
      auto [ctx, cancel] = with_timeout(background(), 1ms);
      const io_result got = co_await under(ctx, from.read_some(bytes));
      EXPECT_EQ(got.error, context_errc::deadline_exceeded);
    }
    auto [ctx, cancel] = with_cancel(background());
    EXPECT_TRUE(co_await to.write_all("ab"));
    EXPECT_EQ((co_await under(ctx, from.read_some(bytes))).or_throw(), 2u) << "at once";
    auto reads = go([&from = from, &bytes, c = ctx]() -> task<std::size_t> {
      co_return (co_await under(c, from.read_full(bytes))).or_throw();
    });
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(co_await to.write_all("ab"));  // a hint each
      co_await verge::sleep(1ms);
    }
    EXPECT_EQ(co_await reads, 8u);
    EXPECT_TRUE(detail::context_access::scope(ctx)->is_leaf());
    auto waits = go([&from = from, &bytes, c = ctx]() -> task<io_result> {
      co_return co_await under(c, from.read_full(bytes));
    });
    EXPECT_TRUE(co_await to.write_all("ab"));
    co_await verge::sleep(1ms);
    cancel();
    EXPECT_EQ((co_await waits).error, context_errc::cancelled);
    EXPECT_TRUE(co_await to.write_all("ab"));
    EXPECT_GE((co_await from.read_some(bytes)).or_throw(), 2u) << "free for another";
  });
}

TEST(under, a_context_and_what_comes_on_a_descriptor_race) {
  runtime rt({.processors = 2});
  rt.run([]() -> task<> {
    auto [from, to] = make_pipe().or_throw();
    std::array<char, 1> byte{};
    const int rounds = scale(2000, 200);
    int received = 0;
    for (int i = 0; i < rounds; ++i) {
      auto [ctx, cancel] = with_cancel(background());
      auto writes = go([&to = to]() -> task<> { EXPECT_TRUE(co_await to.write_all("a")); });
      auto cancels = go([c = std::move(cancel)] { c(); });
      received += (co_await under(ctx, from.read_some(byte))).bytes == 1;
      co_await writes;
      co_await cancels;
    }
    to.close();
    while (co_await from.read_some(byte)) ++received;
    EXPECT_EQ(received, rounds) << "nothing is lost";
  });
}

}  // namespace
