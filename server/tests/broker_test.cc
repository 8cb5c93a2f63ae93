// SPDX-License-Identifier: Apache-2.0

// The broker alone, on a store in memory, with time that stands still until it is moved: what it
// keeps over clock steps and restarts, and in which pieces it does much.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "broker/keyed_hash.h"
#include "support/lab.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;

/// Another store, and how often it is written to.
class counting_store : public store {
 public:
  recovered recover() override { return it_->recover(); }
  void write(const batch& b) override {
    ++writes;
    largest = std::max(largest, b.insertions.size() + b.updates.size() + b.removals.size());
    it_->write(b);
  }
  std::optional<stored_task> find(task_id id) override { return it_->find(id); }
  std::string body_of(task_id id) override { return it_->body_of(id); }
  std::optional<task_id> find_key(tube_number t, std::string_view key) override {
    return it_->find_key(t, key);
  }
  std::vector<stored_task> scan(tube_number t, const position& first, std::size_t limit) override {
    return it_->scan(t, first, limit);
  }
  store_figures figures() override { return it_->figures(); }
  void backup(const std::string& directory) override { it_->backup(directory); }

  std::size_t writes{0};
  std::size_t largest{0};  ///< tasks in one batch

 private:
  std::unique_ptr<store> it_{make_memory_store()};
};

/// The clock is set while the server does not run.
void restart_with_step(lab& l, std::chrono::nanoseconds step) {
  l.wall += step.count();
  l.restart();
}

