// SPDX-License-Identifier: Apache-2.0

#include "parser.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <limits>

namespace verge::server::beanstalk {

namespace {

constexpr std::uint64_t most_u32 = std::numeric_limits<std::uint32_t>::max();
/// How many tasks a put-batch may bring.
constexpr std::uint64_t most_in_batch = 1000;

command say(answer a) {
  command c;
  c.what = verb::say;
  c.prepared.what = a;
  return c;
}

/// The words of a line, one after the other. Numbers may follow upon any number of spaces.
class words {
 public:
  explicit words(std::string_view text) : text_(text) {}

  bool number(std::uint64_t& n, std::uint64_t most) {
    skip_spaces();
    const char* const begin = text_.data();
    const char* const end = begin + text_.size();
    if (begin == end || *begin < '0' || *begin > '9') return false;
    const auto [stop, error] = std::from_chars(begin, end, n);
    if (error != std::errc() || n > most) return false;
    text_.remove_prefix(static_cast<std::size_t>(stop - begin));
    return true;
  }

  std::string_view word() {
    skip_spaces();
    const std::string_view w = text_.substr(0, text_.find(' '));
    text_.remove_prefix(w.size());
    return w;
  }

  bool at_end() const noexcept { return text_.empty(); }
  std::string_view rest() const noexcept { return text_; }

 private:
  void skip_spaces() noexcept {
    while (!text_.empty() && text_.front() == ' ') text_.remove_prefix(1);
  }

  std::string_view text_;
};

/// A time in seconds, or in milliseconds; as long as 2^32 seconds.
bool duration(words& w, nanoseconds& d, bool milliseconds) {
  std::uint64_t n = 0;
  if (!w.number(n, milliseconds ? most_u32 * 1000 : most_u32)) return false;
  d = static_cast<nanoseconds>(n) * (milliseconds ? millisecond : second);
  return true;
}

/// attempts=5 backoff=1000 dead=failed: after the arguments that every put has.
bool options(words& w, new_task& t) {
  for (;;) {
    const std::string_view word = w.word();
    if (word.empty()) return w.at_end();
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    words v(value);
    std::uint64_t n = 0;
    if (name == "attempts") {
      if (!v.number(n, most_u32) || !v.at_end()) return false;
      t.max_attempts = static_cast<std::uint32_t>(n);
    } else if (name == "backoff") {
      if (!duration(v, t.backoff, true) || !v.at_end()) return false;
    } else if (name == "dead") {
      if (!is_name(value.data(), value.size())) return false;
      t.dead_letter = value;
    } else {
      return false;
    }
  }
}

}  // namespace

void parser::consume(std::size_t n) {
  at_ += n;
  if (at_ == input_.size()) {
    // A connection that is idle does not keep the room of a large body.
    constexpr std::size_t most_kept = 4096;
    input_.clear();
    if (input_.capacity() > most_kept) input_.shrink_to_fit();
    at_ = 0;
  } else if (at_ > (1U << 16)) {
    input_.erase(0, at_);
    at_ = 0;
  }
}

std::optional<command> parser::next() {
  while (!quit_) {
    const std::string_view in = rest();
    switch (mode_) {
      case mode::body:
      case mode::batch_body: {
        if (in.size() < body_size_ + 2) return std::nullopt;
        if (auto c = take_body()) return c;
        break;
      }
      case mode::skip:
        if (!skip()) return std::nullopt;
        mode_ = mode::line;
        return say(skip_answer_);
      case mode::batch_skip:
        if (!skip()) return std::nullopt;
        if (auto c = end_of_batch_item()) return c;
        break;
      case mode::line:
      case mode::rest_of_line:
      case mode::batch_line: {
        const std::string_view window = in.substr(0, longest_line);
        if (window.size() < 2) return std::nullopt;
        const std::size_t cr = window.substr(0, window.size() - 1).find('\r');
        const bool complete = cr != std::string_view::npos && window[cr + 1] == '\n';
        if (!complete) {
          if (window.size() < longest_line) return std::nullopt;
          // Too long: dropped up to its end, as long as that is within one part, as there.
          consume(longest_line);
          mode_ = mode::rest_of_line;
          break;
        }
        const std::string line(window.substr(0, cr));
        consume(cr + 2);
        if (mode_ == mode::rest_of_line) {
          mode_ = mode::line;
          return say(answer::bad_format);
        }
        if (auto c = mode_ == mode::batch_line ? take_batch_line(line) : take_line(line)) return c;
        break;
      }
    }
  }
  return std::nullopt;
}

/// Drops what is to be skipped. False if there is more of it to come.
bool parser::skip() {
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(rest().size(), skip_left_));
  consume(n);
  skip_left_ -= n;
  return skip_left_ == 0;
}

