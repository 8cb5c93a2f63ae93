// The demonstration: a shop reminds each customer who has not paid, a while after the order.
//
//   ./dev demo [--quick] [--engine NAME] [--orders N]
//
// One thread takes the orders and starts a reminder for each; another takes the payments and stops
// the reminders of those who pay, and puts off those of customers who ask for more time. What is not
// stopped fires. At the end the books have to balance: every reminder was either stopped or fired,
// none of them both, and none fired early. A million orders take some ten seconds.

#include <verge/runtime.h>
#include <verge/time.h>
#include <verge/version.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

using namespace std::chrono_literals;

struct options {
  std::size_t orders = 1'000'000;
  std::chrono::milliseconds patience = 5s;
  verge::engine engine = verge::runtime_options{}.engine;
};

/// What has become of the orders so far.
struct books {
  std::atomic<std::uint64_t> placed{0};
  std::atomic<std::uint64_t> paid{0};
  std::atomic<std::uint64_t> put_off{0};
  std::atomic<std::uint64_t> reminded{0};
  std::atomic<std::uint64_t> early{0};
};

struct order {
  verge::timer reminder;
  std::atomic<verge::time_point> not_before{verge::time_point{}};
};

class shop {
 public:
  explicit shop(const options& o)
      : options_(o), runtime_({.engine = o.engine}), orders_(o.orders) {}

  bool open() {
    std::printf("%zu reminders on engine %s, %u processors\n", orders_.size(),
                std::string(verge::name_of(options_.engine)).c_str(), runtime_.processors());
    std::thread counter([this] { runtime_.run([this] { take_orders(); }); });
    std::thread till([this] { take_payments(); });
    const auto closing = [this] { return books_.paid + books_.reminded == orders_.size(); };
    while (!closing()) {
      show_progress();
      verge::sleep(100ms).wait();
    }
    counter.join();
    till.join();
    show_progress();
    std::printf("\n\n");
    return report();
  }

 private:
  void take_orders() {
    std::mt19937_64 random(1);
    const auto half = std::chrono::nanoseconds(options_.patience).count() / 2;
    for (order& o : orders_) {
      const std::chrono::nanoseconds wait(
          half + static_cast<std::int64_t>(random() % std::uint64_t(half)));
      o.not_before = verge::clock::now() + wait;
      o.reminder = verge::after_func(wait, [this, &o] { remind(o); });
      books_.placed.fetch_add(1, std::memory_order_release);
    }
  }

  /// Nine in ten pay, some of them after they have asked for more time.
  void take_payments() {
    std::mt19937_64 random(2);
    for (std::size_t i = 0; i < orders_.size(); ++i) {
      while (books_.placed.load(std::memory_order_acquire) <= i) std::this_thread::yield();
      order& o = orders_[i];
      const std::uint64_t mood = random() % 100;
      if (mood >= 90) continue;
      if (mood >= 70) {
        // A reset that comes too late would remind twice; one that is in time moves the bound first.
        if (!o.reminder.stop()) continue;
        o.not_before = verge::clock::now() + options_.patience / 2;
        o.reminder.reset(options_.patience / 2);
        ++books_.put_off;
        if (mood >= 80) continue;
      }
      if (o.reminder.stop()) ++books_.paid;
    }
  }

  void remind(const order& o) {
    if (verge::clock::now() < o.not_before.load()) ++books_.early;
    ++books_.reminded;
  }

  void show_progress() {
    const std::uint64_t done = books_.paid + books_.reminded;
    const int percent = static_cast<int>(100 * done / orders_.size());
    // On a terminal the line is written over; elsewhere there is one every second.
    static const bool terminal = ::isatty(STDOUT_FILENO) != 0;
    static int calls = 0;
    if (!terminal && calls++ % 10 != 0 && percent != 100) return;
    std::printf("%s  %3d %%  placed %zu  paid %zu  put off %zu  reminded %zu   %s",
                terminal ? "\r" : "", percent, static_cast<std::size_t>(books_.placed),
                static_cast<std::size_t>(books_.paid), static_cast<std::size_t>(books_.put_off),
                static_cast<std::size_t>(books_.reminded), terminal ? "" : "\n");
    std::fflush(stdout);
  }

