// SPDX-License-Identifier: Apache-2.0

// The demonstration: a shop with a million open orders, each with a reminder unless it is paid.
//
//   ./dev demo [--quick] [--timers N] [--engine NAME]
//
// Every order starts a timer. Two tasks pay nine in ten and postpone one in twenty, at random; the
// rest fire. Meanwhile a line shows the progress. At the end everything is checked: a timer whose
// stop() returned true has not fired, all others have, once, and none was early. A table and a
// histogram show how late the timers were.

#include <verge/clock.h>
#include <verge/runtime.h>
#include <verge/time.h>
#include <verge/version.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <locale>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using seconds = std::chrono::duration<double>;

struct options {
  std::size_t timers{1'000'000};
  nanoseconds first{3s};  ///< no timer is due before, so that all starts and stops are done by then
  nanoseconds last{8s};
  verge::engine engine{verge::engine::hybrid};
};

options parse(const std::vector<std::string_view>& arguments) {
  options chosen;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    const bool has_value = std::next(word) != arguments.end();
    if (*word == "--quick") {
      chosen.timers = 20'000;
      chosen.first = 200ms;
      chosen.last = 1s;
    } else if (*word == "--timers" && has_value) {
      const auto text = *++word;
      const auto [end, error] = std::from_chars(text.begin(), text.end(), chosen.timers);
      if (error != std::errc{} || end != text.end() || chosen.timers < 1 ||
          chosen.timers > 20'000'000)
        throw std::invalid_argument("--timers takes a number from 1 to 20000000");
    } else if (*word == "--engine" && has_value) {
      chosen.engine = verge::engine_named(*++word);
    } else {
      throw std::invalid_argument("usage: demo [--quick] [--timers N] [--engine NAME]");
    }
  }
  return chosen;
}

/// One order and its reminder. The task that starts it, the one that stops it and the callback run
/// one after another, so plain fields suffice, except for the two that a callback writes.
struct order {
  verge::timer reminder;
  verge::time_point due;
  bool stopped{false};
  std::atomic<std::uint8_t> fired{0};
  std::atomic<bool> early{false};
};

class shop {
 public:
  explicit shop(const options& chosen)
      : chosen_(chosen), orders_(chosen.timers), runtime_({.engine = chosen.engine}) {}

  bool open() {
    timed("start", orders_.size(), [&] { runtime_.run([&] { place_all(); }); });
    const auto stats = runtime_.stats();
    std::cout << "  " << stats.total.timers_live << " timers live, "
              << stats.timer_bytes / orders_.size() << " bytes each\n";
    timed("stop and reset", orders_.size() * 95 / 100, [&] {
      auto even = runtime_.spawn([&] { pay_or_put_off(0); });
      auto odd = runtime_.spawn([&] { pay_or_put_off(1); });
      even.join();
      odd.join();
    });
    watch();
    print_lateness();
    return balance();
  }

 private:
  void place_all() {
    std::mt19937_64 random(2);
    for (order& o : orders_) {
      const nanoseconds d = delay(random);
      o.due = verge::clock::now() + d;
      o.reminder = verge::after_func(d, [this, &o] { remind(o); });
    }
  }

  nanoseconds delay(std::mt19937_64& random) const {
    return nanoseconds(std::uniform_int_distribution<std::int64_t>(chosen_.first.count(),
                                                                   chosen_.last.count())(random));
  }

