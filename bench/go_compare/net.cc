// SPDX-License-Identifier: Apache-2.0

#include "net.h"

#include <verge/net.h>
#include <verge/task.h>
#include <verge/time.h>

#include <array>
#include <atomic>
#include <vector>

namespace verge::bench {
namespace {

using namespace std::chrono_literals;
using message = std::array<char, 64>;

// ---- A postponed deadline

constexpr int calls = 100'000;

void put_off(tcp_conn& conn) {
  auto when = verge::clock::now() + 1h;
  for (int i = 0; i < calls; ++i) {
    when += 1us;
    conn.set_read_deadline(when);
  }
}

task<std::int64_t> put_off_until(std::chrono::steady_clock::time_point end) {
  std::int64_t batches = 0;
  do {
    auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
    auto conn = (co_await tcp_conn::connect(listener.local().or_throw())).or_throw();
    put_off(conn);
    ++batches;
  } while (std::chrono::steady_clock::now() < end);
  co_return batches;
}

task<figures> put_off_everywhere(int processors, std::chrono::nanoseconds d) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<join_handle<std::int64_t>> all;
  for (int i = 0; i < processors; ++i) all.push_back(go(put_off_until(start + d)));
  std::int64_t batches = 0;
  for (auto& one : all) batches += co_await one;
  const auto took = std::chrono::steady_clock::now() - start;
  co_return figures{static_cast<double>(took.count()) / static_cast<double>(batches * calls), {}};
}

// ---- Round trips

task<> answer_all(tcp_conn conn) {
  message m;
  for (;;) {
    conn.set_deadline(verge::clock::now() + 1min);
    const io_result got = co_await conn.read_some(m);
    if (got.error) co_return;
    if (!co_await conn.write_all({m.data(), got.bytes})) co_return;
  }
}

task<std::int64_t> round_trips(tcp_conn& conn, std::chrono::steady_clock::time_point end) {
  message m{};
  std::int64_t n = 0;
  do {
    (co_await conn.write_all(m)).or_throw();
    (co_await conn.read_full(m)).or_throw();
    ++n;
  } while (std::chrono::steady_clock::now() < end);
  co_return n;
}

task<figures> all_round_trips(std::vector<tcp_conn>& clients, std::chrono::nanoseconds d) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<join_handle<std::int64_t>> all;
  for (tcp_conn& c : clients) all.push_back(go(round_trips(c, start + d)));
  std::int64_t sum = 0;
  for (auto& one : all) sum += co_await one;
  const auto took = std::chrono::steady_clock::now() - start;
  co_return figures{static_cast<double>(took.count()) / static_cast<double>(sum), {}};
}

task<figures> echo_task(parameters p) {
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  auto server = go([&]() -> task<> {
    while (auto conn = co_await listener.accept()) go(answer_all(std::move(*conn))).detach();
  });
  std::vector<tcp_conn> clients;
  for (int i = 0; i < p.connections; ++i) {
    clients.push_back((co_await tcp_conn::connect(listener.local().or_throw())).or_throw());
  }
  co_await all_round_trips(clients, p.duration / 10);
  const figures f = co_await all_round_trips(clients, p.duration);
  listener.close();
  co_await server;
  co_return f;
}

}  // namespace

figures set_read_deadline(runtime& rt, const parameters& p) {
  rt.run(put_off_everywhere(p.processors, p.duration / 10));
  return rt.run(put_off_everywhere(p.processors, p.duration));
}

figures echo(runtime& rt, const parameters& p) { return rt.run(echo_task(p)); }

}  // namespace verge::bench
