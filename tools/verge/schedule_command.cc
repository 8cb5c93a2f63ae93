// SPDX-License-Identifier: Apache-2.0

#include "schedule_command.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include <verge/net.h>
#include <verge/runtime.h>

#include "broker/committer.h"
#include "calendar/timetable.h"
#include "http1/response_reader.h"
#include "text/time_text.h"

namespace verge::server {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_answer = 200U << 10;

}  // namespace

schedule_command::schedule_command(CLI::App& tool) {
  schedule_ =
      tool.add_subcommand("schedule", "Tasks that recur: by cron expressions, or every 10m");
  schedule_->require_subcommand(1);
  schedule_->add_option("--at", at_, "The server's address for HTTP")->capture_default_str();
  schedule_->add_option("--token", token_, "A token of `verge token add`");
  const auto add = [&](const char* name, const char* about, bool named) {
    CLI::App* const made = schedule_->add_subcommand(name, about);
    made->fallthrough();  // --at and --token may stand behind it
    if (named) made->add_option("NAME", name_, "The schedule")->required();
    return made;
  };
  set_ = add("set", "Put a task at each of these times", true);
  set_->add_option("WHEN", when_, "Like '30 2 * * mon-fri', @hourly, or 'every 10m'")->required();
  set_->add_option("BODY", body_, "Of each task")->required();
  set_->add_option("--zone", zone_, "A time zone like Europe/Berlin; UTC without one");
  set_->add_option("--tube", tube_, "Where tasks are put")->capture_default_str();
  set_->add_option("--if-missed", missed_, "What becomes of times that passed during a downtime")
      ->check(CLI::IsMember({"skip", "once", "all"}))
      ->capture_default_str();
  set_->add_option("--priority", priority_, "Of each task")->capture_default_str();
  set_->add_option("--ttr", ttr_, "How long a worker has")->capture_default_str();
  show_ = add("show", "A schedule and its next times, as JSON", true);
  list_ = add("list", "All schedules", false);
  remove_ = add("remove", "Put no more", true);
  next_ = add("next", "When an expression comes; needs no server", false);
  next_->add_option("WHEN", when_, "The expression")->required();
  next_->add_option("--zone", zone_, "A time zone like Europe/Berlin; UTC without one");
  next_->add_option("--from", from_, "After this time of RFC 3339; now without one");
  next_->add_option("--count", count_, "How many times")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
}

int schedule_command::run() {
  if (next_->parsed()) return next();
  if (set_->parsed()) return set();
  if (list_->parsed()) return list();
  std::string got;
  if (!ask(show_->parsed() ? "GET" : "DELETE", "/v1/schedules/" + name_, "", got)) return 1;
  std::printf("%s", show_->parsed() ? got.c_str() : "removed\n");
  return 0;
}

int schedule_command::next() const {
  std::string why;
  const auto times = calendar::timetable::parse(when_, zone_, why);
  if (!times) throw std::invalid_argument(why);
  wall_time at = wall_now();
  if (!from_.empty()) {
    const auto from = parse_rfc3339(from_);
    if (!from) throw std::invalid_argument("'" + from_ + "' is no time: 2030-01-31T00:00:00Z is");
    at = *from;
  }
  for (std::uint32_t i = 0; i < count_; ++i) {
    const auto found = times->next(at);
    if (!found) break;
    at = *found;
    std::printf("%s\n", format_rfc3339(at).c_str());
  }
  return 0;
}

int schedule_command::set() const {
  const auto ttr = parse_duration(ttr_, second);
  if (!ttr) throw std::invalid_argument("'" + ttr_ + "' is no length of time: 60s is");
  nlohmann::json j;
  j["when"] = when_;
  if (!zone_.empty()) j["zone"] = zone_;
  j["tube"] = tube_;
  j["if_missed"] = missed_;
  j["task"] = {{"body", body_}, {"priority", priority_}, {"ttr", *ttr / 1'000'000}};
  std::string got;
  if (!ask("PUT", "/v1/schedules/" + name_, j.dump(), got)) return 1;
  const auto made = nlohmann::json::parse(got);
  std::printf("next at %s\n", made["upcoming"].at(0).get<std::string>().c_str());
  return 0;
}

int schedule_command::list() const {
  std::string after;
  do {
    std::string got;
    if (!ask("GET", "/v1/schedules?limit=100" + after, "", got)) return 1;
    const auto page = nlohmann::json::parse(got);
    for (const auto& s : page["schedules"]) {
      const std::string next = s["upcoming"].empty() ? "never" : s["upcoming"][0];
      std::printf("%s  %s  %s  tube %s  next %s\n", s["name"].get<std::string>().c_str(),
                  s["when"].get<std::string>().c_str(), s["zone"].get<std::string>().c_str(),
                  s["tube"].get<std::string>().c_str(), next.c_str());
    }
    after = page.contains("next") ? "&after=" + page["next"].get<std::string>() : "";
  } while (!after.empty());
  return 0;
}

bool schedule_command::ask(const std::string& method, const std::string& target,
                           const std::string& body, std::string& got) const {
  const auto [to, error] = endpoint::parse(at_);
  if (error) throw std::invalid_argument("'" + at_ + "' is no address: 127.0.0.1:11380 is");
  std::string request = method;
  request.append(" ").append(target).append(" HTTP/1.1\r\nHost: ").append(at_);
  if (!token_.empty()) request.append("\r\nAuthorization: Bearer ").append(token_);
  request.append("\r\nContent-Type: application/json\r\nContent-Length: ");
  request.append(std::to_string(body.size())).append("\r\nConnection: close\r\n\r\n").append(body);
  auto conn = tcp_conn::connect(to, 10s).wait();
  if (conn.error) {
    throw std::invalid_argument("there is no server at " + at_ + " (" + conn.error.message() +
                                "): start one with `verge serve --http " + at_ + "`");
  }
  static_cast<void>(conn->write_all(request).wait());
  http::response_reader reader(most_answer);
  std::array<char, 16U << 10> bytes;
  for (;;) {
    const auto [n, failed] = conn->read_some(bytes).wait();
    if (failed) break;
    if (!reader.feed({bytes.data(), n})) break;
  }
  reader.finish();
  if (!reader.has_head()) throw std::invalid_argument("the server at " + at_ + " speaks no HTTP");
  got = reader.body();
  if (reader.status() < 300) return true;
  const auto problem = nlohmann::json::parse(got, nullptr, false);
  const std::string detail = problem.is_object() ? problem.value("detail", got) : got;
  std::fprintf(stderr, "verge: %s\n", detail.c_str());
  return false;
}

}  // namespace verge::server
