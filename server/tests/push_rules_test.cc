// SPDX-License-Identifier: Apache-2.0

// The rules of pushing, in the broker and in simulated time: no receiver is needed for them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <verge/chan.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>

#include "broker/committer.h"
#include "support/lab.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;
using testing::ElementsAre;

/// As the part that sends is to the broker.
class sender final : public client {
 public:
  sender() : client(leases::internal) {}
  void deliver(reply r) override { replies.push_back(std::move(r)); }
  void flush() noexcept override {}
  void left() noexcept override {}
  std::vector<reply> heard() { return std::exchange(replies, {}); }
  std::vector<reply> replies;
};

push_settings settings(const std::string& url, std::uint32_t max_attempts = 10) {
  push_settings s;
  s.url = url;
  s.secrets = {"s"};
  s.max_attempts = max_attempts;
  return s;
}

command set_push(const std::string& tube, push_settings s) {
  command c(verb::set_push);
  c.tube = tube;
  c.push = std::make_shared<const push_settings>(std::move(s));
  return c;
}

command reserve_from(const std::string& tube) {
  command c(verb::reserve);
  c.tube = tube;
  return c;
}

command outcome_of(verb what, const handed_out& t, std::string text = "") {
  command c(what, t.id);
  c.token = t.token;
  c.text = std::move(text);
  return c;
}

class push_rules : public testing::Test {
 protected:
  void put(const std::string& line) { lab_.say(boss_, "use hooks\r\n" + line); }
  handed_out reserve() {
    lab_.run_with(sender_, reserve_from("hooks"));
    const auto got = sender_->heard();
    EXPECT_EQ(got.size(), 1U);
    EXPECT_EQ(got.front().what, answer::reserved);
    return got.front().task;
  }
  task_view look(task_id id) {
    auto c = std::make_shared<sender>();
    lab_.run_with(c, command(verb::stats_task, id));
    return std::get<task_view>(*c->heard().front().shown);
  }

  lab lab_;
  std::shared_ptr<recording_client> boss_{lab_.connect()};
  std::shared_ptr<sender> sender_{std::make_shared<sender>()};
};

TEST_F(push_rules, one_that_follows_hears_all_settings_and_each_change) {
  lab_.run(boss_, set_push("a", settings("http://a/")));
  lab_.run_with(sender_, command(verb::follow_push));
  lab_.run(boss_, set_push("b", settings("http://b/")));
  command clear(verb::clear_push);
  clear.tube = "a";
  lab_.run(boss_, clear);
  std::vector<std::string> heard;
  for (const reply& r : sender_->heard()) {
    EXPECT_EQ(r.what, answer::push_is);
    heard.push_back(r.text + " " + (r.push == nullptr ? "nothing" : r.push->url));
  }
  EXPECT_THAT(heard, ElementsAre("a http://a/", "b http://b/", "a nothing"));
}

TEST_F(push_rules, settings_survive_a_crash_with_their_secrets) {
  push_settings s = settings("https://x/");
  s.secrets = {std::string("\0\xff", 2), "b"};
  s.timeout = 1;
  s.max_attempts = 2;
  s.backoff = 3;
  s.longest_backoff = 4;
  s.concurrency = 5;
  s.rate = 6;
  s.disabled = "HTTP 410: \"bye\"";
  lab_.run(boss_, set_push("hooks", s));
  lab_.restart();
  command show(verb::show_push);
  show.tube = "hooks";
  lab_.run_with(sender_, show);
  const auto heard = sender_->heard();
  const push_settings& r = *std::get<shared_push>(*heard.front().shown);
  EXPECT_EQ(r.url, s.url);
  EXPECT_EQ(r.secrets, s.secrets);
  EXPECT_EQ(r.timeout, 1);
  EXPECT_EQ(r.max_attempts, 2U);
  EXPECT_EQ(r.backoff, 3);
  EXPECT_EQ(r.longest_backoff, 4);
  EXPECT_EQ(r.concurrency, 5U);
  EXPECT_EQ(r.rate, 6U);
  EXPECT_EQ(r.disabled, s.disabled);
}

TEST_F(push_rules, a_task_under_way_is_ready_again_after_a_crash_and_its_attempt_counts) {
  lab_.run(boss_, set_push("hooks", settings("http://x/")));
  put("put 0 0 3600 1\r\nx\r\n");
  EXPECT_EQ(reserve().fields->reserves, 1U);
  lab_.restart();
  sender_ = std::make_shared<sender>();
  EXPECT_EQ(reserve().fields->reserves, 2U) << "at once, though its TTR is an hour";
}

TEST_F(push_rules, an_old_lease_says_nothing_about_the_task) {
  lab_.run(boss_, set_push("hooks", settings("http://x/")));
  put("put 0 0 1 1\r\nx\r\n");
  const handed_out old = reserve();
  lab_.pass(2s);
  const handed_out now = reserve();
  for (const verb v : {verb::undelivered, verb::postpone, verb::remove}) {
    auto clerk = std::make_shared<sender>();
    lab_.run_with(clerk, outcome_of(v, old));
    EXPECT_EQ(clerk->heard().front().what, answer::stale_lease);
  }
  EXPECT_EQ(look(now.id).fields.state, task_state::reserved);
}

