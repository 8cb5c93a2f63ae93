// SPDX-License-Identifier: Apache-2.0

// Schedules by the calendar, as cron has them, in local time. Timers go by a monotonic clock, which
// is never set; so the wall clock is looked at again at least every minute, and a clock that is
// set, or a day of 23 or 25 hours, moves the next call and never repeats one.

#include <time.h>  // localtime_r: not in <ctime>

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <verge/context.h>
#include <verge/simulation.h>
#include <verge/under.h>

using namespace std::chrono_literals;
using wall_time = std::chrono::system_clock::time_point;

namespace {

// [cron]
// "30 2 * * 1-5": minute, hour, day of the month, month, day of the week; *, lists, ranges, steps.
class cron {
 public:
  explicit cron(const std::string& expression) {
    constexpr std::array<std::pair<int, int>, 5> limits{
        {{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}}};
    std::istringstream in(expression);
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      std::string text;
      if (!(in >> text)) throw std::invalid_argument("five fields, not: " + expression);
      any_[i] = text[0] == '*';
      std::istringstream parts(text);
      for (std::string part; std::getline(parts, part, ',');)
        add(fields_[i], part, limits[i].first, limits[i].second);
    }
    if (fields_[4][7]) fields_[4].set(0);  // Sunday is 0 and 7
  }

  // The next moment of the schedule after `t`. Where the hour is *, every hour counts. Else a local
  // time counts once a day: one that the clocks skip is due when they have, and one that comes
  // twice, the first time.
  wall_time operator()(wall_time t) const {
    time_t at = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::minutes>(t));
    const time_t end = at + 8 * 366 * 86'400;  // February 29 comes within eight years
    while ((at += 60) < end) {
      const tm now = local(at);
      if (day_matches(now)) {
        if (is_due(at, now)) return std::chrono::system_clock::from_time_t(at);
      } else {  // on to the last minute of this day
        tm next{};
        next.tm_year = now.tm_year;
        next.tm_mon = now.tm_mon;
        next.tm_mday = now.tm_mday + 1;
        next.tm_isdst = -1;
        at = std::max(at, mktime(&next) - 60);
      }
    }
    throw std::invalid_argument("there is no such day");
  }

 private:
  using field = std::bitset<60>;

  static void add(field& to, const std::string& part, int first, int last) {
    int step = 1;
    const auto slash = part.find('/');
    if (slash != std::string::npos) step = std::stoi(part.substr(slash + 1));
    if (part[0] != '*') {
      const auto dash = part.find('-');
      const int from = std::stoi(part);
      const int to_ = dash != std::string::npos    ? std::stoi(part.substr(dash + 1))
                      : slash != std::string::npos ? last
                                                   : from;
      if (from < first || to_ > last || from > to_) throw std::invalid_argument("no such " + part);
      first = from;
      last = to_;
    }
    if (step < 1) throw std::invalid_argument("no such " + part);
    for (int n = first; n <= last; n += step) to.set(static_cast<std::size_t>(n));
  }

  static tm local(time_t at) {
    tm out{};
    localtime_r(&at, &out);  // in the time zone of the process: TZ, or /etc/localtime
    return out;
  }

  static bool has(const field& f, int n) { return f[static_cast<std::size_t>(n)]; }

  bool day_matches(const tm& t) const {
    const bool by_month = has(fields_[2], t.tm_mday);
    const bool by_week = has(fields_[4], t.tm_wday);
    const bool day = any_[2] || any_[4] ? by_month && by_week : by_month || by_week;  // as in cron
    return day && has(fields_[3], t.tm_mon + 1);
  }

  bool is_due(time_t at, const tm& now) const {
    const auto matches = [&](int minute) {
      return has(fields_[0], minute % 60) && has(fields_[1], minute / 60);
    };
    const int minute = now.tm_hour * 60 + now.tm_min;
    if (any_[1]) return matches(minute);
    // The clocks may have been moved: back within the last hours, so that they show this time
    // again, or forward in this minute.
    const long back = local(at - 3 * 3600).tm_gmtoff - now.tm_gmtoff;
    if (back > 0 && local(at - back).tm_hour == now.tm_hour &&
        local(at - back).tm_min == now.tm_min)
      return false;
    const long skipped = std::max(0L, now.tm_gmtoff - local(at - 60).tm_gmtoff) / 60;
    for (int m = std::max(0, minute - static_cast<int>(skipped)); m <= minute; ++m)
      if (matches(m)) return true;
    return false;
  }

  std::array<field, 5> fields_;
  std::array<bool, 5> any_{};  // whether a field is *
};