TEST(clock_steps, a_clock_that_was_ahead_makes_no_later_task_early_after_a_restart) {
  for (const auto ahead : {std::chrono::hours(1), std::chrono::hours(24 * 365)}) {
    lab l;
    auto c = l.connect();
    EXPECT_EQ(l.say(c, "put 0 3000 60 4\r\nsoon\r\n"), "INSERTED 1\r\n");
    l.step(ahead);  // it is due, and that is written
    l.pass(2s);
    EXPECT_EQ(l.say(c, "put 0 0 60 4\r\nthen\r\n"), "INSERTED 2\r\n");
    l.step(-ahead);
    EXPECT_EQ(l.say(c, "put 0 1800 60 5\r\nlater\r\n"), "INSERTED 3\r\n");
    l.restart();
    c = l.connect();
    EXPECT_EQ(l.say(c, "stats-job 3\r\n").find("state: ready"), std::string::npos);
    EXPECT_EQ(l.say(c, "peek-delayed\r\n"), "FOUND 3 5\r\nlater\r\n");
    EXPECT_EQ(l.say(c, "reserve-with-timeout 0\r\ndelete 1\r\n"),
              "RESERVED 1 4\r\nsoon\r\nDELETED\r\n");
    EXPECT_EQ(l.say(c, "reserve-with-timeout 0\r\ndelete 2\r\n"),
              "RESERVED 2 4\r\nthen\r\nDELETED\r\n");
    EXPECT_EQ(l.say(c, "reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n");
    l.pass(1799s);
    l.restart();
    c = l.connect();
    EXPECT_EQ(l.say(c, "reserve-with-timeout 0\r\n"), "TIMED_OUT\r\n");
    l.pass(1s);
    EXPECT_EQ(l.say(c, "reserve-with-timeout 0\r\n"), "RESERVED 3 5\r\nlater\r\n");
  }
}

TEST(clock_steps, a_task_that_fell_due_on_an_idle_server_is_ready_after_a_restart) {
  lab l;
  auto c = l.connect();
  EXPECT_EQ(l.say(c, "put 0 10 60 1\r\nx\r\n"), "INSERTED 1\r\n");
  l.pass(10s);
  restart_with_step(l, -1h);
  c = l.connect();
  EXPECT_EQ(l.say(c, "peek-ready\r\n"), "FOUND 1 1\r\nx\r\n");
  EXPECT_EQ(l.say(c, "peek-delayed\r\n"), "NOT_FOUND\r\n");
  // And stays so, over as many as there are.
  restart_with_step(l, -1h);
  restart_with_step(l, 30min);
  c = l.connect();
  EXPECT_EQ(l.say(c, "reserve-with-timeout 0\r\n"), "RESERVED 1 1\r\nx\r\n");
}

/// Many fall due in a second, and no client asks: that is written once a second, not for each of
/// them. But what a client was told is ready is so on disk.
TEST(clock_steps, due_marks_are_written_when_a_client_asks_and_once_a_second) {
  auto kept = std::make_unique<counting_store>();
  counting_store& disk = *kept;
  lab l({}, std::move(kept));
  auto c = l.connect();
  for (int i = 0; i < 1000; ++i) {
    l.say(c, "put-ms 0 " + std::to_string(10'000 + i) + " 60000 1\r\nx\r\n");
  }
  l.pass(9999ms);
  const std::size_t before = disk.writes;
  for (int i = 0; i < 500; ++i) l.pass(1ms);
  EXPECT_EQ(disk.writes - before, 1U);
  EXPECT_EQ(l.say(c, "peek 1\r\n"), "FOUND 1 1\r\nx\r\n");
  EXPECT_EQ(disk.writes - before, 2U);
  EXPECT_EQ(l.say(c, "peek 500\r\n"), "FOUND 500 1\r\nx\r\n");
  EXPECT_EQ(disk.writes - before, 2U) << "nothing has changed since";
  restart_with_step(l, -1h);
  c = l.connect();
  c->only_counts = true;
  EXPECT_EQ(l.say(c, "stats-tube default\r\n"),
            "urgent 500 ready 500 reserved 0 delayed 500 buried 0\r\n");
  // The committer is woken for what is left.
  l.pass(1h);
  l.pass(100ms);
  EXPECT_FALSE(l.it().next_alarm());
  l.pass(100ms);
  ASSERT_TRUE(l.it().next_alarm());
  EXPECT_LE(*l.it().next_alarm(), l.now + 1s);
  l.pass(1s);
  EXPECT_FALSE(l.it().next_alarm());
}

/// A storm in one tube, and a task in another that is due later: it waits for its share, not for
/// the storm.
TEST(storms, in_one_tube_do_not_hold_up_another) {
  lab l({.most_in_memory = 100, .chunk = 10, .elsewhere = {}});
  auto c = l.connect();
  std::string puts = "use storm\r\n";
  for (int i = 0; i < 2000; ++i) puts += "put 0 10 60 1\r\nx\r\n";
  puts += "use calm\r\nput 0 11 60 4\r\nmine\r\n";
  l.say(c, puts);
  l.now += 11s;
  l.wall += 11'000'000'000;
  int rounds = 0;
  do {
    ++rounds;
    ASSERT_TRUE(l.one_round(c, "peek-ready\r\n"));
  } while (c->heard() == "NOT_FOUND\r\n");
  EXPECT_EQ(rounds, 2) << "what falls due in a round is seen in the next";
  c->only_counts = true;
  l.round();
  EXPECT_EQ(l.say(c, "stats-tube storm\r\n"),
            "urgent 2000 ready 2000 reserved 0 delayed 0 buried 0\r\n");
}

/// Keeps what it was shown last.
class onlooker final : public client {
 public:
  void deliver(reply r) override { shown = r.shown; }
  void flush() noexcept override {}
  void left() noexcept override {}
  std::shared_ptr<const view> shown;
};

survey_view survey_of(lab& l, std::uint64_t most, const std::string& after = "") {
  const auto looks = std::make_shared<onlooker>();
  command ask(verb::survey, most);
  ask.text = after;
  l.run_with(looks, ask);
  return std::get<survey_view>(*looks->shown);
}

TEST(a_survey, has_a_page_of_the_tubes_by_name_and_the_time) {
  lab l;
  auto c = l.connect();
  const std::vector<std::string> made{"m", "c", "z", "a", "k", "b", "y", "d", "x", "l"};
  for (const std::string& name : made) l.say(c, "use " + name + "\r\nput 0 0 60 1\r\nx\r\n");
  l.say(c, "use default\r\n");
  const auto names = [](const survey_view& v) {
    std::string all;
    for (const tube_view& t : v.tubes) all += t.name + ' ';
    return all;
  };
  const survey_view first = survey_of(l, 4);
  EXPECT_EQ(names(first), "a b c d ");
  EXPECT_TRUE(first.more);
  EXPECT_EQ(first.now, l.wall);
  EXPECT_EQ(first.all.ready, 10U) << "of all tubes";
  EXPECT_EQ(names(survey_of(l, 4, "d")), "default k l m ");
  const survey_view last = survey_of(l, 3, "m");
  EXPECT_EQ(names(last), "x y z ");
  EXPECT_FALSE(last.more);
  EXPECT_EQ(names(survey_of(l, 4, "z")), "");
  EXPECT_EQ(survey_of(l, 100).tubes.size(), 11U);
}

/// By what is in memory: the store counts nothing.
TEST(a_forecast, of_more_than_fifty_thousand_tasks_says_until_when_it_knows_them) {
  constexpr int most = 50'000;
  lab l({}, std::make_unique<counting_store>());
  auto c = l.connect();
  c->only_counts = true;
  std::string puts;
  for (int i = 0; i < 1000; ++i) puts += "put 0 90 60 1\r\nx\r\n";
  for (int i = 0; i < most; i += 1000) l.say(c, puts);
  const auto forecast = [&] {
    const auto looks = std::make_shared<onlooker>();
    l.run_with(looks, command(verb::forecast, 60));
    return std::get<forecast_view>(*looks->shown);
  };
  const auto number = [](const forecast_view& v) {
    return std::accumulate(v.minutes.begin(), v.minutes.end(), std::uint64_t{0});
  };
  const forecast_view all = forecast();
  EXPECT_EQ(number(all), most);
  EXPECT_FALSE(all.known_until);
  l.say(c, "put 0 90 60 1\r\nx\r\n");
  const forecast_view first = forecast();
  EXPECT_EQ(number(first), most);
  EXPECT_EQ(first.known_until, l.wall + 90'000'000'000);
}

/// A store that has begun to count, and could not.
class store_that_cannot_count final : public counting_store {
 public:
  std::shared_ptr<census> take_census(std::vector<tube_number>, const census_range& r) override {
    class failing final : public census {
     public:
      using census::census;

     private:
      std::optional<std::vector<std::uint64_t>> count() override { return std::nullopt; }
    };
    ++censuses;
    return std::make_shared<failing>(r);
  }

  int censuses{0};
};

TEST(a_forecast, is_not_counted_again_by_a_store_that_could_not) {
  auto kept = std::make_unique<store_that_cannot_count>();
  store_that_cannot_count& disk = *kept;
  lab l({}, std::move(kept));
  auto c = l.connect();
  for (int i = 0; i < 10; ++i) {
    l.say(c, "put 0 90 60 1\r\nx\r\n");
    l.pass(1s);
  }
  EXPECT_EQ(disk.censuses, 1);
}

TEST(a_survey, tells_which_tubes_push) {
  lab l;
  auto c = l.connect();
  l.say(c, "use a\r\nput 0 0 60 1\r\nx\r\nuse b\r\nput 0 0 60 1\r\nx\r\n");
  command set(verb::set_push);
  set.tube = "b";
  auto settings = std::make_shared<push_settings>();
  settings->url = "http://127.0.0.1:9/";
  set.push = settings;
  l.run(c, set);
  const survey_view v = survey_of(l, 10, "a");
  ASSERT_EQ(v.tubes.at(0).name, "b");
  EXPECT_TRUE(v.tubes[0].pushes);
  EXPECT_FALSE(v.tubes[0].push_disabled);
  EXPECT_FALSE(survey_of(l, 1).tubes.at(0).pushes);
}

TEST(lateness, is_counted_in_microseconds) {
  lab l;
  auto c = l.connect();
  l.say(c, "put 0 10 60 1\r\nx\r\nput 0 20 60 1\r\nx\r\n");
  l.pass(10s + 4999us + 999ns);
  l.pass(9s + 995ms + 1002ns);
  const lateness_figures f = survey_of(l, 1).all.lateness;
  EXPECT_EQ(f.microseconds, 4999U + 1);
  EXPECT_EQ(f.counts[0], 1U) << "up to half a millisecond";
  EXPECT_EQ(f.counts[3], 1U) << "up to five milliseconds";
}

/// Puts so many tasks and buries them.
void bury_many(lab& l, const std::shared_ptr<recording_client>& c, int tasks) {
  for (int i = 0; i < tasks; i += 100) {
    std::string some;
    for (int n = 0; n < 100; ++n) some += "put 0 0 60 1\r\nx\r\n";
    for (int n = 1; n <= 100; ++n) {
      some += "reserve\r\nbury " + std::to_string(i + n) + " 0\r\n";
    }
    l.say(c, some);
  }
}

TEST(kicks, of_many_tasks_are_done_in_pieces_and_answered_once) {
  constexpr int tasks = 20'000;
  for (const bool buried : {true, false}) {
    auto kept = std::make_unique<counting_store>();
    counting_store& disk = *kept;
    lab l({.most_in_memory = 1000, .chunk = 100, .elsewhere = {}}, std::move(kept));
    auto c = l.connect();
    if (buried) {
      bury_many(l, c, tasks);
    } else {
      for (int i = 0; i < tasks; ++i) l.say(c, "put 0 1000 60 1\r\nx\r\n");
    }
    l.restart();
    c = l.connect();
    auto other = l.connect();
    disk.largest = 0;
    // What is sent behind it waits for its answer, what others send does not.
    bool more = l.one_round(c, "kick 4294967295\r\nlist-tube-used\r\n");
    std::size_t most = l.it().in_memory();
    int rounds = 1;
    for (; more && c->said.empty(); ++rounds) {
      more = l.one_round(other, "put 0 2000 60 1\r\ny\r\n");
      EXPECT_TRUE(other->heard().starts_with("INSERTED "));
      most = std::max(most, l.it().in_memory());
    }
    EXPECT_EQ(c->heard(), "KICKED " + std::to_string(tasks) + "\r\nUSING default\r\n");
    EXPECT_GE(rounds, tasks / 200);
    EXPECT_LE(most, 1500U) << "tasks in memory";
    EXPECT_LE(disk.largest, 500U) << "tasks in one batch";
    c->only_counts = true;
    EXPECT_TRUE(l.say(c, "stats-tube default\r\n")
                    .starts_with("urgent 20000 ready 20000 reserved 0 delayed "));
  }
}

TEST(kicks, of_a_single_task_leave_no_time_at_which_the_server_would_wake) {
  lab l;
  auto c = l.connect();
  EXPECT_EQ(l.say(c, "put 0 10 60 1\r\nx\r\n"), "INSERTED 1\r\n");
  EXPECT_TRUE(l.it().next_due());
  EXPECT_EQ(l.say(c, "kick-job 1\r\n"), "KICKED\r\n");
  EXPECT_FALSE(l.it().next_due());
}

TEST(kicks, end_with_their_client_and_with_a_crash) {
  lab l({.most_in_memory = 100, .chunk = 10, .elsewhere = {}});
  auto c = l.connect();
  auto other = l.connect();
  bury_many(l, c, 1000);
  EXPECT_TRUE(l.one_round(c, "kick 1000\r\n"));
  EXPECT_TRUE(l.one_round(other, ""));
  l.run(c, command(verb::leave));
  c = l.connect();
  c->only_counts = true;
  const std::string first = l.say(c, "stats-tube default\r\n");
  EXPECT_EQ(first, "urgent 30 ready 30 reserved 0 delayed 0 buried 970\r\n");
  l.restart();
  c = l.connect();
  c->only_counts = true;
  EXPECT_EQ(l.say(c, "stats-tube default\r\n"), first);
  EXPECT_EQ(l.say(c, "kick 5\r\nkick 2000\r\n"), "KICKED 5\r\nKICKED 965\r\n");
}

/// Replies that are large end a round early. What is left comes in the next ones, in its order.
TEST(rounds, have_replies_of_so_many_bytes_and_no_more) {
  lab l({.round_bytes = 10'000, .elsewhere = {}});
  auto producer = l.connect();
  const std::string body(2000, 'x');
  const std::string put = "put 0 0 60 2000\r\n" + body + "\r\n";
  for (int i = 0; i < 20; ++i) l.say(producer, put);
  auto c = l.connect();
  std::string asked;
  std::string expected;
  for (int i = 1; i <= 20; ++i) {
    asked += "peek " + std::to_string(i) + "\r\nlist-tube-used\r\n";
    expected += "FOUND " + std::to_string(i) + " 2000\r\n" + body + "\r\nUSING default\r\n";
  }
  bool more = l.one_round(c, asked);
  std::string heard = c->heard();
  EXPECT_LE(heard.size(), 13'000U);
  for (int rounds = 1; more && rounds < 100; ++rounds) {
    more = l.one_round(producer, "");
    const std::string some = c->heard();
    EXPECT_LE(some.size(), 13'000U);
    heard += some;
  }
  EXPECT_EQ(heard, expected);
  // The same for clients that wait, and all get one.
  for (int i = 1; i <= 20; ++i) l.say(c, "delete " + std::to_string(i) + "\r\n");
  std::vector<std::shared_ptr<recording_client>> waiting;
  for (int i = 0; i < 20; ++i) {
    waiting.push_back(l.connect());
    l.say(waiting.back(), "reserve\r\n");
  }
  std::string puts;
  for (int i = 0; i < 20; ++i) puts += put;
  more = l.one_round(producer, puts);
  for (int rounds = 0; more && rounds < 100; ++rounds) more = l.one_round(producer, "");
  for (const auto& w : waiting) EXPECT_TRUE(w->heard().starts_with("RESERVED "));
}

// ---- Tokens ------------------------------------------------------------------------------------

/// A client that knows its leases by their tokens, as HTTP's do.
class token_client final : public client {
 public:
  token_client() : client(leases::by_token) {}
  void deliver(reply r) override { last = std::move(r); }
  void flush() noexcept override {}
  void left() noexcept override {}
  reply last;
};

TEST(lease_tokens, are_of_a_keyed_hash) {
  // As `openssl mac -macopt hexkey:000102..0f -macopt size:8 SIPHASH` has it for the bytes 0 to 23.
  const hash_key key{.first = 0x0706050403020100U, .second = 0x0f0e0d0c0b0a0908U};
  const std::array<std::uint64_t, 3> message{0x0706050403020100U, 0x0f0e0d0c0b0a0908U,
                                             0x1716151413121110U};
  EXPECT_EQ(keyed_hash(key, message), 0xb8ad50c6f649af94U);
}

/// A client that has one token undoes what can be undone, and guesses the token of another task.
TEST(lease_tokens, do_not_tell_other_tokens) {
  const auto mix = [](std::uint64_t n) {
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9U;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebU;
    return n ^ (n >> 31);
  };
  const auto unmix = [](std::uint64_t n) {
    n = (n ^ (n >> 31) ^ (n >> 62)) * 0x319642b2d24d8ec3U;
    n = (n ^ (n >> 27) ^ (n >> 54)) * 0x96de1b173f119089U;
    return n ^ (n >> 30) ^ (n >> 60);
  };
  const auto inner = [&](std::uint64_t id) { return mix(id * 0x9e3779b97f4a7c15U + 1); };
  ASSERT_EQ(unmix(mix(12345)), 12345U);
  lab l;
  auto c = std::make_shared<token_client>();
  lease_token tokens[3]{};
  for (int i = 1; i <= 2; ++i) {
    l.say(l.connect(), "put 0 0 60 1\r\nx\r\n");
    l.run_with(c, command(verb::reserve));
    ASSERT_EQ(c->last.task.id, static_cast<task_id>(i));
    tokens[i] = c->last.task.token;
  }
  for (const std::uint64_t lowest : {0U, 1U}) {
    const std::uint64_t seed = unmix(tokens[1] ^ lowest) ^ inner(1);
    EXPECT_NE(mix(seed ^ inner(2)) | 1, tokens[2]);
  }
}

/// A task that was handed out and put off has as many reservations as before, and another token.
TEST(lease_tokens, are_another_one_for_each_lease) {
  lab l;
  auto c = std::make_shared<token_client>();
  l.say(l.connect(), "put 0 0 60 1\r\nx\r\n");
  std::set<lease_token> seen;
  for (int i = 0; i < 10; ++i) {
    l.run_with(c, command(verb::reserve));
    seen.insert(c->last.task.token);
    command back(verb::postpone, c->last.task.id);
    back.token = c->last.task.token;
    l.run_with(c, back);
    ASSERT_EQ(c->last.what, answer::released);
  }
  EXPECT_EQ(seen.size(), 10U);
}

/// The lease lasts for its TTR and not longer, whatever the clock says.
TEST(lease_tokens, end_after_the_ttr_though_the_clock_was_set_back_before_a_restart) {
  lab l;
  const auto c = l.connect();
  auto holder = std::make_shared<token_client>();
  l.say(c, "put 0 0 60 1\r\nx\r\n");
  l.run_with(holder, command(verb::reserve));
  ASSERT_EQ(holder->last.what, answer::reserved);
  restart_with_step(l, -1h);
  const auto later = l.connect();
  EXPECT_EQ(l.say(later, "peek-ready\r\n"), "NOT_FOUND\r\n");
  l.pass(61s);
  EXPECT_EQ(l.say(later, "peek-ready\r\n"), "FOUND 1 1\r\nx\r\n");
}

/// Several servers give ids of one number series: each has its own remainder, also after a restart.
TEST(ids, have_the_remainder_of_their_shard) {
  broker_options options;
  options.id_divisor = 3;
  options.id_remainder = 1;
  lab l(options);
  for (int round = 0; round < 3; ++round) {
    const auto c = l.connect();
    for (int i = 0; i < 3; ++i) {
      const std::string said = l.say(c, "put 0 0 60 1\r\nx\r\n");
      ASSERT_EQ(said.rfind("INSERTED ", 0), 0U) << said;
      EXPECT_EQ(std::stoull(said.substr(9)) % 3, 1U) << said;
    }
    l.restart();
  }
}

}  // namespace
