// Schedules by the calendar: every day at 03:00, by the wall clock. Timers go by a monotonic clock,
// which is never set; so the time of day is looked at again at least every minute, and a clock that
// is set, or a day of 23 hours, moves the next call and never repeats one.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include <verge/context.h>
#include <verge/simulation.h>
#include <verge/under.h>

using namespace std::chrono_literals;
using wall_time = std::chrono::system_clock::time_point;

namespace {

// [cron]
// The next moment of the schedule after `t`.
using schedule = std::function<wall_time(wall_time t)>;

schedule daily(std::chrono::minutes at) {
  return [at](wall_time t) {
    const auto today = std::chrono::floor<std::chrono::days>(t) + at;
    return today > t ? wall_time(today) : wall_time(today + std::chrono::days(1));
  };
}

verge::task<> run_on(verge::context ctx, schedule next_after, std::function<wall_time()> now,
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

}  // namespace

int main() {
  verge::simulation sim;
  // The wall clock of this test: 2026-11-16 at midnight, and on by the simulated time.
  const auto start = sim.now();
  auto midnight = wall_time(std::chrono::sys_days(std::chrono::year(2026) / 11 / 16));
  const auto now = [&] {
    return midnight + std::chrono::duration_cast<wall_time::duration>(verge::clock::now() - start);
  };
  std::vector<int> hours;
  auto job = verge::go(run_on, verge::background(), daily(3h), now, [&] {
    hours.push_back(static_cast<int>((verge::clock::now() - start) / 1h));
  });
  sim.run_for(48h);
  midnight += 2h;  // an administrator sets the clock
  sim.run_for(24h);
  job.cancel();
  std::printf("called after");
  for (const int h : hours) std::printf(" %d", h);
  std::printf(" hours\n");
  return hours == std::vector{3, 27, 49} ? 0 : 1;
}
