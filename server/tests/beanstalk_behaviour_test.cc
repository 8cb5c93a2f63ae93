// SPDX-License-Identifier: Apache-2.0

// What the tests of beanstalkd's own server check, in our words, and played against both: ours, and
// Debian's beanstalkd where it is installed. A test that fails against theirs is wrong itself.
//
// Left out is what is about the files of its log: their sizes, what it does when the disk is full
// (ours ends, see crash/fault_test.cc), and logs of version 1.4.

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "serve/server.h"
#include "support/oracle.h"
#include "support/wire.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

enum class side { ours, theirs };

class a_beanstalk_server : public testing::TestWithParam<side> {
 protected:
  void SetUp() override {
    if (GetParam() == side::theirs && !oracle::exists()) {
      GTEST_SKIP() << "beanstalkd is not installed";
    }
    std::string name = (fs::temp_directory_path() / "verge-behaviour-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    ours_.reset();
    theirs_.reset();
    if (!dir_.empty()) fs::remove_all(dir_);
  }

  /// In memory, or in a directory that lasts over restart().
  void start(bool lasts = false, std::uint32_t body_limit = 65'535) {
    if (GetParam() == side::theirs) {
      std::vector<std::string> more{"-z", std::to_string(body_limit)};
      if (lasts) more.insert(more.end(), {"-b", dir_.string(), "-f0"});
      theirs_ = std::make_unique<oracle>(more);
      return;
    }
    options_.listen = verge::endpoint::loopback(0);
    options_.in_memory = !lasts;
    options_.mode = durability::written;  // a test does not lose power
    options_.directory = dir_ / "tasks";
    options_.limits.body = body_limit;
    ours_ = std::make_unique<task_server>(options_);
  }
  void restart() {
    if (GetParam() == side::theirs) return theirs_->restart();
    ours_.reset();
    ours_ = std::make_unique<task_server>(options_);
  }
  void drain() {
    if (GetParam() == side::theirs) return theirs_->drain();
    ours_->drain(true);
  }
  wire connect() {
    return wire(GetParam() == side::theirs ? theirs_->port() : ours_->address().port());
  }
  /// Each command with its answer, both without the end of the line.
  static void play(wire& w, const std::vector<std::pair<std::string, std::string>>& all) {
    for (const auto& [command, answer] : all) {
      EXPECT_EQ(w.ask(command + "\r\n"), answer + "\r\n") << "to: " << command;
    }
  }
  static void has(wire& w, const std::string& command, const std::vector<std::string>& lines) {
    const std::string said = w.ask(command + "\r\n");
    EXPECT_TRUE(said.starts_with("OK ")) << said;
    for (const std::string& line : lines) {
      EXPECT_NE(said.find("\n" + line + "\n"), std::string::npos) << line << " is not in\n" << said;
    }
  }
  static std::string list(const std::vector<std::string>& names) {
    std::string text = "---\n";
    for (const std::string& n : names) text += "- " + n + "\n";
    return "OK " + std::to_string(text.size()) + "\r\n" + text;
  }
  void play_one(const std::vector<std::pair<std::string, std::string>>& all) {
    start();
    wire w = connect();
    play(w, all);
  }

  fs::path dir_;
  server_options options_;
  std::unique_ptr<task_server> ours_;
  std::unique_ptr<oracle> theirs_;
};

// ---- Lines --------------------------------------------------------------------------------------

TEST_P(a_beanstalk_server, says_that_it_does_not_know_a_command) {
  play_one({{"nosuchthing", "UNKNOWN_COMMAND"}, {"", "UNKNOWN_COMMAND"}});
}

TEST_P(a_beanstalk_server, refuses_a_line_that_is_too_long_and_goes_on) {
  play_one({{std::string(250, 'a'), "BAD_FORMAT"},
            {"use " + std::string(200, 'a'), "USING " + std::string(200, 'a')},
            {"use " + std::string(201, 'a'), "BAD_FORMAT"}});
}

TEST_P(a_beanstalk_server, takes_two_commands_of_one_packet) {
  start();
  wire w = connect();
  w.send("use a\r\nuse b\r\n");
  EXPECT_EQ(w.reply(), "USING a\r\n");
  EXPECT_EQ(w.reply(), "USING b\r\n");
}

TEST_P(a_beanstalk_server, takes_names_with_the_characters_that_are_allowed) {
  play_one({{"use x_y", "USING x_y"},
            {"use A-z0+9/;.$_()", "USING A-z0+9/;.$_()"},
            {"use -x", "BAD_FORMAT"},
            {"use a*b", "BAD_FORMAT"}});
}

// ---- Put ----------------------------------------------------------------------------------------

TEST_P(a_beanstalk_server, takes_no_put_while_it_drains) {
  start();
  wire w = connect();
  play(w, {{"list-tube-used", "USING default"}});  // it listens before it takes the signal
  drain();
  wire other = connect();
  while (other.ask("stats\r\n").find("draining: true\n") == std::string::npos) {
  }
  play(w, {{"put 0 0 1 1\r\nx", "DRAINING"}, {"list-tube-used", "USING default"}});
}

TEST_P(a_beanstalk_server, refuses_a_body_that_is_too_large_and_reads_over_it) {
  start(false, 10);
  wire w = connect();
  w.send("put 0 0 0 11\r\ndelete 9999\r\nput 0 0 0 1\r\nx\r\n");
  EXPECT_EQ(w.reply(), "JOB_TOO_BIG\r\n");
  EXPECT_EQ(w.reply(), "INSERTED 1\r\n");
  play(w, {{"put 0 0 0 10\r\n0123456789", "INSERTED 2"}, {"put 0 0 0 0\r\n", "INSERTED 3"}});
}

TEST_P(a_beanstalk_server, refuses_sizes_that_are_no_numbers) {
  play_one({{"put 0 0 0 4294967296", "BAD_FORMAT"},
            {"put 0 0 0 10b", "BAD_FORMAT"},
            {"put 0 0 0 --!@#$%^&&**()0b", "BAD_FORMAT"},
            {"put 0 0 0 1\r\nx", "INSERTED 1"}});
}

TEST_P(a_beanstalk_server, refuses_priorities_and_delays_that_are_no_numbers_or_too_large) {
  play_one({{"put 512 -1 100 0", "BAD_FORMAT"},
            {"put -1kkdj9djjkd9 0 100 1", "BAD_FORMAT"},
            {"put -1 0 100 1", "BAD_FORMAT"},
            {"put 4294967296 0 100 1", "BAD_FORMAT"},
            {"put 4294967295 0 100 1\r\na", "INSERTED 1"},
            {"put 0 4294967295 100 1\r\na", "INSERTED 2"}});
}

TEST_P(a_beanstalk_server, takes_empty_bodies_with_and_without_delay) {
  play_one({{"put 0 0 1 0\r\n", "INSERTED 1"}, {"put 0 1 1 0\r\n", "INSERTED 2"}});
}

TEST_P(a_beanstalk_server, keeps_large_times_to_run_and_makes_none_a_second) {
  start();
  wire w = connect();
  int id = 0;
  for (const int ttr : {120, 4294, 4295, 4296, 4297, 5000, 21600, 0}) {
    ++id;
    play(w, {{"put 0 0 " + std::to_string(ttr) + " 1\r\na", "INSERTED " + std::to_string(id)}});
    has(w, "stats-job " + std::to_string(id), {"ttr: " + std::to_string(std::max(ttr, 1))});
  }
}

// ---- Peek, kick, bury, touch, delete ------------------------------------------------------------

TEST_P(a_beanstalk_server, shows_a_task_by_its_id) {
  play_one({{"put 0 0 1 1\r\na", "INSERTED 1"},
            {"peek 1", "FOUND 1 1\r\na"},
            {"peek 2", "NOT_FOUND"},
            {"peek 18446744073709551615", "NOT_FOUND"},
            {"peek 18446744073709551616", "BAD_FORMAT"},
            {"peek 184467440737095516160000000000000000000000000000", "BAD_FORMAT"},
            {"peek foo111", "BAD_FORMAT"},
            {"peek 111foo", "BAD_FORMAT"}});
}

TEST_P(a_beanstalk_server, shows_the_delayed_task_that_is_due_first) {
  play_one({{"peek-delayed", "NOT_FOUND"},
            {"put 0 0 1 1\r\nA", "INSERTED 1"},
            {"put 0 99 1 1\r\nB", "INSERTED 2"},
            {"put 0 50 1 1\r\nC", "INSERTED 3"},
            {"peek-delayed", "FOUND 3 1\r\nC"},
            {"delete 3", "DELETED"},
            {"peek-delayed", "FOUND 2 1\r\nB"},
            {"delete 2", "DELETED"},
            {"peek-delayed", "NOT_FOUND"}});
}

TEST_P(a_beanstalk_server, buries_what_is_reserved_and_kicks_it) {
  play_one({{"put 0 0 100 1\r\nA", "INSERTED 1"},
            {"bury 1 0", "NOT_FOUND"},
            {"peek-buried", "NOT_FOUND"},
            {"reserve-with-timeout 0", "RESERVED 1 1\r\nA"},
            {"bury 1 0", "BURIED"},
            {"peek-buried", "FOUND 1 1\r\nA"},
            {"kick 1", "KICKED 1"},
            {"peek-buried", "NOT_FOUND"},
            {"peek-ready", "FOUND 1 1\r\nA"},
            {"kick 1", "KICKED 0"}});
}

TEST_P(a_beanstalk_server, refuses_ids_and_priorities_of_touch_bury_and_kick_that_are_none) {
  play_one({{"touch a111", "BAD_FORMAT"},
            {"touch 111a", "BAD_FORMAT"},
            {"touch !@#!@#", "BAD_FORMAT"},
            {"touch 1", "NOT_FOUND"},
            {"touch 100000000000000", "NOT_FOUND"},
            {"bury 111abc 2", "BAD_FORMAT"},
            {"bury 111", "BAD_FORMAT"},
            {"bury 111 222abc", "BAD_FORMAT"},
            {"kick-job a111", "BAD_FORMAT"},
            {"kick-job 111a", "BAD_FORMAT"},
            {"kick-job !@#!@#", "BAD_FORMAT"}});
}

TEST_P(a_beanstalk_server, kicks_a_buried_task_by_its_id) {
  play_one({{"put 0 0 100 1\r\nA", "INSERTED 1"},
            {"reserve", "RESERVED 1 1\r\nA"},
            {"bury 1 0", "BURIED"},
            {"kick-job 100", "NOT_FOUND"},
            {"kick-job 1", "KICKED"},
            {"kick-job 1", "NOT_FOUND"}});
}

TEST_P(a_beanstalk_server, kicks_a_delayed_task_by_its_id_and_no_ready_one) {
  play_one({{"put 0 0 1 1\r\nA", "INSERTED 1"},
            {"put 0 100 1 1\r\nB", "INSERTED 2"},
            {"kick-job 1", "NOT_FOUND"},
            {"kick-job 2", "KICKED"},
            {"kick-job 2", "NOT_FOUND"}});
}

TEST_P(a_beanstalk_server, deletes_a_ready_task_and_refuses_what_is_no_id) {
  play_one({{"put 0 0 0 0\r\n", "INSERTED 1"},
            {"delete 1", "DELETED"},
            {"delete 1", "NOT_FOUND"},
            {"delete 18446744073709551616", "BAD_FORMAT"},
            {"delete 184467440737095516160000000000000000000000000000", "BAD_FORMAT"},
            {"delete foo111", "BAD_FORMAT"},
            {"delete 111foo", "BAD_FORMAT"}});
}

// ---- Reserve and release ------------------------------------------------------------------------

TEST_P(a_beanstalk_server, hands_out_the_most_urgent_task_of_all_watched_tubes) {
  play_one({{"use abc", "USING abc"},
            {"put 999999 0 0 0\r\n", "INSERTED 1"},
            {"use def", "USING def"},
            {"put 99 0 0 0\r\n", "INSERTED 2"},
            {"watch abc", "WATCHING 2"},
            {"watch def", "WATCHING 3"},
            {"reserve", "RESERVED 2 0\r\n"}});
}

TEST_P(a_beanstalk_server, ends_a_wait_in_time_whatever_other_clients_do) {
  start();
  wire first = connect();
  wire second = connect();
  play(first, {{"watch foo", "WATCHING 2"}});
  const auto begin = std::chrono::steady_clock::now();
  first.send("reserve-with-timeout 1\r\n");
  play(second, {{"watch foo", "WATCHING 2"}});
  EXPECT_EQ(first.reply(), "TIMED_OUT\r\n");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 990ms);
}

