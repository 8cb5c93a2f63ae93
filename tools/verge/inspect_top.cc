// SPDX-License-Identifier: Apache-2.0

#include "inspect_top.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <vector>

#include <verge/endpoint.h>
#include <verge/net.h>

namespace verge::server {

namespace {

using nlohmann::json;

/// All that is answered to a request, until the connection is closed.
std::string ask(const std::string& at, const std::string& target, const std::string& token) {
  const auto [where, error] = endpoint::parse(at);
  if (error) {
    throw std::invalid_argument("'" + at + "' is no address: write one like 127.0.0.1:6060");
  }
  auto connected = tcp_conn::connect(where, std::chrono::seconds(10)).wait();
  if (!connected) {
    throw std::runtime_error("nothing answers at " + at + " (" + connected.error.message() + ")");
  }
  tcp_conn conn = std::move(*connected);
  conn.set_deadline(clock::now() + std::chrono::seconds(10));
  std::string request = "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n";
  if (!token.empty()) request += "Authorization: Bearer " + token + "\r\n";
  request += "\r\n";
  static_cast<void>(conn.write_all(request).wait());
  std::string all;
  std::array<char, 16384> bytes;
  for (;;) {
    const auto [n, failed] = conn.read_some(bytes).wait();
    if (failed) return all;
    all.append(bytes.data(), n);
    // The task server stays connected: its first line is enough.
    if (!all.starts_with("HTTP/") && all.find("\r\n") != std::string::npos) return all;
  }
}

std::string duration(double s) {
  if (s <= 0) return "0";
  if (s < 1e-6) return fmt::format("{:.0f} ns", s * 1e9);
  if (s < 1e-3) return fmt::format("{:.0f} us", s * 1e6);
  if (s < 1) return fmt::format("{:.0f} ms", s * 1e3);
  if (s < 120) return fmt::format("{:.1f} s", s);
  if (s < 7200) return fmt::format("{:.0f} min", s / 60);
  return s < 172800 ? fmt::format("{:.0f} h", s / 3600) : fmt::format("{:.0f} d", s / 86400);
}

std::string bar(double share, std::size_t width) {
  const auto full = static_cast<std::size_t>(
      std::lround(std::clamp(share, 0.0, 1.0) * static_cast<double>(width)));
  return std::string(full, '#') + std::string(width - full, '.');
}

std::string cut(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

/// Pending timers by powers of eight of when they are due: one line of bars.
std::string due_lines(const json& due) {
  const std::vector<std::uint64_t> counts = due.at("counts");
  const unsigned first = due.at("first_power");
  std::string out;
  std::uint64_t most = std::max<std::uint64_t>(1, due.at("overdue"));
  std::vector<std::uint64_t> groups;
  for (std::size_t i = 0; i < counts.size(); i += 3) {
    std::uint64_t sum = 0;
    for (std::size_t k = i; k < std::min(i + 3, counts.size()); ++k) sum += counts[k];
    groups.push_back(sum);
    most = std::max(most, sum);
  }
  const auto line = [&](const std::string& name, std::uint64_t n) {
    if (n == 0) return;
    out += fmt::format(
        "  {:<14} {:>11} {}\n", name, n,
        std::string(
            1 + static_cast<std::size_t>(std::log10(static_cast<double>(n)) /
                                         std::max(1.0, std::log10(static_cast<double>(most))) * 30),
            '#'));
  };
  line("due now", due.at("overdue"));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    line("within " + duration(std::ldexp(1e-9, static_cast<int>(first + 3 * g + 3))), groups[g]);
  }
  return out;
}

}  // namespace

std::string draw_inspector(const json& now, const json& last_second, std::size_t rows) {
  const json& t = now.at("totals");
  const auto rate = [&](const char* name) {
    if (last_second.is_null()) return std::string("-");
    const double length = last_second.at("length");
    return fmt::format("{:.0f}/s", last_second.at(name).get<double>() / (length > 0 ? length : 1));
  };
  std::string out = fmt::format(
      "process {}, {} processors by {}, {} threads\n"
      "timers: {} pending; {} fired, {} started, {} stopped, {} reset; {:.1f} MB\n"
      "late: half {}, 99 % {}, 99.9 % {}; a turn: 99 % {}; ready waits: 99 % {}\n"
      "tasks: {} live, {} wait, {} ready; stalls: {}, the longest {}\n\n",
      now.at("pid").get<int>(), now.at("processors").size(),
      now.at("processors_from").get<std::string>(), t.at("threads").get<std::uint64_t>(),
      t.at("pending").get<std::uint64_t>(), rate("fired"), rate("started"), rate("stopped"),
      rate("reset"), t.at("timer_bytes").get<double>() / 1e6,
      duration(now.at("lateness").at("p50")), duration(now.at("lateness").at("p99")),
      duration(now.at("lateness").at("p999")), duration(now.at("turns").at("p99")),
      duration(now.at("ready_waits").at("p99")), t.at("tasks_live").get<std::uint64_t>(),
      t.at("tasks_waiting").get<std::uint64_t>(), t.at("ready").get<std::uint64_t>(),
      t.at("stalls").get<std::uint64_t>(), duration(t.at("longest_stall")));
  std::size_t n = 0;
  for (const json& p : now.at("processors")) {
    if (n >= rows) break;
    const double busy = p.at("busy").get<double>() / 1000;
    out += fmt::format(
        "  p{:<3} {} {:>5.1f} %  {:>10} fired  {:>8} stolen  {:>4} ready\n", n++, bar(busy, 30),
        busy * 100, p.at("fired").get<std::uint64_t>(),
        p.at("timers_stolen").get<std::uint64_t>() + p.at("tasks_stolen").get<std::uint64_t>(),
        p.at("ready").get<std::uint64_t>());
  }
  out.append("\n").append(due_lines(now.at("due")));
  out += fmt::format("\n  {:<50} {:>11} {:>11} {:>7} {:>7}\n", "label, or place", "pending",
                     "fired", "turns", "time");
  n = 0;
  for (const json& l : now.at("labels")) {
    if (n++ >= rows) break;
    out += fmt::format(
        "  {:<50} {:>11} {:>11} {:>5.1f} % {:>5.1f} %\n", cut(l.at("name").get<std::string>(), 50),
        l.at("pending").get<std::uint64_t>(), l.at("fired").get<std::uint64_t>(),
        l.at("share_of_turns").get<double>() * 100, l.at("share_of_time").get<double>() * 100);
  }
  if (!now.at("tasks").empty()) {
    out += fmt::format("\n  {:<50} {:<20} {:>8} {:>9}\n", "task", "waits for", "tasks", "longest");
    n = 0;
    for (const json& one : now.at("tasks")) {
      if (n++ >= rows) break;
      const std::string waits = one.at("waits_for");
      out +=
          fmt::format("  {:<50} {:<20} {:>8} {:>9}\n", cut(one.at("name").get<std::string>(), 50),
                      waits.empty() ? "runs, or ready" : waits,
                      one.at("count").get<std::uint64_t>(), duration(one.at("oldest")));
    }
  }
  n = 0;
  for (const json& s : now.at("stalls")) {
    if (n++ >= std::min<std::size_t>(rows, 3)) break;
    out += fmt::format(
        "\n  stall: {} {}, {} and more, {} ago", s.at("task").get<bool>() ? "task" : "callback",
        cut(s.at("what").get<std::string>(), 60), duration(s.at("lasted")), duration(s.at("ago")));
  }
  return out + (n != 0 ? "\n" : "");
}

std::optional<inspect_top> inspect_top::find(const std::string& at, const std::string& token) {
  const std::string reply = ask(at, "/stats.json?since=0", token);
  if (!reply.starts_with("HTTP/")) return std::nullopt;
  return inspect_top(at, token);
}

std::string inspect_top::look(std::size_t rows) {
  const std::string reply = ask(at_, "/stats.json?since=" + std::to_string(since_), token_);
  const auto end = reply.find("\r\n\r\n");
  if (!reply.starts_with("HTTP/1.1 200") || end == std::string::npos) {
    const std::string text = end == std::string::npos ? reply : reply.substr(end + 4);
    throw std::runtime_error("the inspector at " + at_ +
                             " says: " + text.substr(0, text.find('\n')));
  }
  json now;
  try {
    now = json::parse(reply.substr(end + 4));
    if (!now.contains("totals")) throw std::runtime_error("");
  } catch (const std::exception&) {
    throw std::runtime_error("what answers at " + at_ + " is no inspector");
  }
  if (!now.at("history").empty()) {
    last_second_ = now.at("history").back();
    since_ = last_second_.at("n");
  }
  return draw_inspector(now, last_second_, rows);
}

}  // namespace verge::server