TEST_F(push_rules, a_task_that_is_postponed_has_lost_no_attempt) {
  lab_.run(boss_, set_push("hooks", settings("http://x/", 1)));
  put("put 0 0 60 1\r\nx\r\n");
  for (int i = 0; i < 5; ++i) {
    command later = outcome_of(verb::postpone, reserve());
    later.time = 10 * second;
    lab_.run_with(std::make_shared<sender>(), later);
    EXPECT_EQ(look(1).fields.state, task_state::delayed);
    EXPECT_EQ(look(1).time_left, 10 * second);
    EXPECT_EQ(look(1).fields.reserves, 0U);
    lab_.pass(10s);
  }
}

TEST_F(push_rules, the_tube_is_disabled_only_if_the_receiver_is_still_its_own) {
  lab_.run(boss_, set_push("hooks", settings("http://old/")));
  put("put 0 0 60 1\r\nx\r\n");
  put("put 0 0 60 1\r\ny\r\n");
  const handed_out one = reserve();
  const handed_out two = reserve();
  lab_.run_with(sender_, command(verb::follow_push));
  sender_->heard();
  const auto refuse = [&](const handed_out& t, const std::string& url) {
    command c = outcome_of(verb::undelivered, t, "HTTP 410");
    c.give_up = true;
    c.disable = true;
    c.url = url;
    lab_.run_with(std::make_shared<sender>(), c);
  };
  lab_.run(boss_, set_push("hooks", settings("http://new/")));
  sender_->heard();
  refuse(one, "http://old/");
  EXPECT_TRUE(sender_->heard().empty());
  refuse(two, "http://new/");
  const auto heard = sender_->heard();
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard.front().push->disabled, "HTTP 410");
  EXPECT_EQ(look(1).fields.state, task_state::buried);
  EXPECT_EQ(look(2).fields.push->answer, "HTTP 410");
}

TEST_F(push_rules, a_dead_task_moves_to_its_dead_letter_tube_with_its_answer) {
  lab_.run(boss_, set_push("hooks", settings("http://x/")));
  put("put-ms 0 0 60000 1 attempts=1 dead=morgue\r\nx\r\n");
  lab_.run_with(std::make_shared<sender>(), outcome_of(verb::undelivered, reserve(), "HTTP 500"));
  EXPECT_EQ(look(1).tube, "morgue");
  EXPECT_EQ(look(1).fields.state, task_state::ready);
  EXPECT_EQ(look(1).fields.push->answer, "HTTP 500");
}

// ---- In simulated time -------------------------------------------------------------------------

class simulated_sender final : public client {
 public:
  simulated_sender() : client(leases::internal) {}
  void deliver(reply r) override { static_cast<void>(replies.try_send(std::move(r))); }
  void flush() noexcept override {}
  void left() noexcept override {}
  verge::chan<reply> replies{64};
};

/// A receiver that never works: attempts come after delays that double, never sooner than half of
/// them, up to the longest, until the task is buried.
TEST(simulated_push, backs_off_until_the_attempts_are_used_up) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    verge::simulation sim(seed);
    const auto kept = make_memory_store();
    broker_options o;
    o.seed = seed;
    const wall_time start = 1'700'000'000 * second;
    const auto wall = [start] {
      return start + std::chrono::nanoseconds(verge::clock::now().time_since_epoch()).count();
    };
    committer it(*kept, o, wall);
    auto serving = sim.thread([&] { return it.run(); });
    std::vector<nanoseconds> delays;
    std::string end;
    sim.run([&]() -> verge::task<> {
      auto clerk = std::make_shared<simulated_sender>();
      auto feed = std::make_shared<simulated_sender>();
      push_settings s = settings("http://x/");
      s.backoff = 10 * second;
      s.longest_backoff = 60 * second;
      s.max_attempts = 6;
      it.submit({clerk, set_push("hooks", s)});
      command put(verb::put);
      put.tube = "hooks";
      put.tasks.emplace_back().ttr = 3'600 * second;
      it.submit({clerk, put});
      wall_time failed = 0;
      for (int i = 0; i < 6; ++i) {
        it.submit({feed, reserve_from("hooks")});
        const auto got = co_await verge::recv(feed->replies);
        if (failed != 0) delays.push_back(wall() - failed);
        co_await verge::sleep(3s);
        failed = wall();
        it.submit({clerk, outcome_of(verb::undelivered, got->task, "HTTP 500")});
      }
      auto eye = std::make_shared<simulated_sender>();
      it.submit({eye, command(verb::stats_task, 1)});
      const auto seen = co_await verge::recv(eye->replies);
      end = name_of(std::get<task_view>(*seen->shown).fields.state);
    });
    it.stop();
    serving.join();
    EXPECT_EQ(end, "buried");
    const nanoseconds whole[] = {10, 20, 40, 60, 60};
    ASSERT_EQ(delays.size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_GE(delays[i], whole[i] * second / 2) << "seed " << seed << ", attempt " << i;
      EXPECT_LE(delays[i], whole[i] * second + second) << "seed " << seed << ", attempt " << i;
    }
  }
}

}  // namespace