TEST_P(a_beanstalk_server, warns_in_the_last_second_of_a_lease) {
  start();
  wire w = connect();
  play(w, {{"put 0 0 1 1\r\na", "INSERTED 1"}, {"reserve-with-timeout 1", "RESERVED 1 1\r\na"}});
  has(w, "stats-job 1", {"state: reserved"});
  play(w, {{"reserve-with-timeout 1", "DEADLINE_SOON"}});
  has(w, "stats-job 1", {"state: reserved"});
  play(w, {{"release 1 0 0", "RELEASED"}});
  has(w, "stats-job 1", {"state: ready"});
}

TEST_P(a_beanstalk_server, refuses_a_release_that_is_none) {
  play_one({{"release 18446744073709551616 1 1", "BAD_FORMAT"},
            {"release 184467440737095516160000000000000000000000000000 1 1", "BAD_FORMAT"},
            {"release foo111", "BAD_FORMAT"},
            {"release 111foo", "BAD_FORMAT"},
            {"release 18446744073709551615 abc 1", "BAD_FORMAT"},
            {"release 18446744073709551615 1 abc", "BAD_FORMAT"},
            {"release 1 1 1", "NOT_FOUND"}});
}

TEST_P(a_beanstalk_server, reserves_a_task_by_its_id_in_every_state_but_reserved) {
  start();
  wire w = connect();
  wire other = connect();
  play(w, {{"put 0 0 100 1\r\nA", "INSERTED 1"},
           {"put 0 100 100 1\r\nB", "INSERTED 2"},
           {"put 0 0 100 1\r\nC", "INSERTED 3"},
           {"reserve-job 3", "RESERVED 3 1\r\nC"},
           {"bury 3 0", "BURIED"},
           {"reserve-job 1", "RESERVED 1 1\r\nA"},
           {"reserve-job 2", "RESERVED 2 1\r\nB"},
           {"reserve-job 3", "RESERVED 3 1\r\nC"},
           {"reserve-job 1", "NOT_FOUND"},
           {"reserve-job 4", "NOT_FOUND"},
           {"reserve-job x", "BAD_FORMAT"}});
  play(other, {{"reserve-job 1", "NOT_FOUND"}});
  play(w, {{"release 2 0 0", "RELEASED"}});
  play(other, {{"reserve-job 2", "RESERVED 2 1\r\nB"}});
}

