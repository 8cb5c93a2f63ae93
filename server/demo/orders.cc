// SPDX-License-Identifier: Apache-2.0

// The scene that the task server was made for: orders that are cancelled unless they are paid in
// thirty minutes. A million of them, with time made shorter by a factor; 95 in 100 are paid, and
// their task is cancelled; in the middle the server is killed with -9 and started again. At the end
// it is counted: how many were lost, early, or handed out although they had been paid.
//
//   orders_demo VERGE [--orders N] [--factor F] [--dir DIR] [--quick] [-- ARGUMENTS OF verge serve]

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/peers.h"
#include "tests/support/wire.h"

namespace {

using namespace std::chrono_literals;
using verge::server::bench::free_port;
using verge::server::bench::scratch_directory;
using verge::server::bench::server_process;
using verge::server::test::wire;
using steady = std::chrono::steady_clock;

constexpr std::size_t at_once = 256;

enum class state : std::uint8_t { none, put, paid, expired, missing };

struct order {
  std::atomic<state> is{state::none};
  bool paying{false};
  bool in_doubt{false};       ///< a cancel was sent, and the server was killed before it answered
  steady::time_point due{};   ///< not handed out before
  steady::time_point pays{};  ///< if it is paid
};

struct scene {
  std::size_t orders{1'000'000};
  double factor{30};
  std::string dir{"."};
  std::vector<std::string> arguments;  ///< of the server
  std::uint16_t port{0};
  std::vector<order> all;
  std::atomic<std::size_t> placed{0}, paid{0}, expired{0}, early{0}, handed_out_paid{0}, again{0};
  std::atomic<std::size_t> missing{0};  ///< were acknowledged, and are not there
  std::size_t settled() const { return paid.load() + expired.load() + missing.load(); }
  std::atomic<bool> all_placed{false};
  std::atomic<bool> finished{false};
};

/// Does it, and does it again on a new connection when the server was killed meanwhile.
template <class F>
void persistently(scene& s, F f) {
  while (!s.finished.load()) {
    try {
      wire w(s.port);
      f(w);
      return;
    } catch (const std::exception&) {
      std::this_thread::sleep_for(50ms);
    }
  }
}

void place_orders(scene& s) {
  const auto patience = std::chrono::duration_cast<steady::duration>(30min / s.factor);
  const long delay_ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  std::size_t next = 0;
  persistently(s, [&](wire& w) {
    while (next < s.orders) {
      const std::size_t end = std::min(next + at_once, s.orders);
      std::string bytes;
      const auto now = steady::now();
      for (std::size_t i = next; i < end; ++i) {
        // Put again after a crash, it may have been there already, with its first time.
        if (s.all[i].due == steady::time_point{}) s.all[i].due = now + patience;
        const std::string body = "order " + std::to_string(i);
        // "keep": after a crash it is not known whether the last ones have arrived, so they are
        // put again.
        bytes += "put-key order-" + std::to_string(i) + " keep 1024 " + std::to_string(delay_ms) +
                 " 60000 " + std::to_string(body.size()) + "\r\n" + body + "\r\n";
      }
      w.send(bytes);
      for (std::size_t i = next; i < end; ++i) {
        const std::string r = w.reply();
        if (!r.starts_with("INSERTED") && !r.starts_with("KEPT")) throw std::runtime_error(r);
      }
      std::mt19937_64 random(next);
      for (std::size_t i = next; i < end; ++i) {
        order& o = s.all[i];
        o.paying = random() % 100 < 95;
        const double part = static_cast<double>(random() % 800) / 1000;
        o.pays = now + std::chrono::duration_cast<steady::duration>(patience * part);
        o.is.store(state::put);
      }
      s.placed.fetch_add(end - next);
      next = end;
    }
  });
  s.all_placed.store(true);
}

/// What the server says of the cancel of an order.
void settle(scene& s, order& o, const std::string& r) {
  state was = state::put;
  if (r.starts_with("CANCELLED") || (r.starts_with("NOT_FOUND") && o.in_doubt)) {
    if (o.is.compare_exchange_strong(was, state::paid)) s.paid.fetch_add(1);
  } else if (r.starts_with("NOT_FOUND")) {
    // It has expired, and was handed out before this, or it is lost.
    if (o.is.compare_exchange_strong(was, state::missing)) s.missing.fetch_add(1);
  } else if (r.starts_with("TAKEN")) {
    std::this_thread::sleep_for(1ms);  // the shop was too slow, and the order has expired
  } else {
    throw std::runtime_error(r);
  }
}

/// Pays what it is time for, again and again until all that are to be paid are.
void pay_orders(scene& s) {
  std::size_t first = 0;  // all before are settled
  std::vector<std::size_t> batch;
  persistently(s, [&](wire& w) {
    for (;;) {
      const auto now = steady::now();
      batch.clear();
      const std::size_t placed = s.placed.load();
      bool leading = true;
      for (std::size_t i = first; i < placed && batch.size() < at_once; ++i) {
        const order& o = s.all[i];
        const bool open = o.paying && o.is.load() == state::put;
        if (leading && !open) first = i + 1;
        if (open) leading = false;
        if (open && o.pays <= now) batch.push_back(i);
      }
      if (batch.empty()) {
        if (s.all_placed.load() && first >= s.orders) return;
        std::this_thread::sleep_for(5ms);
        continue;
      }
      std::string bytes;
      for (const std::size_t i : batch) bytes += "cancel order-" + std::to_string(i) + "\r\n";
      // Until it is answered it is not known whether the server has done it.
      std::vector<bool> before;
      before.reserve(batch.size());
      for (const std::size_t i : batch) before.push_back(std::exchange(s.all[i].in_doubt, true));
      w.send(bytes);
      for (std::size_t k = 0; k < batch.size(); ++k) {
        order& o = s.all[batch[k]];
        const std::string r = w.reply();
        o.in_doubt = before[k];
        settle(s, o, r);
      }
    }
  });
}

/// Whether the server has no task any more.
bool is_empty(const scene& s) {
  try {
    const std::string stats = wire(s.port).ask("stats\r\n");
    for (const char* const what : {"ready", "reserved", "delayed", "buried"}) {
      if (stats.find("current-jobs-" + std::string(what) + ": 0\n") == std::string::npos) {
        return false;
      }
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Takes what has fallen due: orders that were not paid.
void expire_orders(scene& s) {
  persistently(s, [&](wire& w) {
    while (!s.finished.load()) {
      std::string r = w.ask("reserve-batch 256 200\r\n");
      if (!r.starts_with("RESERVED_BATCH")) continue;
      const std::size_t n = std::stoul(r.substr(15));
      std::string bytes;
      for (std::size_t k = 0; k < n; ++k) {
        r = w.reply();
        const auto now = steady::now();
        const std::size_t line = r.find("\r\n");
        const std::size_t i = std::stoul(r.substr(line + 2 + 6));
        order& o = s.all[i];
        if (now < o.due) s.early.fetch_add(1);
        const state was = o.is.exchange(state::expired);
        if (was == state::paid) s.handed_out_paid.fetch_add(1);
        if (was == state::expired) s.again.fetch_add(1);
        if (was != state::expired) s.expired.fetch_add(1);
        if (was == state::missing) s.missing.fetch_sub(1);
        bytes += "delete " + r.substr(9, r.find(' ', 9) - 9) + "\r\n";
      }
      w.send(bytes);
      for (std::size_t k = 0; k < n; ++k) w.reply();
    }
  });
}

int play(scene& s, const std::string& tool) {
  const scratch_directory dir(s.dir);
  s.port = free_port();
  s.all = std::vector<order>(s.orders);
  std::vector<std::string> command{tool,       "serve",
                                   "--listen", "127.0.0.1:" + std::to_string(s.port),
                                   "--data",   (dir.path() / "tasks").string()};
  command.insert(command.end(), s.arguments.begin(), s.arguments.end());
  auto server = std::make_unique<server_process>(command, s.port);
  std::printf("%zu orders; thirty minutes are %.0f seconds here (a factor of %.0f)\n", s.orders,
              1800 / s.factor, s.factor);
  std::thread placing([&] { place_orders(s); });
  std::thread paying([&] { pay_orders(s); });
  std::thread expiring([&] { expire_orders(s); });

  bool killed = false;
  const auto begin = steady::now();
  auto last = begin;
  while (s.settled() < s.orders) {
    std::this_thread::sleep_for(100ms);
    if (!killed && s.placed.load() >= s.orders / 2) {
      killed = true;
      std::printf("\n  kill -9, with %zu orders placed\n", s.placed.load());
      server->end(true);
      server = std::make_unique<server_process>(command, s.port);
      std::printf("  started again\n");
    }
    if (steady::now() - last > 1s) {
      last = steady::now();
      std::printf("\r  %4.0f s: %zu placed, %zu paid, %zu expired   ",
                  std::chrono::duration<double>(last - begin).count(), s.placed.load(),
                  s.paid.load(), s.expired.load());
      std::fflush(stdout);
    }
    // After the time of the last one no more come if there are none, or if none comes for long.
    if (!s.all_placed.load() || steady::now() < s.all.back().due + 1s) continue;
    if (is_empty(s) || steady::now() > s.all.back().due + 120s) break;
  }
  s.finished.store(true);
  placing.join();
  paying.join();
  expiring.join();
  const std::size_t lost = s.orders - s.paid.load() - s.expired.load();
  std::printf("\n\n%zu placed, %zu paid and cancelled, %zu expired and handed out\n",
              s.placed.load(), s.paid.load(), s.expired.load());
  std::printf("%zu lost, %zu early, %zu cancelled ones handed out", lost, s.early.load(),
              s.handed_out_paid.load());
  if (s.again.load() != 0) {
    std::printf(" (%zu handed out twice: their deletion was on its way when the server was killed)",
                s.again.load());
  }
  std::printf("\n");
  return lost == 0 && s.early.load() == 0 && s.handed_out_paid.load() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  scene s;
  std::string tool;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&]() -> const char* {
      if (i + 1 >= argc) {
        std::fprintf(stderr, "orders_demo: %s needs a value\n", argv[i]);
        std::exit(2);  // NOLINT(concurrency-mt-unsafe): no thread was started yet
      }
      return argv[++i];
    };
    if (std::strcmp(argv[i], "--orders") == 0) {
      s.orders = std::strtoull(value(), nullptr, 10);
    } else if (std::strcmp(argv[i], "--factor") == 0) {
      s.factor = std::strtod(value(), nullptr);
    } else if (std::strcmp(argv[i], "--dir") == 0) {
      s.dir = value();
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      s.orders = 20'000;
      s.factor = 300;
    } else if (std::strcmp(argv[i], "--") == 0) {
      s.arguments.assign(argv + i + 1, argv + argc);
      break;
    } else if (tool.empty() && argv[i][0] != '-') {
      tool = argv[i];
    } else {
      std::fprintf(stderr,
                   "orders_demo: '%s' is unknown; there are --orders N, --factor F, "
                   "--dir DIR, --quick\n",
                   argv[i]);
      return 2;
    }
  }
  if (tool.empty() || s.orders == 0 || !(s.factor > 0)) {
    std::fprintf(stderr,
                 "usage: orders_demo VERGE [--orders N] [--factor F] [--dir DIR] [--quick]\n");
    return 2;
  }
  try {
    return play(s, tool);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "orders_demo: %s\n", e.what());
    return 1;
  }
}
