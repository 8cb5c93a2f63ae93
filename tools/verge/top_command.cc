// SPDX-License-Identifier: Apache-2.0

#include "top_command.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "inspect_top.h"
#include "session.h"

namespace verge::server {

namespace {

using figures = std::map<std::string, std::string>;

/// The lines "name: value" of a reply.
figures parse(const std::string& text) {
  figures found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t colon = text.find(": ", at);
    if (colon < end) found[text.substr(at, colon - at)] = text.substr(colon + 2, end - colon - 2);
    at = end + 1;
  }
  return found;
}

std::uint64_t number(const figures& f, const std::string& name) {
  const auto found = f.find(name);
  return found == f.end() ? 0 : std::stoull(found->second);
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t at = list.find("- "); at != std::string::npos; at = list.find("\n- ", at)) {
    at += list[at] == '\n' ? 3 : 2;
    names.push_back(list.substr(at, list.find('\n', at) - at));
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// What is compared with the last look.
struct look {
  std::chrono::steady_clock::time_point at;
  figures all;
  std::map<std::string, figures> tubes;
};

look look_at(session& s, std::size_t most) {
  look l;
  l.at = std::chrono::steady_clock::now();
  const auto all = s.ask("stats\r\n");
  if (!all.begins("OK")) throw std::runtime_error("the server says " + all.line);
  l.all = parse(all.chunk);
  std::vector<std::string> names = names_in(s.ask("list-tubes\r\n").chunk);
  if (names.size() > most) names.resize(most);
  for (const std::string& name : names) {
    const auto one = s.ask("stats-tube " + name + "\r\n");
    if (one.begins("OK")) l.tubes[name] = parse(one.chunk);
  }
  return l;
}

double rate(const figures& now, const figures& before, const std::string& name, double seconds) {
  const std::uint64_t a = number(before, name);
  const std::uint64_t b = number(now, name);
  return seconds > 0 && b > a ? static_cast<double>(b - a) / seconds : 0;
}

std::string draw(const look& now, const look& before) {
  const std::chrono::duration<double> passed = now.at - before.at;
  const double seconds = passed.count();
  const auto count = [&](const char* name) { return number(now.all, name); };
  const double commits = rate(now.all, before.all, "verge-batches", seconds);
  const double commands = rate(now.all, before.all, "verge-batched-commands", seconds);
  const double sync = rate(now.all, before.all, "verge-sync-microseconds", seconds);
  std::string out = fmt::format(
      "up {} s, {} connections, {} workers wait{}\n"
      "tasks: {} ready, {} delayed, {} reserved, {} buried; {} in memory\n"
      "commits: {:.0f}/s of {:.1f} commands, {:.2f} ms each; {:.0f} put/s\n\n",
      count("uptime"), count("current-connections"), count("current-waiting"),
      now.all.contains("draining") && now.all.at("draining") == "true" ? "; takes no more tasks"
                                                                       : "",
      count("current-jobs-ready"), count("current-jobs-delayed"), count("current-jobs-reserved"),
      count("current-jobs-buried"), count("verge-tasks-in-memory"), commits,
      commits > 0 ? commands / commits : 0.0, commits > 0 ? sync / commits / 1000 : 0.0,
      rate(now.all, before.all, "total-jobs", seconds));
  out += fmt::format("{:<30} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>8}\n", "tube", "ready",
                     "delayed", "reserved", "buried", "put/s", "done/s", "waiting");
  for (const auto& [name, t] : now.tubes) {
    const auto old = before.tubes.find(name);
    const figures& was = old == before.tubes.end() ? t : old->second;
    out += fmt::format("{:<30} {:>10} {:>10} {:>10} {:>10} {:>8.1f} {:>8.1f} {:>8}\n",
                       name.substr(0, 30), number(t, "current-jobs-ready"),
                       number(t, "current-jobs-delayed"), number(t, "current-jobs-reserved"),
                       number(t, "current-jobs-buried"), rate(t, was, "total-jobs", seconds),
                       rate(t, was, "cmd-delete", seconds), number(t, "current-waiting"));
  }
  const std::size_t others =
      count("current-tubes") - std::min<std::size_t>(count("current-tubes"), now.tubes.size());
  if (others != 0) out += fmt::format("and {} more\n", others);
  return out;
}

}  // namespace

top_command::top_command(CLI::App& tool) {
  top_ = tool.add_subcommand("top",
                             "The task server and its tubes, or a program with an inspector, "
                             "renewed every second");
  top_->add_option("ADDRESS,--at", at_, "The address of the server or of the inspector")
      ->capture_default_str();
  top_->add_option("--token", token_, "A token with the scope read, or the inspector's");
  top_->add_option("--every", every_, "Seconds between two looks")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  top_->add_option("--times", times_, "How many looks; 0: until it is interrupted");
  top_->add_option("--rows", rows_, "How many tubes, or labels; 0: as many as fit");
}

/// How many rows fit below so many lines.
std::size_t top_command::rows_that_fit(std::size_t otherwise, std::size_t above) const {
  if (rows_ != 0) return rows_;
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) {
    return otherwise;
  }
  return size.ws_row > above + 1 ? size.ws_row - above : 1;
}

/// Home, what is new over what is old, and the rest of the screen is cleared.
void top_command::show(const std::string& text) const {
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  std::printf("%s%s%s", terminal ? "\x1b[H\x1b[2J" : "", text.c_str(), terminal ? "" : "\n");
  std::fflush(stdout);
}

int top_command::run() {
  if (auto inspector = inspect_top::find(at_, token_)) {
    for (unsigned i = 0; times_ == 0 || i < times_; ++i) {
      // Three lists share what is left.
      show(inspector->look(std::max<std::size_t>(rows_that_fit(60, 24) / 3, 1)));
      if (times_ == 0 || i + 1 < times_) {
        std::this_thread::sleep_for(std::chrono::duration<double>(every_));
      }
    }
    return 0;
  }
  session s(at_);
  if (!token_.empty() && !s.ask("auth " + token_ + "\r\n").begins("DONE")) {
    throw std::runtime_error("the server does not accept the token");
  }
  look before = look_at(s, 1);
  for (unsigned i = 0; times_ == 0 || i < times_; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(every_));
    look now = look_at(s, rows_that_fit(1000, 7));
    show(draw(now, before));
    before = std::move(now);
  }
  return 0;
}

}  // namespace verge::server