std::size_t parser::weight() const noexcept {
  const std::size_t here = rest().size();
  const bool has_body = mode_ == mode::body || mode_ == mode::batch_body;
  const std::size_t announced = has_body ? static_cast<std::size_t>(body_size_) + 2 : 0;
  const bool in_batch = mode_ == mode::batch_line || mode_ == mode::batch_body;
  return std::max(here, announced) + (in_batch ? batch_bytes_ : 0);
}

void parser::refuse() {
  if (mode_ == mode::body) {
    mode_ = mode::skip;
    skip_answer_ = answer::no_memory;
  } else if (mode_ == mode::batch_line || mode_ == mode::batch_body) {
    batch_is_refused_ = true;
    batch_bytes_ = 0;
    if (mode_ == mode::batch_body) mode_ = mode::batch_skip;
  } else {
    return;
  }
  skip_left_ = body_size_ + 2;
  pending_ = {};
}

std::optional<command> parser::take_body() {
  const std::string_view in = rest();
  const std::string_view body = in.substr(0, static_cast<std::size_t>(body_size_));
  const bool ends_well = in.substr(body.size(), 2) == "\r\n";
  pending_.tasks.back().body.assign(body);
  consume(body.size() + 2);
  if (mode_ == mode::body) {
    mode_ = mode::line;
    if (ends_well) return std::move(pending_);
    // The original has given it an id by now, which is not used again.
    command refused = say(answer::expected_crlf);
    refused.number = 1;
    return refused;
  }
  if (!ends_well) {
    mode_ = mode::line;
    return say(answer::expected_crlf);
  }
  batch_bytes_ += body.size() + sizeof(new_task);
  return end_of_batch_item();
}

std::optional<command> parser::end_of_batch_item() {
  if (--batch_left_ != 0) {
    mode_ = mode::batch_line;
    return std::nullopt;
  }
  mode_ = mode::line;
  if (batch_is_refused_) return say(answer::no_memory);
  return std::move(pending_);
}

/// put PRI DELAY TTR BYTES in seconds; put-ms in milliseconds, with options; put-key in
/// milliseconds, with a key, what to do if it exists, and options.
std::optional<command> parser::parse_put(std::string_view args, bool extended) {
  words w(args);
  pending_ = {};
  pending_.what = verb::put;
  new_task& t = pending_.tasks.emplace_back();
  std::uint64_t priority = 0;
  std::uint64_t size = 0;
  if (!w.number(priority, most_u32) || !duration(w, t.delay, extended) ||
      !duration(w, t.ttr, extended) || !w.number(size, most_u32)) {
    return say(answer::bad_format);
  }
  t.priority = static_cast<std::uint32_t>(priority);
  if (size > body_limit_) {
    skip_left_ = size + 2;
    skip_answer_ = answer::too_big;
    mode_ = mode::skip;
    return std::nullopt;
  }
  if (extended ? !options(w, t) : !w.at_end()) return say(answer::bad_format);
  // A TTR of 0 is one second; with milliseconds any but 0 is meant.
  t.ttr = extended && t.ttr > 0 ? t.ttr : std::max(t.ttr, second);
  body_size_ = size;
  mode_ = mode::body;
  return std::nullopt;
}