  /// The reminder's callback.
  void remind(order& o) {
    if (verge::clock::now() < o.due) o.early = true;
    ++o.fired;
    fired_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Handles every other order: of twenty, eighteen are paid, one is postponed, one is left alone.
  void pay_or_put_off(std::size_t remainder) {
    std::mt19937_64 random(remainder);
    for (std::size_t i = remainder; i < orders_.size(); i += 2) {
      order& o = orders_[i];
      const auto chance = random() % 20;
      if (chance < 18) {
        o.stopped = o.reminder.stop();
        if (o.stopped) ++stopped_;
      } else if (chance == 18) {
        put_off(o, delay(random));
      }
    }
  }

  void put_off(order& o, nanoseconds d) {
    // Only if it is still pending: a reminder that has been sent is not sent again.
    if (!o.reminder.stop()) return;
    o.due = verge::clock::now() + d;
    o.reminder.reset(d);
    ++put_off_;
  }

  /// Shows how many have fired, until all have that will.
  void watch() {
    const bool on_terminal = isatty(STDOUT_FILENO) != 0;
    const std::uint64_t expected = orders_.size() - stopped_;
    const auto patience = verge::clock::now() + chosen_.last + 60s;
    std::cout << "  " << stopped_ << " stopped, " << put_off_ << " postponed, " << expected
              << " left to fire\n";
    for (auto next = verge::clock::now();; next += on_terminal ? 100ms : 1s) {
      while (fired_ < expected && verge::clock::now() < next) std::this_thread::sleep_for(10ms);
      const std::uint64_t fired = fired_;
      std::cout << (on_terminal ? "\r  " : "  ") << fired << " of " << expected << " fired"
                << (on_terminal ? "" : "\n") << std::flush;
      if (fired >= expected || verge::clock::now() > patience) break;
    }
    if (on_terminal) std::cout << '\n';
  }

  void print_lateness() const {
    const verge::lateness_histogram late = runtime_.stats().total.lateness;
    const auto microseconds = [](std::int64_t ns) { return static_cast<double>(ns) / 1000; };
    std::cout << "\nHow late the timers were, in microseconds (to the next bucket's end):\n";
    for (const auto& [name, share] :
         {std::pair{"half", .5}, {"90 %", .9}, {"99 %", .99}, {"99.9 %", .999}, {"all", 1.}})
      std::cout << std::setw(8) << name << " at most " << std::setw(12)
                << microseconds(late.percentile(share)) << '\n';

    // Four buckets make one line, a power of two; the first line is everything below 1,024 ns.
    constexpr std::size_t first_line = late.bucket_of(1023) / 4;
    std::vector<std::uint64_t> rows(late.bucket_count / 4 - first_line);
    for (std::size_t b = 0; b < late.bucket_count; ++b)
      rows[std::max(b / 4, first_line) - first_line] += late[b];
    const std::uint64_t most =
        std::max<std::uint64_t>(1, *std::max_element(rows.begin(), rows.end()));
    const auto some = [](std::uint64_t n) { return n > 0; };
    const auto begin = std::find_if(rows.begin(), rows.end(), some);
    const auto end = std::find_if(rows.rbegin(), rows.rend(), some).base();
    std::cout << '\n';
    for (auto row = begin; row < end; ++row) {
      const auto line = first_line + static_cast<std::size_t>(row - rows.begin());
      std::cout << "  up to " << std::setw(12) << microseconds(late.upper_bound(line * 4 + 3))
                << std::setw(11) << *row << ' ' << std::string(*row * 50 / most, '#') << '\n';
    }
  }

  /// Returns whether every timer behaved correctly.
  bool balance() const {
    std::size_t lost = 0, twice = 0, in_spite = 0, early = 0;
    for (const order& o : orders_) {
      lost += !o.stopped && o.fired == 0;
      twice += o.fired > 1;
      in_spite += o.stopped && o.fired > 0;
      early += o.early;
    }
    std::cout << "\nLost: " << lost << ". Fired twice: " << twice
              << ". Fired though stopped: " << in_spite << ". Early: " << early << ".\n";
    return lost + twice + in_spite + early == 0;
  }

  template <class F>
  static void timed(std::string_view what, std::size_t n, F&& f) {
    const auto begin = std::chrono::steady_clock::now();
    std::forward<F>(f)();
    const seconds took = std::chrono::steady_clock::now() - begin;
    std::cout << what << ": " << took.count() << " s, "
              << took.count() / static_cast<double>(n) * 1e9 << " ns each\n";
  }

  options chosen_;
  std::vector<order> orders_;
  std::atomic<std::uint64_t> fired_{0}, stopped_{0}, put_off_{0};
  // Last, so that it is destroyed first: its callbacks use the rest.
  verge::runtime runtime_;
};

struct thousands : std::numpunct<char> {
  char do_thousands_sep() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

int main(int argc, char** argv) {
  options chosen;
  try {
    chosen = parse({argv + 1, argv + argc});
  } catch (const std::invalid_argument& e) {
    std::cerr << e.what() << '\n';
    return 2;
  }
  std::cout.imbue(std::locale(std::locale::classic(), new thousands));
  std::cout << std::fixed << std::setprecision(1) << "verge " << verge::version() << ": "
            << chosen.timers << " timers, due in " << seconds(chosen.first).count() << " to "
            << seconds(chosen.last).count() << " s\n\n";
  return shop(chosen).open() ? 0 : 1;
}
