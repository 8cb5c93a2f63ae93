// SPDX-License-Identifier: Apache-2.0

#include "lateness.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string_view>
#include <thread>

#include "broker/committer.h"
#include "load.h"

namespace verge::server::bench {

namespace {

/// A connection that puts tasks with a delay of 1 s, one after the other, and notes when each is
/// due at the earliest; and one that reserves them.
class paced_puts final : public conversation {
 public:
  paced_puts(int per_second, int count, std::vector<wall_time>& due)
      : gap_(1'000'000'000 / per_second), left_(count), due_(due) {}
  std::string_view request() override {
    if (left_-- == 0) return {};
    while (wall_now() < next_) std::this_thread::sleep_for(std::chrono::microseconds(50));
    const wall_time now = wall_now();
    next_ = std::max(next_ + gap_, now - 10 * gap_);
    if (next_ < now - 100 * gap_) next_ = now;
    due_.push_back(now + 1'000'000'000);
    const std::string body = std::to_string(due_.size() - 1);
    request_ = fmt::format("put 0 1 60 {}\r\n{}\r\n", body.size(), body);
    return request_;
  }
  bool reply(std::string_view r) override { return r.ends_with("\r\n"); }
  bool operation_done(std::string_view) override { return true; }

 private:
  wall_time gap_;
  wall_time next_{0};
  int left_;
  std::vector<wall_time>& due_;
  std::string request_;
};

class timed_reserves final : public conversation {
 public:
  timed_reserves(std::atomic<int>& left, std::vector<wall_time>& got) : left_(left), got_(got) {}
  std::string_view request() override {
    if (!delete_.empty()) return delete_;
    if (left_.load() <= 0) return {};
    return "reserve-with-timeout 1\r\n";
  }
  bool reply(std::string_view r) override {
    if (!delete_.empty()) return r.ends_with("\r\n");
    if (r.starts_with("TIMED_OUT")) return true;
    const auto line = r.find("\r\n");
    return line != std::string_view::npos && r.size() > line + 2 && r.ends_with("\r\n");
  }
  bool operation_done(std::string_view r) override {
    if (!delete_.empty()) {
      delete_.clear();
      return true;
    }
    if (r.starts_with("TIMED_OUT")) return false;
    const wall_time now = wall_now();
    const auto line = r.find("\r\n");
    const std::string number(r.substr(line + 2, r.size() - line - 4));
    got_[std::stoul(number)] = now;
    --left_;
    delete_ = "delete " + std::string(r.substr(9, r.find(' ', 9) - 9)) + "\r\n";
    return false;
  }

 private:
  std::atomic<int>& left_;
  std::vector<wall_time>& got_;
  std::string delete_;
};

}  // namespace

nlohmann::json measure_lateness(const std::vector<std::uint16_t>& ports, const std::string& name,
                                int per_second, int seconds) {
  const int count = per_second * seconds;
  std::vector<wall_time> due;
  due.reserve(static_cast<std::size_t>(count));
  std::vector<wall_time> got(static_cast<std::size_t>(count), 0);
  std::atomic<int> left{count};
  std::thread worker([&] {
    play(ports, 16, 1e9, [&](int) { return std::make_unique<timed_reserves>(left, got); });
  });
  play(ports.front(), 1, 1e9,
       [&](int) { return std::make_unique<paced_puts>(per_second, count, due); });
  worker.join();
  // The server adds the delay when it has read the put, a little after `due` was noted: so what is
  // measured is lateness and one way of the put.
  std::vector<double> late;
  int early = 0;
  for (std::size_t i = 0; i < due.size(); ++i) {
    const double ms = static_cast<double>(got[i] - due[i]) / 1e6;
    if (ms < 0) ++early;
    late.push_back(ms);
  }
  std::sort(late.begin(), late.end());
  fmt::print(
      "lateness, {} due a second: {:34} p50 {:.2f} ms, p99 {:.2f} ms, at most {:.2f} ms, "
      "{} early\n",
      per_second, name, late[late.size() / 2], late[late.size() * 99 / 100], late.back(), early);
  std::fflush(stdout);
  return {{"p50_ms", late[late.size() / 2]},
          {"p99_ms", late[late.size() * 99 / 100]},
          {"most_ms", late.back()},
          {"early", early}};
}

}  // namespace verge::server::bench