TEST_P(a_beanstalk_server, gives_back_what_a_client_had_that_has_closed_or_quit) {
  for (const bool quits : {false, true}) {
    start();
    wire producer = connect();
    wire consumer = connect();
    consumer.send("reserve-with-timeout 60\r\n");
    play(producer, {{"put 0 0 100 1\r\na", "INSERTED 1"}});
    EXPECT_EQ(consumer.reply(), "RESERVED 1 1\r\na\r\n");
    has(producer, "stats-job 1", {"state: reserved"});
    if (quits) {
      consumer.send("quit\r\n");
      EXPECT_EQ(consumer.rest(), "");
    } else {
      consumer.close();
    }
    play(producer, {{"reserve-with-timeout 60", "RESERVED 1 1\r\na"}});
  }
}

// ---- Pauses -------------------------------------------------------------------------------------

TEST_P(a_beanstalk_server, hands_nothing_out_of_a_tube_that_is_paused) {
  start();
  wire w = connect();
  play(w, {{"put 0 0 0 1\r\nx", "INSERTED 1"}});
  const auto begin = std::chrono::steady_clock::now();
  play(w, {{"pause-tube default 1", "PAUSED"}, {"reserve", "RESERVED 1 1\r\nx"}});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 990ms);
}

TEST_P(a_beanstalk_server, ends_a_pause_when_it_is_told_to) {
  start();
  wire w = connect();
  wire other = connect();
  play(w, {{"put 0 0 0 0\r\n", "INSERTED 1"}, {"pause-tube default 86400", "PAUSED"}});
  other.send("reserve\r\n");
  while (w.ask("stats\r\n").find("current-waiting: 1\n") == std::string::npos) {
  }
  play(w, {{"pause-tube default 0", "PAUSED"}});
  EXPECT_EQ(other.reply(), "RESERVED 1 0\r\n\r\n");
}

