// SPDX-License-Identifier: Apache-2.0

// The inspector: what it serves, and to which requests.

#include <verge/inspect.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <support/json_reader.h>
#include <support/patience.h>
#include <verge/context.h>
#include <verge/dump.h>
#include <verge/net.h>
#include <verge/task.h>
#include <verge/time.h>

#include <inspect/due_counts.h>
#include <inspect/history.h>
#include <inspect/request.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using testing::HasSubstr;
using verge::test::json;

struct answer {
  int status{0};
  std::string head;
  std::string body;
};

/// Sends bytes as they are, and reads until the connection is closed.
answer talk(const verge::inspector& with, const std::string& request) {
  auto conn = verge::tcp_conn::connect(with.at()).wait().or_throw();
  static_cast<void>(conn.write_all(request).wait());
  std::string all;
  std::array<char, 16384> bytes;
  for (;;) {
    const auto got = conn.read_some(bytes).wait();
    if (got.error) break;
    all.append(bytes.data(), got.bytes);
  }
  answer a;
  const auto end = all.find("\r\n\r\n");
  if (end == std::string::npos) return a;
  a.head = all.substr(0, end + 2);
  a.body = all.substr(end + 4);
  a.status = std::stoi(a.head.substr(9, 3));
  EXPECT_THAT(a.head, HasSubstr("Content-Length: " + std::to_string(a.body.size()) + "\r\n"));
  return a;
}

answer get(const verge::inspector& with, const std::string& target, const std::string& more = {}) {
  return talk(with, "GET " + target + " HTTP/1.1\r\nHost: localhost:1\r\n" + more + "\r\n");
}

json stats(const verge::inspector& with, const std::string& query = {}) {
  const answer a = get(with, "/stats.json" + query);
  EXPECT_EQ(a.status, 200);
  return verge::test::read_json(a.body);
}

verge::inspector_options anywhere() { return {.at = verge::endpoint::loopback(0)}; }

TEST(inspector, is_at_a_port_of_this_machine_alone_unless_told_otherwise) {
  EXPECT_EQ(verge::inspector_options().at, verge::endpoint::loopback(6060));
}

