// SPDX-License-Identifier: Apache-2.0

// The inspector on a program that never ends: a shop with a million open orders.
//
//   ./dev demo --inspect [--timers N] [--port P] [--seconds N] [--quick]
//
// Each order has a reminder, between a second and a day from now. Customers pay, and new orders
// come in, or put theirs off; couriers are tasks that sleep most of the time; connections have an
// idle time-out that every message moves. Every 15 seconds a report takes 150 ms on a processor,
// which it should not: the page shows where.

#include <verge/verge.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

struct options {
  std::size_t timers{1'000'000};
  std::uint16_t port{6060};
  std::uint64_t seconds{UINT64_MAX};
};

template <class T>
T number(std::string_view text, T least, T most) {
  T n{};
  const auto [end, error] = std::from_chars(text.begin(), text.end(), n);
  if (error != std::errc{} || end != text.end() || n < least || n > most) {
    throw std::invalid_argument("'" + std::string(text) + "' is not a number from " +
                                std::to_string(least) + " to " + std::to_string(most));
  }
  return n;
}

options parse(const std::vector<std::string_view>& arguments) {
  options chosen;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    const bool has_value = std::next(word) != arguments.end();
    if (*word == "--quick") {
      chosen = {.timers = 20'000, .port = 0, .seconds = 2};
    } else if (*word == "--timers" && has_value) {
      chosen.timers = number<std::size_t>(*++word, 100, 20'000'000);
    } else if (*word == "--port" && has_value) {
      chosen.port = number<std::uint16_t>(*++word, 0, 65535);
    } else if (*word == "--seconds" && has_value) {
      chosen.seconds = number<std::uint64_t>(*++word, 1, 1'000'000);
    } else {
      throw std::invalid_argument(
          "usage: live_shop [--timers N] [--port P] [--seconds N] [--quick]");
    }
  }
  return chosen;
}

/// From a second to a day, each order of magnitude as likely as the others.
nanoseconds some_delay() {
  thread_local std::mt19937_64 random(std::random_device{}());
  const double exponent = std::uniform_real_distribution<double>(0, std::log(86400))(random);
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(std::exp(exponent)));
}

/// Computes for that long.
void compute_for(nanoseconds d) {
  const auto end = verge::clock::now() + d;
  while (verge::clock::now() < end) {
  }
}

class shop {
 public:
  explicit shop(const options& chosen)
      : reminders_(chosen.timers),
        connections_(std::max<std::size_t>(chosen.timers / 100, 10)),
        runtime_({.on_stall = verge::log_stall}),
        page_(runtime_, {.at = verge::endpoint::loopback(chosen.port)}) {
    runtime_.run([&] {
      for (verge::timer& r : reminders_) {
        r = verge::after_func(some_delay(), [&r] { r.reset(some_delay()); }, {.label = "reminder"});
      }
      for (verge::timer& c : connections_) {
        c = verge::after_func(30s, [&c] { c.reset(30s); }, {.label = "idle time-out"});
      }
    });
    for (int i = 0; i < 200; ++i) couriers_.push_back(verge::go(runtime_, courier));
    customers_ = verge::every(runtime_, 10ms, [this] { serve_customers(); });
    report_ = verge::every(runtime_, 15s, [] { compute_for(150ms); }, verge::missed_ticks::skip,
                           {.label = "the report that takes too long"});
  }
  ~shop() {
    for (auto& c : couriers_) c.cancel();
  }

  std::string url() const { return page_.url(); }

 private:
  static verge::task<> courier() {
    verge::label_task("courier");
    for (;;) co_await verge::sleep(some_delay() % 500ms + 20ms);
  }

  /// A hundredth of a second's worth of them.
  void serve_customers() {
    for (std::size_t i = 0; i < reminders_.size() / 500; ++i) {
      verge::timer& r = reminders_[random_() % reminders_.size()];
      if (random_() % 5 != 0) r.stop();  // paid; a new order takes its place
      r.reset(some_delay());             // or it is put off
      connections_[random_() % connections_.size()].reset(30s);
    }
  }

  std::mt19937_64 random_{1};
  std::vector<verge::timer> reminders_;
  std::vector<verge::timer> connections_;
  // Destroyed before what their callbacks use.
  verge::runtime runtime_;
  std::vector<verge::join_handle<void>> couriers_;
  verge::ticker customers_;
  verge::ticker report_;
  verge::inspector page_;
};

std::atomic<bool> interrupted{false};

}  // namespace

int main(int argc, char** argv) {
  options chosen;
  try {
    chosen = parse({argv + 1, argv + argc});
    std::signal(SIGINT, [](int) { interrupted = true; });
    std::signal(SIGTERM, [](int) { interrupted = true; });
    const shop open(chosen);
    std::cout << chosen.timers << " timers; look at " << open.url() << std::endl;
    for (std::uint64_t s = 0; s < chosen.seconds * 10 && !interrupted; ++s) {
      std::this_thread::sleep_for(100ms);
    }
  } catch (const std::invalid_argument& e) {
    std::cerr << e.what() << '\n';
    return 2;
  } catch (const std::system_error& e) {
    std::cerr << "no page: " << e.what() << "; choose another --port\n";
    return 1;
  }
}