// ---- What is shown ------------------------------------------------------------------------------

TEST_P(a_beanstalk_server, shows_a_task_with_no_time_left_while_it_is_ready) {
  start();
  wire w = connect();
  play(w, {{"put 0 0 5 1\r\na", "INSERTED 1"}});
  has(w, "stats-job 1",
      {"id: 1", "tube: default", "state: ready", "pri: 0", "delay: 0", "ttr: 5", "time-left: 0",
       "reserves: 0", "timeouts: 0", "releases: 0", "buries: 0", "kicks: 0"});
  play(w, {{"stats-job 111ABC", "BAD_FORMAT"},
           {"stats-job 111 222", "BAD_FORMAT"},
           {"stats-job 111", "NOT_FOUND"}});
}

TEST_P(a_beanstalk_server, counts_for_each_tube) {
  start();
  wire w = connect();
  play(w,
       {{"use tubea", "USING tubea"}, {"put 0 0 0 1\r\nx", "INSERTED 1"}, {"delete 1", "DELETED"}});
  const std::vector<std::string> none{"current-jobs-urgent: 0",   "current-jobs-ready: 0",
                                      "current-jobs-reserved: 0", "current-jobs-delayed: 0",
                                      "current-jobs-buried: 0",   "current-waiting: 0",
                                      "cmd-pause-tube: 0",        "pause: 0",
                                      "pause-time-left: 0"};
  has(w, "stats-tube tubea", none);
  has(w, "stats-tube tubea",
      {"name: tubea", "total-jobs: 1", "current-using: 1", "current-watching: 0", "cmd-delete: 1"});
  has(w, "stats-tube default", none);
  has(w, "stats-tube default",
      {"name: default", "total-jobs: 0", "current-using: 0", "current-watching: 1",
       "cmd-delete: 0"});
  play(w, {{"stats-tube nosuch", "NOT_FOUND"}});
}