std::optional<command> parser::take_batch_line(std::string_view line) {
  words w(line);
  if (batch_is_refused_) pending_.tasks.clear();
  new_task& t = pending_.tasks.emplace_back();
  std::uint64_t priority = 0;
  std::uint64_t size = 0;
  if (!w.number(priority, most_u32) || !duration(w, t.delay, true) || !duration(w, t.ttr, true) ||
      !w.number(size, most_u32) || !options(w, t)) {
    mode_ = mode::line;
    return say(answer::bad_format);
  }
  if (size > body_limit_) {
    skip_left_ = size + 2;
    skip_answer_ = answer::too_big;
    mode_ = mode::skip;
    return std::nullopt;
  }
  t.priority = static_cast<std::uint32_t>(priority);
  if (t.ttr == 0) t.ttr = second;
  body_size_ = size;
  skip_left_ = size + 2;
  mode_ = batch_is_refused_ ? mode::batch_skip : mode::batch_body;
  return std::nullopt;
}

std::optional<command> parser::take_line(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) return say(answer::bad_format);
  const auto begins = [&](std::string_view with) { return line.substr(0, with.size()) == with; };
  const auto args = [&](std::string_view name) { return line.substr(name.size()); };

  command c;
  const auto plain = [&](std::string_view name, verb v) -> std::optional<command> {
    if (line.size() != name.size()) return say(answer::bad_format);
    c.what = v;
    return c;
  };
  const auto by_id = [&](std::string_view name, verb v) -> std::optional<command> {
    words w(args(name));
    if (!w.number(c.number, std::numeric_limits<std::uint64_t>::max()) || !w.at_end()) {
      return say(answer::bad_format);
    }
    c.what = v;
    return c;
  };
  const auto by_tube = [&](std::string_view name, verb v) -> std::optional<command> {
    const std::string_view tube = args(name);
    if (!is_name(tube.data(), tube.size())) return say(answer::bad_format);
    c.what = v;
    c.text = tube;
    return c;
  };
  const auto priority = [&](words& w) {
    std::uint64_t n = 0;
    if (!w.number(n, most_u32)) return false;
    c.priority = static_cast<std::uint32_t>(n);
    return true;
  };
  const std::uint64_t any = std::numeric_limits<std::uint64_t>::max();

  if (begins("put ")) return parse_put(args("put "), false);
  if (begins("put-ms ")) return parse_put(args("put-ms "), true);
  if (begins("put-key ")) {
    // put-key KEY keep|replace|refuse PRI DELAY-MS TTR-MS BYTES [options]
    words w(args("put-key "));
    const std::string key(w.word());
    const std::string wish(w.word());
    if (!is_key(key) || (wish != "keep" && wish != "replace" && wish != "refuse")) {
      return say(answer::bad_format);
    }
    auto refused = parse_put(w.rest(), true);
    if (refused || mode_ != mode::body) return refused;
    new_task& t = pending_.tasks.back();
    t.key = key;
    t.mode = wish == "keep"      ? if_exists::keep
             : wish == "replace" ? if_exists::replace
                                 : if_exists::refuse;
    return std::nullopt;
  }
  if (begins("put-batch ")) {
    words w(args("put-batch "));
    if (!w.number(batch_left_, most_in_batch) || batch_left_ == 0 || !w.at_end()) {
      return say(answer::bad_format);
    }
    pending_ = {};
    pending_.what = verb::put_many;
    batch_bytes_ = 0;
    batch_is_refused_ = false;
    mode_ = mode::batch_line;
    return std::nullopt;
  }
  if (begins("peek ")) return by_id("peek ", verb::peek);
  if (begins("peek-ready")) return plain("peek-ready", verb::peek_ready);
  if (begins("peek-delayed")) return plain("peek-delayed", verb::peek_delayed);
  if (begins("peek-buried")) return plain("peek-buried", verb::peek_buried);
  if (begins("reserve-with-timeout ")) {
    // As the original reads it: what is no number is 0.
    const std::string text(args("reserve-with-timeout "));
    errno = 0;
    const long limit = std::strtol(text.c_str(), nullptr, 10);
    if (errno != 0 || limit < 0 || limit > std::numeric_limits<std::int32_t>::max()) {
      return say(answer::bad_format);
    }
    c.what = verb::reserve;
    c.limit = limit * second;
    return c;
  }
  if (begins("reserve-job ")) return by_id("reserve-job ", verb::reserve_task);
  if (begins("reserve-batch ")) {
    // reserve-batch MOST TIMEOUT-MS
    words w(args("reserve-batch "));
    nanoseconds limit = 0;
    if (!w.number(c.number, most_in_batch) || c.number == 0 || !duration(w, limit, true) ||
        !w.at_end()) {
      return say(answer::bad_format);
    }
    c.what = verb::reserve;
    c.limit = limit;
    return c;
  }
  if (begins("reserve")) return plain("reserve", verb::reserve);
  if (begins("reschedule ")) {
    words w(args("reschedule "));
    const std::string_view key = w.word();
    if (!is_key(key) || !duration(w, c.time, true) || !w.at_end()) return say(answer::bad_format);
    c.what = verb::reschedule;
    c.text = key;
    return c;
  }
  if (begins("cancel ")) {
    const std::string_view key = args("cancel ");
    if (!is_key(key)) return say(answer::bad_format);
    c.what = verb::cancel;
    c.text = key;
    return c;
  }
  if (line == "drain on" || line == "drain off") {
    c.what = verb::drain;
    c.number = line == "drain on" ? 1 : 0;
    return c;
  }
  if (begins("backup ")) {
    c.what = verb::backup;
    c.text = args("backup ");
    return c;
  }
  if (begins("auth ")) {
    c.what = verb::auth;
    c.text = args("auth ");
    return c;
  }
  if (begins("delete ")) return by_id("delete ", verb::remove);
  if (begins("release ")) {
    words w(args("release "));
    if (!w.number(c.number, any) || !priority(w) || !duration(w, c.time, false) || !w.at_end()) {
      return say(answer::bad_format);
    }
    c.what = verb::release;
    return c;
  }
  if (begins("bury ")) {
    words w(args("bury "));
    if (!w.number(c.number, any) || !priority(w) || !w.at_end()) return say(answer::bad_format);
    c.what = verb::bury;
    return c;
  }
  if (begins("kick-job ")) return by_id("kick-job ", verb::kick_task);
  if (begins("kick ")) {
    // As the original reads it: what follows the number does not matter.
    const std::string text(args("kick "));
    char* end = nullptr;
    errno = 0;
    c.number = static_cast<std::uint32_t>(std::strtoul(text.c_str(), &end, 10));
    if (errno != 0 || end == text.c_str()) return say(answer::bad_format);
    c.what = verb::kick;
    return c;
  }
  if (begins("touch ")) return by_id("touch ", verb::touch);
  if (begins("stats-job ")) return by_id("stats-job ", verb::stats_task);
  if (begins("stats-tube ")) return by_tube("stats-tube ", verb::stats_tube);
  if (begins("stats")) return plain("stats", verb::stats);
  if (begins("use ")) return by_tube("use ", verb::use);
  if (begins("watch ")) return by_tube("watch ", verb::watch);
  if (begins("ignore ")) return by_tube("ignore ", verb::ignore);
  if (begins("list-tubes-watched")) return plain("list-tubes-watched", verb::list_watched);
  if (begins("list-tube-used")) return plain("list-tube-used", verb::used);
  if (begins("list-tubes")) return plain("list-tubes", verb::list_tubes);
  if (begins("quit")) {
    quit_ = true;
    c.what = verb::quit;
    return c;
  }
  if (begins("pause-tube")) {
    words w(args("pause-tube"));
    const std::string_view tube = w.word();
    if (!is_name(tube.data(), tube.size()) || !duration(w, c.time, false) || !w.at_end()) {
      return say(answer::bad_format);
    }
    c.what = verb::pause;
    c.text = tube;
    return c;
  }
  return say(answer::unknown_command);
}

}  // namespace verge::server::beanstalk