verge::task<> run_on(verge::context ctx, cron next_after, std::function<wall_time()> now,
                     std::function<void()> f) {
  for (wall_time next = next_after(now());; next = next_after(std::max(next, now()))) {
    while (now() < next) {
      const std::chrono::nanoseconds left = next - now();
      co_await verge::under(ctx, verge::sleep(std::min<std::chrono::nanoseconds>(left, 1min)));
    }
    f();
  }
}
// [/cron]

// A wall clock that can be set, on simulated time.
struct wall_clock {
  verge::time_point start = verge::clock::now();
  wall_time shown{};
  wall_time now() const {
    return shown + std::chrono::duration_cast<wall_time::duration>(verge::clock::now() - start);
  }
};

wall_time utc(int year, unsigned month, unsigned day, std::chrono::minutes at = 0min) {
  return std::chrono::sys_days(std::chrono::year(year) / static_cast<int>(month) /
                               static_cast<int>(day)) +
         at;
}

std::string text(wall_time t) {
  const time_t at = std::chrono::system_clock::to_time_t(t);
  tm local{};
  localtime_r(&at, &local);
  std::array<char, 40> out{};
  std::strftime(out.data(), out.size(), "%d.%m. %H:%M %Z", &local);
  return out.data();
}

// When the schedule calls between two times, as the clock on the wall shows it.
std::vector<std::string> calls(const char* expression, wall_time from, wall_time to,
                               std::chrono::minutes set_after = 0min,
                               std::chrono::minutes by = 0min) {
  verge::simulation sim;
  wall_clock wall{.shown = from};
  std::vector<std::string> called;
  auto job = verge::go(
      run_on, verge::background(), cron(expression), [&] { return wall.now(); },
      [&] { called.push_back(text(wall.now())); });
  sim.run_for(set_after);
  wall.shown += by;  // an administrator sets the clock
  sim.run_for(to - wall.now());
  job.cancel();
  return called;
}

bool check(const char* what, const std::vector<std::string>& called,
           const std::vector<std::string>& expected) {
  std::printf("%-38s", what);
  for (const auto& at : called) std::printf(" %s;", at.c_str());
  std::printf("\n");
  return called == expected;
}

}  // namespace

int main() {
  // As in Berlin; by itself, the system's. There is no other thread yet.
  setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);  // NOLINT(concurrency-mt-unsafe)
  tzset();
  bool right =
      check("02:30 on working days:", calls("30 2 * * 1-5", utc(2026, 11, 19), utc(2026, 11, 24)),
            {"19.11. 02:30 CET", "20.11. 02:30 CET", "23.11. 02:30 CET"});
  // March 28, 2027 has 23 hours: there is no 02:30. October 31 has 25: there are two.
  right &= check("02:30, a day of 23 hours:",
                 calls("30 2 * * *", utc(2027, 3, 26, 12h), utc(2027, 3, 29, 12h)),
                 {"27.03. 02:30 CET", "28.03. 03:00 CEST", "29.03. 02:30 CEST"});
  right &= check("02:30, a day of 25 hours:",
                 calls("30 2 * * *", utc(2027, 10, 29, 12h), utc(2027, 11, 1, 12h)),
                 {"30.10. 02:30 CEST", "31.10. 02:30 CEST", "01.11. 02:30 CET"});
  right &= check("every hour, while it goes back:",
                 calls("0 * * * *", utc(2027, 10, 30, 23h + 30min), utc(2027, 10, 31, 2h + 30min)),
                 {"31.10. 02:00 CEST", "31.10. 02:00 CET", "31.10. 03:00 CET"});
  right &= check(
      "the clock is set back by 2 hours:",
      calls("0 3 * * *", utc(2026, 11, 18), utc(2026, 11, 20), 3h, -2h),  // at 04:00, to 02:00
      {"18.11. 03:00 CET", "19.11. 03:00 CET"});
  right &=
      check("and forward by 2 hours:",
            calls("0 3 * * *", utc(2026, 11, 18), utc(2026, 11, 20), 1h, 2h),  // at 02:00, to 04:00
            {"18.11. 04:01 CET", "19.11. 03:00 CET"});
  right &= cron("0 0 29 2 *")(utc(2026, 11, 18)) == utc(2028, 2, 28, 23h);
  right &= cron("*/20 9-17/4 1,15 * *")(utc(2026, 11, 15, 12h + 45min)) == utc(2026, 11, 15, 16h);
  return right ? 0 : 1;
}