TEST_P(a_beanstalk_server, lists_tubes_and_keeps_one_watched) {
  play_one({{"watch w", "WATCHING 2"},
            {"use u", "USING u"},
            {"list-tubes", list({"default", "w", "u"})},
            {"list-tube-used", "USING u"},
            {"list-tubes-watched", list({"default", "w"})},
            {"ignore default", "WATCHING 1"},
            {"list-tubes-watched", list({"w"})},
            {"ignore w", "NOT_IGNORED"}});
}

// ---- Over a restart -----------------------------------------------------------------------------

TEST_P(a_beanstalk_server, starts_again_after_it_had_nothing) {
  start(true);
  restart();
  wire w = connect();
  play(w, {{"put 0 0 0 0\r\n", "INSERTED 1"}});
}

TEST_P(a_beanstalk_server, keeps_tasks_and_deletions_over_a_restart) {
  start(true);
  {
    wire w = connect();
    play(w, {{"use test", "USING test"},
             {"put 0 0 120 4\r\ntest", "INSERTED 1"},
             {"put 0 0 120 4\r\ntes1", "INSERTED 2"},
             {"put 0 0 120 4\r\ntes2", "INSERTED 3"},
             {"watch test", "WATCHING 2"},
             {"reserve", "RESERVED 1 4\r\ntest"},
             {"release 1 1 1", "RELEASED"},
             {"reserve", "RESERVED 2 4\r\ntes1"},
             {"delete 2", "DELETED"},
             {"reserve", "RESERVED 3 4\r\ntes2"},
             {"bury 3 0", "BURIED"}});
  }
  restart();
  wire w = connect();
  play(w, {{"watch test", "WATCHING 2"},
           {"reserve-with-timeout 60", "RESERVED 1 4\r\ntest"},
           {"delete 1", "DELETED"},
           {"delete 2", "NOT_FOUND"},
           {"use test", "USING test"},
           {"peek-buried", "FOUND 3 4\r\ntes2"},
           {"kick 1", "KICKED 1"}});
}

