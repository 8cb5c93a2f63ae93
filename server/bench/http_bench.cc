// SPDX-License-Identifier: Apache-2.0

#include "http_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "load.h"
#include "peers.h"
#include "report.h"

namespace verge::server::bench {

namespace {

std::string post(const std::string& target, const std::string& body) {
  std::string out = "POST " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n";
  if (!body.empty()) out += "Content-Type: application/json\r\n";
  return out + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// Head and body have come.
bool is_whole(std::string_view r) {
  const std::size_t end = r.find("\r\n\r\n");
  if (end == r.npos) return false;
  constexpr std::string_view name = "Content-Length: ";
  const std::size_t at = r.find(name);
  std::size_t size = 0;
  if (at < end) std::from_chars(r.data() + at + name.size(), r.data() + end, size);
  return r.size() >= end + 4 + size;
}

void expect_status(std::string_view reply, std::string_view status) {
  if (reply.substr(9, status.size()) == status) return;
  throw std::runtime_error("expected " + std::string(status) + ", and the server said " +
                           std::string(reply.substr(0, 300)));
}

class http_puts final : public conversation {
 public:
  http_puts()
      : request_(post("/v1/tubes/default/tasks",
                      "{\"body\":\"" + std::string(body_size, 'b') + "\"}")) {}
  std::string_view request() override { return request_; }
  bool reply(std::string_view r) override { return is_whole(r); }
  bool operation_done(std::string_view r) override {
    expect_status(r, "201");
    return true;
  }

 private:
  const std::string request_;
};

class http_reserves final : public conversation {
 public:
  std::string_view request() override { return ack_.empty() ? reserve_ : ack_; }
  bool reply(std::string_view r) override { return is_whole(r); }
  bool operation_done(std::string_view r) override {
    expect_status(r, "200");
    if (!ack_.empty()) {
      ack_.clear();
      return true;
    }
    constexpr std::string_view name = "\"lease\":\"";
    const std::size_t at = r.find(name);
    if (at == r.npos) return false;  // none came in time
    const std::size_t begin = at + name.size();
    const std::string lease(r.substr(begin, r.find('"', begin) - begin));
    ack_ = post("/v1/leases/" + lease + "/ack", "");
    return false;
  }

 private:
  const std::string reserve_{post("/v1/tubes/default/reserve?wait=1s", "")};
  std::string ack_;
};

/// A server with both protocols.
struct both {
  explicit both(const tasks_options& o)
      : dir(o.directory),
        plain(free_port()),
        http(free_port()),
        process({o.verge, "serve", "--listen", "127.0.0.1:" + std::to_string(plain), "--data",
                 (dir.path() / "tasks").string(), "--http", "127.0.0.1:" + std::to_string(http)},
                http) {}  // it listens there last

  scratch_directory dir;
  std::uint16_t plain;
  std::uint16_t http;
  server_process process;
};

struct figures {
  load_figures load;
  double cpu_us{0};  ///< of the server, for each operation
};

figures measure(const tasks_options& o, bool http, bool puts, int connections) {
  both server(o);
  if (!puts) {
    const double rate = connections == 1 ? 10e3 : 60e3;
    const auto count = static_cast<std::uint64_t>(rate * o.seconds);
    play(server.plain, 16, 1e9, [&](int) { return beanstalk_fill(count / 16, body_size, 0, 64); });
  }
  const double before = server.process.cpu_seconds();
  figures f;
  f.load = play(http ? server.http : server.plain, connections, o.seconds,
                [&](int) -> std::unique_ptr<conversation> {
                  if (http && puts) return std::make_unique<http_puts>();
                  if (http) return std::make_unique<http_reserves>();
                  return puts ? beanstalk_puts(body_size, 0) : beanstalk_reserves();
                });
  f.cpu_us = (server.process.cpu_seconds() - before) * 1e6 /
             static_cast<double>(std::max<std::uint64_t>(1, f.load.operations));
  return f;
}

}  // namespace

nlohmann::json measure_http(const tasks_options& o) {
  nlohmann::json all;
  for (const bool puts : {true, false}) {
    for (const int connections : {1, 64, 1024}) {
      if (!puts && connections == 1024) continue;
      std::vector<double> rates[2];
      std::vector<double> late[2];
      std::vector<double> cpu[2];
      std::vector<double> ratios;
      for (int round = 0; round < o.rounds; ++round) {
        // In turns, and each first as often as the other.
        for (const bool second : {false, true}) {
          const bool http = second != (round % 2 == 1);
          const figures f = measure(o, http, puts, connections);
          rates[http ? 1 : 0].push_back(f.load.per_second);
          late[http ? 1 : 0].push_back(f.load.p99_us);
          cpu[http ? 1 : 0].push_back(f.cpu_us);
        }
        ratios.push_back(rates[1].back() / rates[0].back());
      }
      const std::string what = fmt::format("{}, {} connection{}", puts ? "puts" : "reserve and ack",
                                           connections, connections == 1 ? "" : "s");
      fmt::print("{}\n", what);
      for (const int i : {0, 1}) {
        fmt::print("  {:10} {:>7.0f}/s   p99 {:>6.0f} us   {:.1f} us of processor time each\n",
                   i == 0 ? "beanstalk" : "HTTP", median(rates[i]), median(late[i]),
                   median(cpu[i]));
      }
      fmt::print("  ratio {:.2f} ({:.2f} to {:.2f})\n", median(ratios),
                 *std::min_element(ratios.begin(), ratios.end()),
                 *std::max_element(ratios.begin(), ratios.end()));
      std::fflush(stdout);
      all[what] = {{"beanstalk", rates[0]},
                   {"http", rates[1]},
                   {"ratio", median(ratios)},
                   {"beanstalk_cpu_us", median(cpu[0])},
                   {"http_cpu_us", median(cpu[1])}};
    }
  }
  fmt::print("\n");
  return all;
}

}  // namespace verge::server::bench
