// SPDX-License-Identifier: Apache-2.0

// Recurring tasks: the calendar, and schedules in the broker.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "broker/schedule.h"
#include "calendar/civil.h"
#include "calendar/timetable.h"
#include "support/lab.h"
#include "support/web_fixture.h"
#include "text/time_text.h"

namespace {

using namespace verge::server;
using namespace verge::server::calendar;
using namespace verge::server::test;
using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

wall_time at(const std::string& text) { return parse_rfc3339(text).value(); }

timetable table_of(const std::string& when, const std::string& zone = "UTC") {
  std::string why;
  auto t = timetable::parse(when, zone, why);
  if (!t) throw std::runtime_error(why);
  return *t;
}

std::vector<std::string> times_after(const timetable& t, const std::string& start, int count) {
  std::vector<std::string> all;
  wall_time now = at(start);
  for (int i = 0; i < count; ++i) {
    now = t.next(now).value();
    all.push_back(format_rfc3339(now));
  }
  return all;
}

bool has_zones() {
  std::string why;
  return zone::load("Europe/Berlin", why) != nullptr;
}

// ---- The calendar ------------------------------------------------------------------------------

TEST(civil, dates_and_days_are_the_same_thing) {
  EXPECT_EQ(days_of({1970, 1, 1}), 0);
  EXPECT_EQ(days_of({2000, 3, 1}), 11'017);
  EXPECT_EQ(weekday_of(0), 4U) << "a Thursday";
  date before = date_of(-1'000'001);
  for (std::int64_t d = -1'000'000; d < 1'000'000; ++d) {
    const date now = date_of(d);
    ASSERT_EQ(days_of(now), d);
    ASSERT_LT(before, now);
    ASSERT_LE(now.day, days_in(now.year, now.month));
    before = now;
  }
}

TEST(cron, refuses_what_is_no_expression_and_says_what_to_write) {
  for (const char* const bad : {"",
                                "* * * *",
                                "* * * * * *",
                                "60 * * * *",
                                "-1 * * * *",
                                "* 24 * * *",
                                "* * 0 * *",
                                "* * 32 * *",
                                "* * * 0 *",
                                "* * * 13 *",
                                "* * * * 8",
                                "5-3 * * * *",
                                "*/0 * * * *",
                                "1,,2 * * * *",
                                ", * * * *",
                                "a * * * *",
                                "* * * foo *",
                                "* * * * mond",
                                "1-2-3 * * * *",
                                "1/2/3 * * * *",
                                "*/x * * * *",
                                "@reboot",
                                "@",
                                "* * * * fri-mon",
                                "1.5 * * * *"}) {
    std::string why;
    EXPECT_FALSE(cron::parse(bad, why)) << bad;
    EXPECT_FALSE(why.empty()) << bad;
  }
  std::string why;
  EXPECT_FALSE(cron::parse("61 * * * *", why));
  EXPECT_THAT(why, HasSubstr("the minute '61' has to be values from 0 to 59"));
  EXPECT_FALSE(timetable::parse("0 0 30 2 *", "UTC", why));
  EXPECT_THAT(why, HasSubstr("never comes"));
  for (const char* const bad :
       {"every", "every ", "every 10", "every 0s", "every 10ms", "every -1h", "every day"}) {
    EXPECT_FALSE(timetable::parse(bad, "UTC", why)) << bad;
  }
}

/// A naive walk over every minute of years, by the definition of the fields.
TEST(cron, fits_the_minutes_that_its_fields_say) {
  struct one {
    const char* text;
    std::function<bool(const date&, unsigned weekday, int hour, int minute)> fits;
  };
  const std::vector<one> all{
      {"*/7 3,5 * * *",
       [](const date&, unsigned, int h, int m) { return m % 7 == 0 && (h == 3 || h == 5); }},
      {"0 12 13 * fri", [](const date& d, unsigned w, int h,
                           int m) { return m == 0 && h == 12 && (d.day == 13 || w == 5); }},
      {"0 12 */2 * 5", [](const date& d, unsigned w, int h,
                          int m) { return m == 0 && h == 12 && d.day % 2 == 1 && w == 5; }},
      {"30 0 29 FEB *", [](const date& d, unsigned, int h,
                           int m) { return m == 30 && h == 0 && d.month == 2 && d.day == 29; }},
      {"5/25 20-23/3 * jun-aug 7,1",
       [](const date& d, unsigned w, int h, int m) {
         return (m == 5 || m == 30 || m == 55) && (h == 20 || h == 23) && d.month >= 6 &&
                d.month <= 8 && w <= 1;
       }},
      {"@monthly",
       [](const date& d, unsigned, int h, int m) { return d.day == 1 && h == 0 && m == 0; }},
  };
  for (const one& o : all) {
    std::string why;
    const auto c = cron::parse(o.text, why);
    ASSERT_TRUE(c) << why;
    const std::int64_t first = days_of({2027, 1, 1});
    std::int64_t expected_after = first * 86'400 - 1;
    for (std::int64_t d = first; d < days_of({2029, 1, 1}); ++d) {
      for (int minute = 0; minute < 1'440; ++minute) {
        if (!o.fits(date_of(d), weekday_of(d), minute / 60, minute % 60)) continue;
        const std::int64_t now = d * 86'400 + minute * 60;
        ASSERT_EQ(c->next(expected_after), now) << o.text;
        expected_after = now;
      }
    }
  }
  EXPECT_EQ(times_after(table_of("0 0 29 2 *"), "2096-03-01T00:00:00Z", 1)[0],
            "2104-02-29T00:00:00Z")
      << "2100 is no leap year";
}

TEST(zones, are_refused_with_a_word) {
  for (const char* const bad : {"Europe/Nowhere", "../../../etc/passwd", "/etc/passwd",
                                "Europe//Berlin", "Europe/", "Europe", "Mars Base", ""}) {
    std::string why;
    if (*bad == '\0') continue;
    EXPECT_EQ(zone::load(bad, why), nullptr) << bad;
    EXPECT_THAT(why, HasSubstr("like Europe/Berlin")) << bad;
  }
}

TEST(zones, survive_files_that_are_cut_short_or_changed) {
  std::ifstream file("/usr/share/zoneinfo/Europe/Berlin", std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), {});
  if (whole.empty()) GTEST_SKIP() << "the system has no time zones";
  ASSERT_NE(zone::parse(whole), nullptr);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const auto z = zone::parse(std::string_view(whole).substr(0, n));
    if (z != nullptr) static_cast<void>(z->at(1'800'000'000));
  }
  for (std::size_t n = 0; n < whole.size(); ++n) {
    std::string other = whole;
    other[n] = static_cast<char>(other[n] ^ 0x41);
    const auto z = zone::parse(other);
    if (z != nullptr) static_cast<void>(z->at(1'800'000'000));
  }
}

/// A file of RFC 8536, with the parts that most zones leave empty.
struct zone_file {
  char version{'2'};
  std::vector<std::pair<std::int64_t, int>> changes;  ///< when, and to which offset
  std::vector<std::int32_t> offsets{0};
  int leaps{0}, is_standard{0}, is_ut{0};
  std::string rule;

  static std::string number(std::int64_t n, int bytes) {
    std::string out;
    for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(n >> (8 * i) & 0xff);
    return out;
  }
  std::string part(int time_bytes, bool empty) const {
    const auto size = [&](std::size_t n) {
      return number(static_cast<std::int64_t>(empty ? 0 : n), 4);
    };
    std::string out = "TZif" + std::string(1, version) + std::string(15, '\0');
    out += size(static_cast<std::size_t>(is_ut)) + size(static_cast<std::size_t>(is_standard)) +
           size(static_cast<std::size_t>(leaps)) + size(changes.size());
    out += number(static_cast<std::int64_t>(empty ? 1 : offsets.size()), 4) + number(4, 4);
    if (empty) return out + std::string(6 + 4, '\0');
    for (const auto& [when, to] : changes) out += number(when, time_bytes);
    for (const auto& [when, to] : changes) out += static_cast<char>(to);
    for (const std::int32_t offset : offsets) out += number(offset, 4) + std::string(2, '\0');
    out += std::string("XST\0", 4);
    for (int i = 0; i < leaps; ++i) out += number(78'796'800 + i, time_bytes) + number(i + 1, 4);
    return out + std::string(static_cast<std::size_t>(is_standard + is_ut), '\1');
  }
  std::string bytes(bool first_part_empty = false) const {
    if (version < '2') return part(4, false);
    return part(4, first_part_empty) + part(8, false) + '\n' + rule + '\n';
  }
};

TEST(zones, of_every_version_and_with_every_part_are_read) {
  for (const char version : {'\0', '2', '3'}) {
    for (int parts = 0; parts < 8; ++parts) {
      const zone_file file{.version = version,
                           .changes = {{1000, 1}, {2000, 0}, {3000, 2}},
                           .offsets = {3'600, 7'200, -1'800},
                           .leaps = parts & 1 ? 27 : 0,
                           .is_standard = parts & 2 ? 3 : 0,
                           .is_ut = parts & 4 ? 3 : 0,
                           .rule = ""};
      for (const bool first_part_empty : {false, true}) {
        const auto z = zone::parse(file.bytes(first_part_empty));
        ASSERT_NE(z, nullptr) << "version " << version << ", parts " << parts;
        EXPECT_EQ(z->at(999).offset, 3'600);
        EXPECT_EQ(z->at(999).end, 1000);
        EXPECT_EQ(z->at(1000).offset, 7'200);
        EXPECT_EQ(z->at(1999).begin, 1000);
        EXPECT_EQ(z->at(2000).offset, 3'600);
        EXPECT_EQ(z->at(3000).offset, -1'800);
        EXPECT_EQ(z->at(1'000'000'000).offset, -1'800) << "there is no rule";
      }
      const std::string bytes = file.bytes();
      const std::size_t needed = bytes.size() - (version < '2' ? 0 : 2);
      EXPECT_NE(zone::parse(std::string_view(bytes).substr(0, needed)), nullptr);
      EXPECT_EQ(zone::parse(std::string_view(bytes).substr(0, needed - 1)), nullptr) << parts;
    }
  }
}

TEST(zones, follow_their_rule_after_the_last_change) {
  const zone_file file{.changes = {{1000, 1}}, .offsets = {3'600, 7'200}, .rule = "XST-5"};
  const auto z = zone::parse(file.bytes());
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->at(999).offset, 3'600);
  EXPECT_EQ(z->at(1000).offset, 5 * 3'600);
  EXPECT_EQ(z->at(1000).begin, 1000);
}

TEST(zones, that_contradict_themselves_are_refused) {
  zone_file unsorted{.changes = {{2000, 0}, {1000, 0}}, .rule = ""};
  EXPECT_EQ(zone::parse(unsorted.bytes()), nullptr);
  zone_file unknown{.changes = {{1000, 1}}, .rule = ""};
  EXPECT_EQ(zone::parse(unknown.bytes()), nullptr) << "there is one offset, number 0";
  zone_file none{.changes = {}, .offsets = {}, .rule = ""};
  EXPECT_EQ(zone::parse(none.bytes()), nullptr);
  zone_file no_rule{.changes = {}, .rule = "CET-1x"};
  EXPECT_EQ(zone::parse(no_rule.bytes()), nullptr);
}

TEST(zone_rules, are_those_of_posix) {
  const auto offsets = [](const char* rule, const char* time) {
    const auto r = zone_rule::parse(rule);
    return r ? r->at(at(time) / second).offset : -1;
  };
  EXPECT_EQ(offsets("CET-1CEST,M3.5.0,M10.5.0/3", "2090-07-01T00:00:00Z"), 7'200);
  EXPECT_EQ(offsets("CET-1CEST,M3.5.0,M10.5.0/3", "2090-12-01T00:00:00Z"), 3'600);
  EXPECT_EQ(offsets("CET-1CEST,M3.5.0,M10.5.0/3", "2027-03-28T00:59:59Z"), 3'600);
  EXPECT_EQ(offsets("CET-1CEST,M3.5.0,M10.5.0/3", "2027-03-28T01:00:00Z"), 7'200);
  EXPECT_EQ(offsets("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "2027-01-01T00:00:00Z"), 39'600);
  EXPECT_EQ(offsets("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "2027-07-01T00:00:00Z"), -3'600);
  EXPECT_EQ(offsets("IST-1GMT0,M10.5.0,M3.5.0/1", "2027-12-01T00:00:00Z"), 0)
      << "winter is special";
  EXPECT_EQ(offsets("XST5XDT,J60/0,J300", "2028-02-29T12:00:00Z"), -5 * 3'600);
  EXPECT_EQ(offsets("XST5XDT,J60/0,J300", "2028-03-01T12:00:00Z"), -4 * 3'600);
  EXPECT_EQ(offsets("XST5XDT,59/0,300", "2028-02-29T12:00:00Z"), -4 * 3'600);
  EXPECT_EQ(offsets("UTC0", "2028-02-29T12:00:00Z"), 0);
  for (const char* const bad :
       {"", "C", "CET", "CET-1CEST", "CET-1CEST,M3.5.0", "CET-1CEST,M13.5.0,M10.5.0",
        "CET-1CEST,M3.6.0,M10.5.0", "CET-1CEST,M3.5.7,M10.5.0", "CET-999", "<CET-1", "CET-1x"}) {
    EXPECT_FALSE(zone_rule::parse(bad)) << bad;
  }
}

/// By croniter and Python's zoneinfo: see cron/oracle.py.
TEST(timetables, are_those_of_another_implementation) {
  if (!has_zones()) GTEST_SKIP() << "the system has no time zones";
  std::ifstream file(VERGE_CRON_TABLE);
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    ++lines;
    std::vector<std::string> parts;
    for (std::size_t from = 0; from <= line.size();) {
      const std::size_t end = std::min(line.find(" | ", from), line.size());
      parts.push_back(line.substr(from, end - from));
      from = end + 3;
    }
    ASSERT_EQ(parts.size(), 4U) << line;
    std::istringstream in(parts[3]);
    const std::vector<std::string> expected((std::istream_iterator<std::string>(in)), {});
    EXPECT_EQ(
        times_after(table_of(parts[0], parts[1]), parts[2], static_cast<int>(expected.size())),
        expected)
        << line;
  }
  EXPECT_GT(lines, 200);
}

TEST(timetables, change_their_clocks_as_the_document_says) {
  if (!has_zones()) GTEST_SKIP() << "the system has no time zones";
  // Berlin, 28 March 2027: 2:00 becomes 3:00, which is 1:00 UTC.
  EXPECT_THAT(times_after(table_of("30 2 * * *", "Europe/Berlin"), "2027-03-27T12:00:00Z", 2),
              ElementsAre("2027-03-28T01:30:00Z", "2027-03-29T00:30:00Z"));
  EXPECT_THAT(times_after(table_of("30 2,3 * * *", "Europe/Berlin"), "2027-03-27T12:00:00Z", 2),
              ElementsAre("2027-03-28T01:30:00Z", "2027-03-29T00:30:00Z"))
      << "both are at the same time, and fire once";
  EXPECT_THAT(times_after(table_of("*/30 * * * *", "Europe/Berlin"), "2027-03-28T00:30:00Z", 2),
              ElementsAre("2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z"));
  // 31 October 2027: 3:00 becomes 2:00, which is 1:00 UTC.
  EXPECT_THAT(times_after(table_of("30 2 * * *", "Europe/Berlin"), "2027-10-30T12:00:00Z", 2),
              ElementsAre("2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"));
  EXPECT_THAT(times_after(table_of("30 * * * *", "Europe/Berlin"), "2027-10-31T00:00:00Z", 3),
              ElementsAre("2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "2027-10-31T02:30:00Z"));
  // Lord Howe moves its clocks by half an hour: 4 October 2026, 2:00 becomes 2:30.
  EXPECT_THAT(times_after(table_of("15 2 * * *", "Australia/Lord_Howe"), "2026-10-03T12:00:00Z", 2),
              ElementsAre("2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"));
}

TEST(timetables, of_an_interval_are_aligned) {
  EXPECT_THAT(times_after(table_of("every 10m"), "2026-11-16T12:03:07.5Z", 3),
              ElementsAre("2026-11-16T12:10:00Z", "2026-11-16T12:20:00Z", "2026-11-16T12:30:00Z"));
  EXPECT_THAT(times_after(table_of("every 1d"), "2026-11-16T00:00:00Z", 1),
              ElementsAre("2026-11-17T00:00:00Z"));
  EXPECT_FALSE(table_of("every 1d").next(std::numeric_limits<wall_time>::max()))
      << "the end of time";
  EXPECT_FALSE(table_of("@daily").next(std::numeric_limits<wall_time>::max()));
}

TEST(timetables, know_the_latest_of_their_times) {
  const wall_time to = at("2027-06-15T12:34:56Z");
  for (const char* const when : {"every 7s", "* * * * *", "0 3 * * *", "0 0 1 1 *", "0 0 29 2 *"}) {
    const timetable t = table_of(when);
    for (const nanoseconds back : {0L, 30L, 3'600L, 86'400L, 40L * 86'400}) {
      std::vector<wall_time> all;
      const wall_time from = to - back * second;
      for (auto n = t.next(from - 1); n && *n <= to; n = t.next(*n)) all.push_back(*n);
      for (const std::size_t most : {std::size_t{1}, std::size_t{10}, std::size_t{1'000}}) {
        auto expected = all;
        if (expected.size() > most) {
          expected.erase(expected.begin(), expected.end() - static_cast<std::ptrdiff_t>(most));
        }
        EXPECT_EQ(t.latest(from, to, most), expected) << when << ", " << back << " s back";
      }
    }
  }
  EXPECT_EQ(table_of("every 1s").latest(at("1970-01-02T00:00:00Z"), to, 1'000).size(), 1'000U)
      << "without walking through half a century";
}

// ---- What is fired -----------------------------------------------------------------------------

TEST(missed_times, are_skipped_or_caught_up_with) {
  const timetable hourly = table_of("@hourly");
  schedule s;
  s.next = at("2027-01-01T01:00:00Z");
  const auto due = [&](if_missed m, const std::string& now) {
    s.missed = m;
    std::vector<std::string> all;
    for (const wall_time t : due_times(hourly, s, at(now))) all.push_back(format_rfc3339(t));
    return all;
  };
  EXPECT_THAT(due(if_missed::skip, "2027-01-01T00:59:59Z"), IsEmpty());
  EXPECT_THAT(due(if_missed::skip, "2027-01-01T01:00:00Z"), ElementsAre("2027-01-01T01:00:00Z"));
  EXPECT_THAT(due(if_missed::skip, "2027-01-01T01:01:00Z"), ElementsAre("2027-01-01T01:00:00Z"))
      << "a minute late is not missed";
  EXPECT_THAT(due(if_missed::skip, "2027-01-01T05:30:00Z"), IsEmpty());
  EXPECT_THAT(due(if_missed::skip, "2027-01-01T05:00:10Z"), ElementsAre("2027-01-01T05:00:00Z"));
  EXPECT_THAT(due(if_missed::once, "2027-01-01T05:30:00Z"), ElementsAre("2027-01-01T05:00:00Z"));
  EXPECT_THAT(due(if_missed::all, "2027-01-01T03:30:00Z"),
              ElementsAre("2027-01-01T01:00:00Z", "2027-01-01T02:00:00Z", "2027-01-01T03:00:00Z"));
  const auto year = due(if_missed::all, "2028-01-01T00:30:00Z");
  EXPECT_EQ(year.size(), most_missed);
  EXPECT_EQ(year.back(), "2028-01-01T00:00:00Z");
}

TEST(schedules, are_the_same_when_they_are_read_again) {
  schedule s;
  s.name = "a.b-c_1";
  s.tube = "t";
  s.when = "1 2 3 4 5";
  s.zone = "Europe/Berlin";
  s.missed = if_missed::all;
  s.what.body = std::string("\0\xff\n", 3);
  s.what.priority = 7;
  s.what.ttr = 8;
  s.what.max_attempts = 9;
  s.what.backoff = 10;
  s.what.dead_letter = "d";
  s.what.url = "http://x/";
  s.next = 11;
  s.last = -12;
  s.fired = 13;
  s.stretches = {{-20, -12}, {1, 2}};
  const schedule r = parse_schedule_note(schedule_note(s));
  EXPECT_EQ(schedule_note(r), schedule_note(s));
  EXPECT_EQ(r.what.body, s.what.body);
  EXPECT_THROW(static_cast<void>(parse_schedule_note("{}")), store_error);
  for (const char* const bad : {"", "a b", "a/b", "\xc3\xbc"}) EXPECT_FALSE(is_schedule_name(bad));
  EXPECT_FALSE(is_schedule_name(std::string(101, 'a')));
}

/// The keys of all tasks that come out of a tube, each of which is deleted.
class worker {
 public:
  explicit worker(lab& l) : lab_(l), c_(l.connect()) { lab_.say(c_, "watch t\r\n"); }
  void again() {
    c_ = lab_.connect();
    lab_.say(c_, "watch t\r\n");
  }
  void drain() {
    for (;;) {
      const std::string got = lab_.say(c_, "reserve-with-timeout 0\r\n");
      if (!got.starts_with("RESERVED ")) return;
      const std::string id = got.substr(9, got.find(' ', 9) - 9);
      auto seen = std::make_shared<key_reader>();
      command ask(verb::stats_task, std::stoull(id));
      lab_.run_with(seen, std::move(ask));
      lab_.run_with(seen, command(verb::leave));
      ++keys[seen->key];
      EXPECT_LE(at(seen->key.substr(seen->key.find('@') + 1)), lab_.wall) << "early";
      lab_.say(c_, fmt::format("delete {}\r\n", id));
    }
  }
  std::map<std::string, int> keys;

 private:
  class key_reader final : public client {
   public:
    void deliver(reply r) override { key = std::get<task_view>(*r.shown).fields.key; }
    void flush() noexcept override {}
    void left() noexcept override {}
    std::string key;
  };
  lab& lab_;
  std::shared_ptr<recording_client> c_;
};

command set_command(const std::string& name, const std::string& when, if_missed missed,
                    const std::string& zone = "") {
  auto s = std::make_shared<schedule>();
  s->name = name;
  s->tube = "t";
  s->when = when;
  s->zone = zone;
  s->missed = missed;
  s->what.body = "x";
  s->what.ttr = 60 * second;
  command c(verb::set_schedule);
  c.recurs = s;
  return c;
}

/// A week of ten-minute firings, with a crash every few of them: each time once.
TEST(recurring_tasks, come_once_each_whatever_crashes) {
  lab l;
  l.wall = at("2027-01-01T00:00:00Z");
  worker w(l);
  auto boss = l.connect();
  l.run(boss, set_command("tick", "every 10m", if_missed::all));
  std::set<std::string> expected;
  for (int i = 1; i <= 7 * 144; ++i) {
    l.pass(9min + 59s);
    w.drain();
    if (i % 5 == 0) {
      l.restart();
      w.again();
    }
    if (i % 50 == 7) {  // down for an hour: six are missed and caught up with
      l.now += 1h;
      l.wall += 3'600 * second;
      l.restart();
      w.again();
    }
    l.pass(1s);
    w.drain();
    if (i % 7 == 0) {
      l.restart();
      w.again();
      w.drain();
    }
  }
  const wall_time end = l.wall;
  for (wall_time t = at("2027-01-01T00:10:00Z"); t <= end; t += 600 * second) {
    expected.insert(key_of_firing("tick", t));
  }
  std::set<std::string> got;
  for (const auto& [key, times] : w.keys) {
    EXPECT_EQ(times, 1) << key;
    got.insert(key);
  }
  EXPECT_EQ(got, expected);
}

TEST(recurring_tasks, are_not_fired_again_when_the_clock_is_set_back) {
  lab l;
  l.wall = at("2027-01-01T00:00:00Z");
  worker w(l);
  l.run(l.connect(), set_command("tick", "every 1h", if_missed::once));
  l.pass(2h);
  w.drain();
  EXPECT_EQ(w.keys.size(), 2U) << "two hours in one step: one was missed, and one is due";
  l.pass(1h);
  w.drain();
  l.step(-90min);
  l.pass(1h);
  w.drain();
  EXPECT_EQ(w.keys.size(), 3U);
  l.pass(90min);
  w.drain();
  EXPECT_EQ(w.keys.size(), 4U);
  for (const auto& [key, times] : w.keys) EXPECT_EQ(times, 1) << key;
}

/// The clock was a year ahead for a while: times that came then are done with, and those that were
/// passed over come when the clock is right, also after a restart, also if the schedule is set
/// again.
TEST(recurring_tasks, come_again_when_a_clock_that_was_ahead_is_set_right) {
  for (const bool restarts : {false, true}) {
    for (const bool sets : {false, true}) {
      lab l;
      l.wall = at("2027-01-01T00:00:00Z");
      worker w(l);
      auto boss = l.connect();
      const command set = set_command("tick", "every 1h", if_missed::once);
      l.run(boss, set);
      l.pass(1h);
      w.drain();
      l.step(24h * 365);
      l.pass(1h);
      w.drain();
      EXPECT_THAT(w.keys, testing::Contains(testing::Key("tick@2028-01-01T02:00:00Z")));
      const std::size_t before = w.keys.size();
      if (restarts) {
        l.wall -= 24 * 365 * 3'600 * second;
        l.restart();
        w.again();
        boss = l.connect();
      } else {
        l.step(-24h * 365);
      }
      if (sets) l.run(boss, set);
      l.pass(59min);
      l.pass(1min);
      w.drain();
      EXPECT_EQ(w.keys.size(), before + 1) << restarts << sets;
      EXPECT_THAT(w.keys, testing::Contains(testing::Key("tick@2027-01-01T03:00:00Z")));
      // In a year the three that were fired are left out.
      l.pass(24h * 365 - 4h);
      w.drain();
      const std::size_t then = w.keys.size();
      for (int i = 0; i < 6; ++i) {
        l.pass(1h);
        w.drain();
      }
      EXPECT_EQ(w.keys.size(), then + 3);
      for (const auto& [key, times] : w.keys) EXPECT_EQ(times, 1) << key;
    }
  }
}

TEST(fired_times, are_stretches_that_grow_together) {
  const timetable hourly = table_of("@hourly");
  const auto hour = [](int n) { return at("2027-01-01T00:00:00Z") + n * 3'600 * second; };
  fired_stretches all;
  for (const int n : {5, 1, 2, 7, 6, 3}) note_fired(all, hourly, hour(n));
  EXPECT_EQ(all, (fired_stretches{{hour(1), hour(3)}, {hour(5), hour(7)}}));
  for (int n = 0; n < 10; ++n) {
    EXPECT_EQ(was_fired(all, hour(n)), n != 0 && n != 4 && n < 8) << n;
  }
  EXPECT_EQ(next_unfired(all, hourly, hour(0)), hour(4));
  EXPECT_EQ(next_unfired(all, hourly, hour(4)), hour(8));
  note_fired(all, hourly, hour(4));
  EXPECT_EQ(all, (fired_stretches{{hour(1), hour(7)}}));
  for (int n = 10; n < 100; n += 2) note_fired(all, hourly, hour(n));
  EXPECT_EQ(all.size(), most_stretches);
  EXPECT_TRUE(was_fired(all, hour(98))) << "the earliest are forgotten";
}

TEST(recurring_tasks, stop_when_they_are_removed_and_wait_while_the_server_drains) {
  lab l;
  l.wall = at("2027-01-01T00:00:00Z");
  worker w(l);
  auto boss = l.connect();
  l.run(boss, set_command("tick", "every 1h", if_missed::all));
  l.run(boss, command(verb::drain, 1));
  l.pass(1h);
  l.pass(1h);
  w.drain();
  EXPECT_THAT(w.keys, IsEmpty());
  EXPECT_FALSE(l.it().next_due()) << "and the committer is not kept awake";
  l.run(boss, command(verb::drain, 0));
  l.pass(1s);
  w.drain();
  EXPECT_EQ(w.keys.size(), 2U) << "caught up with";
  command gone(verb::remove_schedule);
  gone.text = "tick";
  l.run(boss, gone);
  l.restart();
  w.again();
  l.pass(24h);
  w.drain();
  EXPECT_EQ(w.keys.size(), 2U);
  EXPECT_FALSE(l.it().next_due());
}

TEST(recurring_tasks, keep_their_place_when_they_are_set_again) {
  lab l;
  l.wall = at("2027-01-01T00:30:00Z");
  worker w(l);
  auto boss = l.connect();
  l.run(boss, set_command("tick", "@hourly", if_missed::once));
  l.pass(29min + 59s);
  // The time comes in the same round as the new settings.
  l.now += 1s;
  l.wall += second;
  l.run(boss, set_command("tick", "@hourly", if_missed::skip));
  w.drain();
  EXPECT_EQ(w.keys.count("tick@2027-01-01T01:00:00Z"), 1U);
  l.run(boss, set_command("tick", "30 * * * *", if_missed::skip));
  l.pass(30min);
  w.drain();
  EXPECT_EQ(w.keys.count("tick@2027-01-01T01:30:00Z"), 1U);
  EXPECT_EQ(w.keys.size(), 2U);
}

// ---- Over HTTP ---------------------------------------------------------------------------------

using a_server_with_schedules = web_fixture;

TEST_F(a_server_with_schedules, fires_and_keeps_them_over_a_restart) {
  start();
  const json made =
      judge(201, "PUT", "/v1/schedules/{name}",
            web().ask("PUT", "/v1/schedules/tick",
                      R"({"when":"every 1s","tube":"t","task":{"body":"tock","priority":7}})"))
          .json();
  EXPECT_EQ(made["upcoming"].size(), 5U);
  EXPECT_EQ(made["zone"], "UTC");
  const json got = web().ask("POST", "/v1/tubes/t/reserve?wait=60s").json()["tasks"][0];
  EXPECT_EQ(got["body"], "tock");
  EXPECT_EQ(got["priority"], 7);
  EXPECT_EQ(got["key"], "tick@" + made["upcoming"][0].get<std::string>());
  restart();
  const json after = web().ask("GET", "/v1/schedules/tick").json();
  EXPECT_GE(after["fired"], 1);
  const json next = web().ask("POST", "/v1/tubes/t/reserve?wait=60s&max=1").json()["tasks"][0];
  EXPECT_NE(next["key"], got["key"]);
  EXPECT_EQ(web().ask("GET", "/v1/schedules").json()["schedules"][0]["name"], "tick");
  EXPECT_EQ(web().ask("DELETE", "/v1/schedules/tick").status, 200);
}

TEST_F(a_server_with_schedules, says_what_is_wrong) {
  start();
  const std::vector<std::pair<const char*, const char*>> table{
      {R"({"tube":"t","task":{"body":"x"}})", "/when"},
      {R"({"when":"* * *","tube":"t","task":{"body":"x"}})", "/when"},
      {R"({"when":"0 0 31 2 *","tube":"t","task":{"body":"x"}})", "/when"},
      {R"({"when":"@daily","task":{"body":"x"}})", "/tube"},
      {R"({"when":"@daily","tube":"-","task":{"body":"x"}})", "/tube"},
      {R"({"when":"@daily","tube":"t"})", "/task"},
      {R"({"when":"@daily","tube":"t","task":{}})", "/task/body"},
      {R"({"when":"@daily","tube":"t","task":{"body":"x","key":"k"}})", "/task/key"},
      {R"({"when":"@daily","tube":"t","task":{"body":"x","delay":1}})", "/task/delay"},
      {R"({"when":"@daily","tube":"t","zone":"Mars","task":{"body":"x"}})", "/zone"},
      {R"({"when":"@daily","tube":"t","if_missed":"never","task":{"body":"x"}})", "/if_missed"},
      {R"({"when":"@daily","tube":"t","task":{"body":"x"},"more":1})", "/more"},
  };
  for (const auto& [body, where] : table) {
    const http_answer a = web().ask("PUT", "/v1/schedules/s", body);
    EXPECT_EQ(a.status, 400) << body;
    EXPECT_EQ(a.json()["where"], where) << body;
  }
}

}  // namespace