TEST_P(a_beanstalk_server, puts_and_deletes_a_hundred_on_disk) {
  start(true);
  wire w = connect();
  for (int i = 1; i <= 100; ++i) {
    play(w, {{"put 0 0 120 22\r\nsomething of 22 bytes.", "INSERTED " + std::to_string(i)}});
  }
  for (int i = 1; i <= 100; ++i) play(w, {{"delete " + std::to_string(i), "DELETED"}});
}

// ---- What differs on purpose: the table in docs/tasks.md ----------------------------------------

class a_chosen_difference : public a_beanstalk_server {
 protected:
  const std::string& of(const std::string& ours, const std::string& theirs) const {
    return GetParam() == side::ours ? ours : theirs;
  }
};

TEST_P(a_chosen_difference, is_the_order_of_tasks_with_one_priority_of_which_one_was_delayed) {
  start();
  wire w = connect();
  play(w, {{"put 5 1 60 1\r\na", "INSERTED 1"}, {"put 5 0 60 1\r\nb", "INSERTED 2"}});
  while (w.ask("peek-delayed\r\n") != "NOT_FOUND\r\n") {
  }
  play(w, {{"reserve", of("RESERVED 2 1\r\nb", "RESERVED 1 1\r\na")},
           {"reserve", of("RESERVED 1 1\r\na", "RESERVED 2 1\r\nb")}});
}

TEST_P(a_chosen_difference, is_a_negative_time_to_wait) {
  start();
  wire w = connect();
  w.send("reserve-with-timeout -1\r\n");
  if (GetParam() == side::theirs) {
    wire other = connect();
    while (other.ask("stats\r\n").find("current-waiting: 1\n") == std::string::npos) {
    }
    play(other, {{"put 0 0 60 0\r\n", "INSERTED 1"}});
  }
  EXPECT_EQ(w.reply(), of("BAD_FORMAT\r\n", "RESERVED 1 0\r\n\r\n"));
}

TEST_P(a_chosen_difference, is_when_a_task_gets_its_id) {
  start();
  wire w = connect();
  w.send("list-tube-used\r\nput 0 0 60 4\r\nhal");  // its line has been read, most likely
  EXPECT_EQ(w.reply(), "USING default\r\n");
  wire other = connect();
  play(other, {{"put 0 0 60 0\r\n", of("INSERTED 1", "INSERTED 2")}});
}

const auto name_of_side = [](const auto& p) { return p.param == side::ours ? "ours" : "theirs"; };
INSTANTIATE_TEST_SUITE_P(both, a_chosen_difference, testing::Values(side::ours, side::theirs),
                         name_of_side);
INSTANTIATE_TEST_SUITE_P(both, a_beanstalk_server, testing::Values(side::ours, side::theirs),
                         name_of_side);

}  // namespace