TEST(inspector, serves_a_page_that_loads_nothing_from_elsewhere) {
  verge::runtime rt({.processors = 2});
  const verge::inspector page(rt, anywhere());
  const answer a = get(page, "/");
  EXPECT_EQ(a.status, 200);
  EXPECT_THAT(a.head, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(a.head, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(a.body, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(a.body, testing::Not(HasSubstr("@nonce@")));
  EXPECT_THAT(a.body, testing::Not(HasSubstr("src=")));
  EXPECT_THAT(a.body, testing::Not(HasSubstr("http:")));
  EXPECT_THAT(a.body, testing::Not(HasSubstr("https:")));
  // The nonce in the policy is the one of the page, and another one each time.
  const auto at = a.head.find("'nonce-");
  ASSERT_NE(at, std::string::npos);
  const std::string nonce = a.head.substr(at + 7, 32);
  EXPECT_THAT(a.body, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(get(page, "/").head, testing::Not(HasSubstr(nonce)));
}

TEST(inspector, tells_what_is_pending_by_time_and_by_label) {
  verge::runtime rt({.processors = 2});
  const verge::inspector page(rt, anywhere());
  std::vector<verge::timer> timers;
  for (int i = 0; i < 3000; ++i) {
    timers.push_back(verge::after_func(rt, 1h, [] {}, {.label = "idle-timeout"}));
  }
  for (int i = 0; i < 1000; ++i) timers.push_back(verge::after_func(rt, 10s, [] {}));
  const json s = stats(page);
  EXPECT_EQ(s["totals"]["pending"].number, 4000);
  EXPECT_EQ(s["totals"]["started"].number, 4000);
  double sum = 0;
  for (const json& n : s["due"]["counts"].array) sum += n.number;
  EXPECT_NEAR(sum, 4000, 2);
  // 1 h is between 2^41 and 2^42 ns.
  const auto first = static_cast<std::size_t>(s["due"]["first_power"].number);
  EXPECT_NEAR(s["due"]["counts"].array[41 - first].number, 3000, 2);
  EXPECT_NEAR(s["due"]["counts"].array[33 - first].number, 1000, 2);
  ASSERT_GE(s["labels"].array.size(), 2);
  EXPECT_EQ(s["labels"].array[0]["name"].text, "idle-timeout");
  EXPECT_NEAR(s["labels"].array[0]["pending"].number, 3000, 2);
  EXPECT_THAT(s["labels"].array[1]["name"].text, HasSubstr("tells_what_is_pending"));
  double slots = 0;
  for (const json& level : s["wheel"]["levels"].array) {
    EXPECT_EQ(level["used"].text.size(), 64);
    for (const char c : level["used"].text) slots += c != '0';
  }
  EXPECT_GE(slots, 2);
  EXPECT_EQ(s["processors"].array.size(), 2);
}

TEST(inspector, tells_how_often_timers_of_a_label_have_fired) {
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  constexpr int times = 7;
  verge::chan<int> done(times);
  for (int i = 0; i < times; ++i) {
    verge::after_func(rt, 1us, [done] { done.try_send(1); }, {.label = "fires"}).detach();
  }
  for (int i = 0; i < times; ++i) done.recv();
  const json labels = stats(page)["labels"];
  double fired = 0;
  for (const json& l : labels.array) fired += l["name"].text == "fires" ? l["fired"].number : 0;
  EXPECT_EQ(fired, times);
}

/// Each in the middle between two powers of two, so that it stays there while the test runs.
TEST(inspector, has_a_row_for_each_power_of_two) {
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  std::vector<verge::timer> timers;
  const auto begin = verge::clock::now();
  constexpr std::size_t least = 37;  // two minutes
  constexpr std::size_t most = 59;
  for (std::size_t power = least; power <= most; ++power) {
    const std::chrono::nanoseconds later(std::int64_t{3} << (power - 1));
    timers.push_back(verge::after_func(rt, begin + later, [] {}));
  }
  for (int i = 0; i < 2; ++i) {
    timers.push_back(verge::after_func(rt, verge::clock::time_point::max(), [] {}));  // 73 years
  }
  const json due = stats(page)["due"];
  const auto first = static_cast<std::size_t>(due["first_power"].number);
  EXPECT_EQ(first, 10U);
  ASSERT_EQ(due["counts"].array.size(), 52U);
  for (std::size_t i = 0; i < 52; ++i) {
    const bool one = i + first >= least && i + first <= most;
    EXPECT_EQ(due["counts"].array[i].number, i + first == 60 ? 2 : one ? 1 : 0) << i;
  }
  EXPECT_EQ(due["overdue"].number, 0);
  const json labels = stats(page)["labels"];
  ASSERT_EQ(labels.array.size(), 2U);
  for (const json& l : labels.array) {
    EXPECT_EQ(l["share_of_turns"].number, 0) << "nothing has run";
    EXPECT_EQ(l["share_of_time"].number, 0);
    EXPECT_EQ(l["fired"].number, 0);
  }
  EXPECT_EQ(due["sampled"].number, static_cast<double>(timers.size()));
}

/// Of what ran, one turn in some is looked at: all of these are of one name.
TEST(due_counts, have_a_row_for_each_power_of_two_and_the_ends_in_the_first_and_the_last) {
  using verge::detail::due_counts;
  const auto row_of = [](std::int64_t left) {
    due_counts counts;
    counts.add(left);
    EXPECT_EQ(counts.overdue, 0U) << left;
    const auto& rows = counts.by_power;
    EXPECT_EQ(std::count(rows.begin(), rows.end(), 0U), 51) << left;
    return std::find(rows.begin(), rows.end(), 1U) - rows.begin();
  };
  for (unsigned power = 0; power < 63; ++power) {
    const auto least = std::int64_t{1} << power;
    const int row = std::clamp(static_cast<int>(power) - 10, 0, 51);
    EXPECT_EQ(row_of(least), row) << power;
    EXPECT_EQ(row_of(least + (least - 1)), row) << power;
  }
  due_counts late;
  late.add(0);
  late.add(-1);
  EXPECT_EQ(late.overdue, 2U);
  EXPECT_EQ(std::count(late.by_power.begin(), late.by_power.end(), 0U), 52);
}

TEST(inspector, gives_shares_of_time_that_add_up_to_one) {
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  const auto pending = verge::after_func(rt, 1h, [] {}, {.label = "pending"});
  const json before = stats(page);
  ASSERT_EQ(before["labels"].array.size(), 1);
  EXPECT_EQ(before["labels"].array[0]["share_of_time"].number, 0) << "nothing has run";
  const auto nothing = [] {};
  for (int i = 0; i < 40; ++i) rt.spawn(nothing).join();
  const json s = stats(page);
  ASSERT_EQ(s["labels"].array.size(), 2);
  EXPECT_EQ(s["labels"].array[1]["share_of_turns"].number, 1);
  EXPECT_EQ(s["labels"].array[1]["share_of_time"].number, 1);
}

/// The deadline of a context has no place in the program.
TEST(inspector, names_what_was_made_at_no_place) {
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  const auto ctx = rt.run([] { return verge::with_timeout(verge::background(), 1h); });
  const json s = stats(page);
  ASSERT_EQ(s["labels"].array.size(), 1);
  EXPECT_EQ(s["labels"].array[0]["name"].text, "deadline of a context");
  EXPECT_EQ(s["labels"].array[0]["place"].text, "");
  EXPECT_EQ(s["labels"].array[0]["pending"].number, 1);
}

TEST(inspector, shows_no_wheel_of_an_engine_that_is_none) {
  verge::runtime rt({.processors = 1, .engine = verge::engine::processor_heap});
  const verge::inspector page(rt, anywhere());
  EXPECT_THAT(get(page, "/stats.json").body, testing::Not(HasSubstr("\"wheel\"")));
}

TEST(inspector, shows_no_times_of_an_engine_that_cannot_tell_them) {
  verge::runtime rt({.processors = 1, .engine = verge::engine::global_heap});
  const verge::inspector page(rt, anywhere());
  const auto t = verge::after_func(rt, 1h, [] {});
  const json all = stats(page);
  EXPECT_EQ(all["totals"]["pending"].number, 1);
  EXPECT_EQ(all["due"]["sampled"].number, 0);
  EXPECT_EQ(all["due"]["overdue"].number, 0);
}

TEST(inspector, of_many_timers_looks_at_some) {
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  std::vector<verge::timer> timers;
  for (int i = 0; i < 200'000; ++i) {
    timers.push_back(verge::after_func(rt, i % 4 == 0 ? 1h : 10s, [] {}));
  }
  const json s = stats(page);
  EXPECT_LT(s["due"]["sampled"].number, 40'000);
  EXPECT_EQ(s["totals"]["pending"].number, 200'000);
  const auto first = static_cast<std::size_t>(s["due"]["first_power"].number);
  EXPECT_NEAR(s["due"]["counts"].array[41 - first].number, 50'000, 10'000);
}

TEST(inspector, shows_the_most_frequent_names_only) {
  std::vector<std::string> names;  // outlives the tasks that are called by them
  for (int i = 0; i < 30; ++i) names.push_back("name " + std::to_string(i));
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  std::vector<verge::timer> timers;
  for (const auto& n : names) {
    timers.push_back(verge::after_func(rt, 1h, [] {}, {.label = n.c_str()}));
    verge::go(rt, [&n]() -> verge::task<> {
      verge::label_task(n.c_str());
      co_await verge::sleep(1h);
    }).detach();
  }
  ASSERT_TRUE(verge::test::eventually([&] { return rt.stats().tasks_waiting == names.size(); }));
  const json s = stats(page);
  EXPECT_EQ(s["labels"].array.size(), 24);
  EXPECT_EQ(s["tasks"].array.size(), 24);
  EXPECT_EQ(s["tasks_seen"].number, 30);
}

verge::task<> waits_for_long() { co_await verge::sleep(1h); }

TEST(inspector, groups_tasks_by_what_they_are_and_wait_for) {
  verge::runtime rt({.processors = 2});
  const verge::inspector page(rt, anywhere());
  std::vector<verge::join_handle<void>> tasks;
  for (int i = 0; i < 20; ++i) tasks.push_back(verge::go(rt, waits_for_long));
  ASSERT_TRUE(verge::test::eventually([&] {
    const json s = stats(page);
    return s["tasks"].array.size() == 1 && s["tasks"].array[0]["waits_for"].text == "sleep";
  }));
  EXPECT_EQ(stats(page)["tasks"].array[0]["count"].number, 20);
  EXPECT_THAT(stats(page)["tasks"].array[0]["name"].text, HasSubstr("waits_for_long"));
  EXPECT_EQ(stats(page)["totals"]["tasks_live"].number, 20);
  for (auto& t : tasks) t.cancel();
}

TEST(inspector, has_a_past_and_gives_what_is_new) {
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  const auto ticker = verge::every(rt, 1ms, [] {});
  ASSERT_TRUE(verge::test::eventually([&] { return stats(page)["history"].array.size() >= 2; }));
  const json s = stats(page);
  const json& last = s["history"].array.back();
  double late = 0;
  for (const json& n : last["lateness"].array) late += n.number;
  EXPECT_EQ(late, last["fired"].number);
  const auto n = static_cast<int>(last["n"].number);
  const json newer = stats(page, "?since=" + std::to_string(n));
  for (const json& h : newer["history"].array) {
    EXPECT_GT(h["n"].number, n);
  }
  EXPECT_EQ(get(page, "/stats.json?since=x").status, 400);
}

TEST(inspector, answers_while_every_processor_is_stuck_and_shows_where) {
  verge::runtime rt({.processors = 2});
  const verge::inspector page(rt, anywhere());
  std::atomic<bool> stop = false;
  std::vector<verge::join_handle<void>> stuck;
  for (int i = 0; i < 2; ++i) {
    stuck.push_back(rt.spawn([&] {
      verge::label_task("stuck here");
      while (!stop) std::this_thread::sleep_for(1ms);
    }));
  }
  EXPECT_TRUE(verge::test::eventually([&] {
    const json s = stats(page);
    return s["totals"]["stalls"].number >= 1 && !s["stalls"].array.empty();
  }));
  const json s = stats(page);
#if !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(s["stalls"].array[0]["what"].text, "stuck here");
  EXPECT_FALSE(s["stalls"].array[0]["backtrace"].array.empty());
#endif
  EXPECT_TRUE(s["processors"].array[0]["runs"].boolean);
  EXPECT_THAT(get(page, "/dump").body, HasSubstr("processor 0: runs"));
  stop = true;
  for (auto& t : stuck) t.join();
}

TEST(inspector, serves_metrics_and_traces) {
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  const auto ticker = verge::every(rt, 1ms, [] {}, verge::missed_ticks::skip, {.label = "beat"});
  const answer metrics = get(page, "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.head, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(metrics.body, HasSubstr("\nverge_timers_started_total "));
  const answer trace = get(page, "/trace?seconds=1");
  EXPECT_EQ(trace.status, 200);
  const json t = verge::test::read_json(trace.body);
  EXPECT_GT(t["traceEvents"].array.size(), 10);
  EXPECT_THAT(trace.body, HasSubstr("\"name\":\"beat\""));
  for (const char* bad : {"0", "31", "x", "", "1.5", "-1"}) {
    EXPECT_EQ(get(page, std::string("/trace?seconds=") + bad).status, 400) << bad;
  }
}

TEST(inspector, refuses_what_it_does_not_know) {
  verge::runtime rt({.processors = 1});
  const verge::inspector page(rt, anywhere());
  EXPECT_EQ(get(page, "/nothing").status, 404);
  EXPECT_EQ(get(page, "/../etc/passwd").status, 404);
  const answer post = talk(page, "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(post.status, 405);
  EXPECT_THAT(post.head, HasSubstr("Allow: GET\r\n"));
  EXPECT_EQ(talk(page, "GET / HTTP/2.0\r\nHost: localhost\r\n\r\n").status, 505);
  EXPECT_EQ(talk(page, "hello\r\n\r\n").status, 400);
  EXPECT_EQ(talk(page, "GET / HTTP/1.1\r\n\r\n").status, 400);  // no host
  const std::string begin = "GET / HTTP/1.1\r\nHost: localhost\r\nX: ";
  const auto of_length = [&](std::size_t n) {
    return begin + std::string(n - begin.size() - 4, 'x') + "\r\n\r\n";
  };
  EXPECT_EQ(talk(page, of_length(verge::detail::longest_request)).status, 200);
  EXPECT_EQ(talk(page, of_length(verge::detail::longest_request + 1)).status, 431);
  // A name that another machine's server resolves to the loopback interface.
  EXPECT_EQ(talk(page, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(talk(page, "GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(talk(page, "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").status, 200);
}

TEST(inspector, asks_for_its_token) {
  verge::runtime rt({.processors = 1});
  const std::string token = "0123456789abcdef";
  const verge::inspector page(rt, {.at = verge::endpoint::loopback(0), .token = token});
  EXPECT_EQ(get(page, "/").status, 401);
  EXPECT_EQ(get(page, "/metrics?token=0123456789abcdeX").status, 401);
  EXPECT_EQ(get(page, "/metrics?token=0123456789abcdef0").status, 401);
  EXPECT_EQ(get(page, "/metrics?token=").status, 401);
  EXPECT_EQ(get(page, "/?token=" + token).status, 200);
  EXPECT_EQ(get(page, "/stats.json?since=0&token=" + token).status, 200);
  EXPECT_EQ(get(page, "/metrics", "Authorization: Bearer " + token + "\r\n").status, 200);
  EXPECT_EQ(get(page, "/metrics", "Authorization: Basic " + token + "\r\n").status, 401);
  // With a token any name will do.
  EXPECT_EQ(talk(page, "GET /?token=" + token + " HTTP/1.1\r\nHost: box.example\r\n\r\n").status,
            200);
  EXPECT_THAT(page.url(), testing::EndsWith("/?token=" + token));
}

TEST(inspector, is_not_made_where_others_could_reach_it_without_a_token) {
  verge::runtime rt({.processors = 1});
  EXPECT_THROW(verge::inspector(rt, {.at = verge::endpoint::any(0)}), std::invalid_argument);
  EXPECT_THROW(verge::inspector(rt, {.at = verge::endpoint::any_v6(0)}), std::invalid_argument);
  EXPECT_THROW(verge::inspector(rt, {.at = verge::endpoint::any(0), .token = "short"}),
               std::invalid_argument);
  EXPECT_THROW(verge::inspector(
                   rt, {.at = verge::endpoint::loopback(0), .token = "not all plain &= letters"}),
               std::invalid_argument);
  EXPECT_THROW(verge::inspector(rt, {.at = verge::endpoint::path("/tmp/s").or_throw()}),
               std::invalid_argument);
  const verge::inspector open(rt, {.at = verge::endpoint::any(0), .token = "0123456789abcdef"});
  EXPECT_THROW(verge::inspector(rt, {.at = open.at(), .token = "0123456789abcdef"}),
               std::system_error);
}

TEST(inspector, needs_no_token_at_the_loopback_address_of_version_6) {
  verge::runtime rt({.processors = 1});
  std::optional<verge::inspector> page;
  try {
    page.emplace(rt, verge::inspector_options{.at = verge::endpoint::loopback_v6(0)});
  } catch (const std::system_error& e) {
    GTEST_SKIP() << "no such addresses here: " << e.what();
  }
  EXPECT_EQ(get(*page, "/").status, 200);
}

TEST(inspector, can_be_destroyed_while_it_answers) {
  verge::runtime rt({.processors = 1});
  for (int i = 0; i < 5; ++i) {
    verge::inspector page(rt, anywhere());
    auto conn = verge::tcp_conn::connect(page.at()).wait().or_throw();
    static_cast<void>(
        conn.write_all(
                std::string_view("GET /trace?seconds=30 HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            .wait());
    std::this_thread::sleep_for(20ms);
  }
  // Its trace has ended with it.
  const verge::inspector page(rt, anywhere());
  EXPECT_EQ(get(page, "/trace?seconds=1").status, 200);
}

/// The rows are powers of two from 2^10 ns; the buckets are quarters of them.
TEST(history, puts_lateness_into_rows_by_powers_of_two) {
  using verge::lateness_histogram;
  using verge::detail::history_second;
  lateness_histogram::recorder once;
  for (std::size_t i = 0; i < lateness_histogram::bucket_count; ++i) {
    once.record(lateness_histogram::upper_bound(i) - 1);
  }
  verge::detail::history past;
  verge::runtime_stats figures;
  past.add(figures, 1);
  figures.total.lateness = once.read();
  past.add(figures, 2);
  const history_second s = past.last();
  std::uint64_t seen = 0;
  for (std::size_t row = 0; row < history_second::lateness_rows; ++row) {
    const std::int64_t end = std::int64_t{1} << (history_second::first_power + row + 1);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < lateness_histogram::bucket_count; ++i) {
      below += lateness_histogram::upper_bound(i) <= end;
    }
    if (row + 1 == history_second::lateness_rows) below = lateness_histogram::bucket_count;
    seen += s.lateness[row];
    EXPECT_EQ(seen, below) << "up to row " << row;
  }
}

TEST(history, has_what_was_added_between_two_looks) {
  verge::detail::history past;
  EXPECT_EQ(past.last().number, 0);
  verge::runtime_stats figures;
  figures.timers_started = 10;
  figures.total.timers_stolen = 3;
  figures.total.tasks_stolen = 4;
  figures.processors.resize(1);
  figures.processors[0].busy = 500ms;
  past.add(figures, 1);
  EXPECT_TRUE(past.since(0).empty()) << "the first look has none before it";
  figures.timers_started = 17;
  figures.timers_stopped = 2;
  figures.timers_reset = 3;
  figures.stalls = 4;
  figures.total.timers_fired = 5;
  figures.total.wakeups = 6;
  figures.total.tasks_run = 7;
  figures.total.timers_stolen = 4;
  figures.total.tasks_stolen = 6;
  figures.processors.resize(2);
  figures.processors[0].busy = 1000ms;
  figures.processors[1].busy = 2000ms;
  past.add(figures, 3);
  const auto s = past.last();
  EXPECT_EQ(s.number, 1);
  EXPECT_EQ(s.length, 2);
  EXPECT_EQ(s.started, 7);
  EXPECT_EQ(s.stopped, 2);
  EXPECT_EQ(s.reset, 3);
  EXPECT_EQ(s.stalls, 4);
  EXPECT_EQ(s.fired, 5);
  EXPECT_EQ(s.wakeups, 6);
  EXPECT_EQ(s.turns, 7);
  EXPECT_EQ(s.stolen, 3);
  EXPECT_EQ(s.busy, (std::vector<unsigned>{250, 1000}));
  past.add(verge::runtime_stats(), 3);
  EXPECT_EQ(past.last().started, 0) << "figures that have begun anew";
  EXPECT_EQ(past.last().length, 0);
  for (int i = 0; i < 400; ++i) past.add(figures, 4 + i);
  const auto kept = past.since(0);
  ASSERT_EQ(kept.size(), verge::detail::history::kept);
  EXPECT_EQ(kept.back().number, 402);
  EXPECT_EQ(kept.front().number, 402 - kept.size() + 1) << "the oldest are dropped";
  EXPECT_EQ(past.since(401).size(), 1);
  EXPECT_TRUE(past.since(402).empty());
}

TEST(history, knows_nothing_of_a_processor_that_was_not_there_before) {
  verge::detail::history past;
  verge::runtime_stats figures;
  const auto look = [&](std::vector<std::chrono::nanoseconds> busy, double at) {
    figures.processors.resize(busy.size());
    for (std::size_t i = 0; i < busy.size(); ++i) figures.processors[i].busy = busy[i];
    past.add(figures, at);
    return past.last().busy;
  };
  look({1s, 5s}, 1);
  look({1s}, 2);
  EXPECT_EQ(look({1s, 5500ms}, 3), (std::vector<unsigned>{0, 1000}));
}

TEST(inspect_request, is_read_strictly) {
  using verge::detail::parse_inspect_request;
  const auto status = [](const std::string& head) { return parse_inspect_request(head).status; };
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(status("GET /a?b=c HTTP/1.0\r\nhost:a\r\nX: y z\r\n\r\n"), 200);
  EXPECT_EQ(status("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status(" / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\r\n"), 200);
  EXPECT_EQ(status("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"s), 400);
  EXPECT_EQ(status("GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status("GET /~ HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(status("GET / HTTP/1.1\nHost: a\n\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nword\r\n\r\n"), 400) << "no colon";
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\n: value\r\n\r\n"), 400) << "no name";
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nX: \x1f\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nX: \t ~\r\n\r\n"), 200);
  EXPECT_EQ(status("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status("PUT / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
  EXPECT_EQ(status(""), 400);
  const auto r =
      parse_inspect_request("GET /x?a=1&ab=2 HTTP/1.1\r\nHOST: LocalHost:8\r\n\r\n").request;
  EXPECT_EQ(r.path, "/x");
  EXPECT_EQ(r.host, "localhost");
  EXPECT_EQ(parse_inspect_request("GET / HTTP/1.1\r\nHost:a\r\n\r\n").request.host, "a");
  EXPECT_EQ(verge::detail::query_value(r.query, "ab"), "2");
  EXPECT_EQ(verge::detail::query_value(r.query, "b"), std::nullopt);
  EXPECT_EQ(verge::detail::query_value("a=%41", "a"), std::nullopt);
}

}  // namespace