  bool report() {
    const verge::runtime_stats stats = runtime_.stats();
    const verge::lateness_histogram& late = stats.total.lateness;
    std::printf("  %-22s %12llu\n  %-22s %12llu\n  %-22s %12llu\n", "paid in time",
                static_cast<unsigned long long>(books_.paid), "reminded",
                static_cast<unsigned long long>(books_.reminded), "reminded too early",
                static_cast<unsigned long long>(books_.early));
    std::printf("  %-22s %9.1f MB\n\n", "memory for timers",
                static_cast<double>(stats.timer_bytes) / 1e6);

    std::printf("how late the reminders were\n");
    for (const double q : {0.5, 0.9, 0.99, 0.999, 1.0}) {
      std::printf("  %5.1f %% within %12.1f us\n", 100 * q,
                  static_cast<double>(late.percentile(q)) / 1e3);
    }
    print_histogram(late);

    const bool balanced = books_.paid + books_.reminded == orders_.size() && books_.early == 0;
    std::printf("\n%s\n", balanced ? "The books balance: none lost, none twice, none early."
                                   : "THE BOOKS DO NOT BALANCE.");
    return balanced;
  }

  /// A line for every power of two, from a microsecond up.
  static void print_histogram(const verge::lateness_histogram& late) {
    constexpr std::size_t per_line = 4;
    constexpr std::size_t first_line = 8;
    constexpr int width = 50;
    std::vector<std::uint64_t> lines(verge::lateness_histogram::bucket_count / per_line);
    for (std::size_t b = 0; b < verge::lateness_histogram::bucket_count; ++b) {
      lines[std::max(b / per_line, first_line)] += late[b];
    }
    const auto used = [](std::uint64_t n) { return n != 0; };
    const auto first = std::find_if(lines.begin(), lines.end(), used);
    const auto last = std::find_if(lines.rbegin(), lines.rend(), used).base();
    const std::uint64_t most = *std::max_element(lines.begin(), lines.end());
    std::printf("\n");
    for (auto line = first; line < last; ++line) {
      const auto index = static_cast<std::size_t>(line - lines.begin());
      const double below =
          static_cast<double>(verge::lateness_histogram::upper_bound(index * per_line + 3)) / 1e3;
      const auto bar = static_cast<std::size_t>(*line * width / std::max<std::uint64_t>(most, 1));
      std::printf("  under %10.1f us %9llu %s\n", below, static_cast<unsigned long long>(*line),
                  std::string(*line != 0 ? std::max<std::size_t>(bar, 1) : 0, '#').c_str());
    }
  }

  options options_;
  verge::runtime runtime_;
  books books_;
  std::vector<order> orders_;
};

constexpr const char* usage = "usage: demo [--quick] [--engine NAME] [--orders N]\n";

options parse(int argc, char** argv) {
  options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw std::invalid_argument(std::string(word) + " wants a value");
      return argv[++i];
    };
    if (word == "--quick") {
      o.orders = 50'000;
      o.patience = 1s;
    } else if (word == "--engine") {
      o.engine = verge::engine_named(value());
    } else if (word == "--orders") {
      const std::string text = value();
      char* end = nullptr;
      const unsigned long long n = std::strtoull(text.c_str(), &end, 10);
      if (*end != '\0' || n == 0 || n > 100'000'000 || text.front() == '-') {
        throw std::invalid_argument("--orders wants a number from 1 to 100000000, not " + text);
      }
      o.orders = n;
    } else if (word == "--help") {
      std::printf("%s", usage);
      std::exit(0);
    } else {
      throw std::invalid_argument("there is no option " + std::string(word));
    }
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return shop(parse(argc, argv)).open() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "demo: %s\n%s", e.what(), usage);
    return 2;
  }
}
