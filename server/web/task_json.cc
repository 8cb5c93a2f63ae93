// SPDX-License-Identifier: Apache-2.0

#include "task_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

#include "../push/url.h"
#include "../text/coding.h"
#include "../text/time_text.h"
#include "problem.h"

namespace verge::server::web {

namespace {

constexpr std::uint32_t default_priority = 1024;
constexpr nanoseconds default_ttr = 60'000 * millisecond;

void add_body(ordered_json& to, const std::string& body) {
  if (is_utf8(body)) {
    to["body"] = body;
  } else {
    to["body_base64"] = base64(body);
  }
}

void add_options(ordered_json& to, const task& t) {
  if (!t.key.empty()) to["key"] = t.key;
  if (t.max_attempts != 0) to["max_attempts"] = t.max_attempts;
  if (t.backoff != 0) to["backoff"] = t.backoff / millisecond;
  if (!t.dead_letter.empty()) to["dead_letter"] = t.dead_letter;
  if (t.push != nullptr && !t.push->url.empty()) to["url"] = t.push->url;
  if (t.push != nullptr && !t.push->answer.empty()) to["last_answer"] = t.push->answer;
}

}  // namespace

object_reader::object_reader(const json& object, std::string at)
    : object_(object), at_(std::move(at)) {
  known_.reserve(12);
  if (!object.is_object()) {
    throw refused({.type = "bad-value",
                   .detail = "a JSON object is wanted here, like {\"body\": \"hello\"}",
                   .where = at_});
  }
}

const json* object_reader::find(const char* name) {
  known_.emplace_back(name);
  const auto found = object_.find(name);
  return found == object_.end() ? nullptr : &*found;
}

void object_reader::refuse(const char* name, const std::string& detail) const {
  throw refused(
      {.type = "bad-value", .detail = std::string(name) + " " + detail, .where = at_ + "/" + name});
}

std::optional<std::string> object_reader::text(const char* name) {
  const json* j = find(name);
  if (j == nullptr) return std::nullopt;
  if (!j->is_string()) refuse(name, "has to be a string");
  return j->get_ref<const std::string&>();
}

std::optional<std::uint64_t> object_reader::number(const char* name, std::uint64_t most) {
  const json* j = find(name);
  if (j == nullptr) return std::nullopt;
  // A number with a point or an exponent is none of these, and neither is a negative one.
  if (!j->is_number_unsigned() || j->get<std::uint64_t>() > most) {
    refuse(name, fmt::format("has to be a whole number from 0 to {}", most));
  }
  return j->get<std::uint64_t>();
}

std::optional<nanoseconds> object_reader::duration(const char* name) {
  const auto n = number(name, static_cast<std::uint64_t>(longest / millisecond) - 1);
  if (!n) return std::nullopt;
  return static_cast<nanoseconds>(*n) * millisecond;
}

std::optional<wall_time> object_reader::time(const char* name) {
  const auto given = text(name);
  if (!given) return std::nullopt;
  const auto parsed = parse_rfc3339(*given);
  if (!parsed) {
    refuse(name, "has to be a time of RFC 3339 between 1970 and 2262, like 2030-01-31T12:00:00Z");
  }
  return parsed;
}

std::optional<std::string> object_reader::tube(const char* name) {
  auto given = text(name);
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.InnerPointer): `given` is not changed before
  if (given && !is_name(given->data(), given->size())) {
    refuse(name,
           "has to be the name of a tube: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( ), not "
           "beginning with a hyphen");
  }
  return given;
}

std::optional<std::string> object_reader::key(const char* name) {
  auto given = text(name);
  if (given && !is_key(*given)) {
    refuse(name, "has to have 1 to 200 bytes, without spaces and control characters");
  }
  return given;
}

std::optional<std::string> object_reader::url(const char* name) {
  auto given = text(name);
  if (given && !push::parse_url(*given)) {
    refuse(
        name,
        "has to be a URL like https://example.com/hook, of http or https, in ASCII, without user "
        "and fragment");
  }
  return given;
}

std::vector<std::string> object_reader::texts(const char* name) {
  const json* j = find(name);
  std::vector<std::string> all;
  if (j == nullptr) return all;
  if (j->is_string()) return {j->get<std::string>()};
  const auto is_string = [](const json& one) { return one.is_string(); };
  if (!j->is_array() || j->empty() || !std::all_of(j->begin(), j->end(), is_string)) {
    refuse(name, "has to be a string, or an array of strings");
  }
  for (const json& one : *j) all.push_back(one.get<std::string>());
  return all;
}

const json& object_reader::object(const char* name) {
  const json* j = find(name);
  if (j == nullptr || !j->is_object()) refuse(name, "is missing: an object like {\"body\": \"x\"}");
  return *j;
}

void object_reader::finish() const {
  for (const auto& [name, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    std::string detail = "there is no field '" + name + "' here; there are: ";
    for (const std::string_view k : known_)
      detail.append(k == known_.front() ? "" : ", ").append(k);
    throw refused({.type = "unknown-field", .detail = detail, .where = at_ + "/" + name});
  }
}

bool read_when(object_reader& in, nanoseconds& delay, std::optional<wall_time>& due) {
  const auto given_delay = in.duration("delay");
  due = in.time("due");
  if (given_delay && due) in.refuse("due", "and delay exclude each other: leave one out");
  delay = given_delay.value_or(0);
  return given_delay || due;
}

new_task read_task(const json& object, std::uint32_t body_limit, const std::string& at) {
  object_reader in(object, at);
  new_task t;
  auto body = in.text("body");
  const auto coded = in.text("body_base64");
  if (body && coded) in.refuse("body_base64", "and body exclude each other: leave one out");
  if (coded) {
    body = parse_base64(*coded);
    if (!body) in.refuse("body_base64", "has to be base64 with its padding, like aGVsbG8=");
  }
  if (!body) in.refuse("body", "is missing: give the task's body, or body_base64; it may be empty");
  if (body->size() > body_limit) {
    throw refused({.status = 413,
                   .type = "too-large",
                   .detail = fmt::format("a task's body has at most {} bytes here, not {}: start "
                                         "the server with a larger --max-body",
                                         body_limit, body->size()),
                   .where = at + (coded ? "/body_base64" : "/body")});
  }
  t.body = std::move(*body);
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  t.priority = static_cast<std::uint32_t>(in.number("priority", most).value_or(default_priority));
  static_cast<void>(read_when(in, t.delay, t.due));
  t.ttr = in.duration("ttr").value_or(default_ttr);
  if (t.ttr == 0) in.refuse("ttr", "has to be at least 1: how many milliseconds a worker gets");
  t.key = in.key("key").value_or("");
  if (const auto mode = in.text("if_exists")) {
    if (*mode == "keep") {
      t.mode = if_exists::keep;
    } else if (*mode == "replace") {
      t.mode = if_exists::replace;
    } else if (*mode == "refuse") {
      t.mode = if_exists::refuse;
    } else {
      in.refuse("if_exists", "has to be keep, replace or refuse");
    }
  }
  t.max_attempts = static_cast<std::uint32_t>(in.number("max_attempts", most).value_or(0));
  t.backoff = in.duration("backoff").value_or(0);
  t.dead_letter = in.tube("dead_letter").value_or("");
  t.url = in.url("url").value_or("");
  in.finish();
  return t;
}

ordered_json shown(const new_task& t) {
  ordered_json j;
  add_body(j, t.body);
  j["priority"] = t.priority;
  j["ttr"] = t.ttr / millisecond;
  if (t.max_attempts != 0) j["max_attempts"] = t.max_attempts;
  if (t.backoff != 0) j["backoff"] = t.backoff / millisecond;
  if (!t.dead_letter.empty()) j["dead_letter"] = t.dead_letter;
  if (!t.url.empty()) j["url"] = t.url;
  return j;
}

ordered_json shown(const task_view& v) {
  ordered_json j;
  const task& t = v.fields;
  j["id"] = t.id;
  j["tube"] = v.tube;
  j["state"] = name_of(t.state);
  j["priority"] = t.priority;
  j["created"] = format_rfc3339(t.created);
  j["due"] = format_rfc3339(t.due);
  j["ttr"] = t.ttr / millisecond;
  j["time_left"] = v.time_left / millisecond;
  if (t.state == task_state::reserved) {
    j["lease_ends"] = format_rfc3339(t.lease_end / millisecond * millisecond);
  }
  j["attempts"] = t.reserves;
  j["timeouts"] = t.timeouts;
  j["releases"] = t.releases;
  j["buries"] = t.buries;
  j["kicks"] = t.kicks;
  add_options(j, t);
  if (v.body != nullptr) add_body(j, *v.body);
  return j;
}

ordered_json shown(const tube_view& v) {
  ordered_json j;
  j["name"] = v.name;
  j["ready"] = v.ready;
  j["urgent"] = v.urgent;
  j["delayed"] = v.delayed;
  j["reserved"] = v.reserved;
  j["buried"] = v.buried;
  j["waiting"] = v.waiting;
  j["watching"] = v.watching;
  j["using"] = v.using_it;
  j["put"] = v.total;
  j["handed_out"] = v.reserves;
  j["deleted"] = v.deletes;
  j["paused_for"] = v.pause_left / millisecond;
  j["oldest_ready"] = v.oldest_ready / millisecond;
  if (v.most_tasks) j["max_tasks"] = *v.most_tasks;
  j["push"] = !v.pushes ? "off" : v.push_disabled ? "disabled" : "on";
  return j;
}

ordered_json shown(const server_view& v) {
  ordered_json j;
  j["ready"] = v.ready;
  j["delayed"] = v.delayed;
  j["reserved"] = v.reserved;
  j["buried"] = v.buried;
  j["put"] = v.total;
  j["timeouts"] = v.timeouts;
  j["tubes"] = v.tubes;
  j["connections"] = v.connections;
  j["waiting"] = v.waiting;
  j["commits"] = v.batches;
  j["committed_commands"] = v.batched_commands;
  j["sync_us"] = v.sync_nanoseconds / 1000;
  j["in_memory"] = v.in_memory;
  j["bytes_written"] = v.bytes_written;
  j["disk_bytes"] = v.disk_bytes;
  j["uptime"] = v.uptime;
  j["draining"] = v.draining;
  return j;
}

void append_handed(std::string& to, const handed_out& t, std::string_view tube) {
  const auto out = std::back_inserter(to);
  const auto add_text = [&](std::string_view name, std::string_view value) {
    fmt::format_to(out, ",\"{}\":", name);
    append_json_text(to, value);
  };
  fmt::format_to(out, "{{\"id\":{},\"lease\":\"{}.{:x}\"", t.id, t.id, t.token);
  add_text("tube", tube);
  if (t.fields != nullptr) {
    const task& f = *t.fields;
    fmt::format_to(out, ",\"priority\":{},\"due\":\"{}\",\"ttr\":{},\"attempts\":{}", f.priority,
                   format_rfc3339(f.due), f.ttr / millisecond, f.reserves);
    // A key that came over beanstalk's protocol may be any bytes.
    if (is_utf8(f.key)) {
      if (!f.key.empty()) add_text("key", f.key);
    } else {
      constexpr auto replace = json::error_handler_t::replace;
      fmt::format_to(out, ",\"key\":{}", json(f.key).dump(-1, ' ', false, replace));
    }
    if (f.max_attempts != 0) fmt::format_to(out, ",\"max_attempts\":{}", f.max_attempts);
    if (f.backoff != 0) fmt::format_to(out, ",\"backoff\":{}", f.backoff / millisecond);
    if (!f.dead_letter.empty()) add_text("dead_letter", f.dead_letter);
    if (f.push != nullptr && !f.push->url.empty()) add_text("url", f.push->url);
    if (f.push != nullptr && !f.push->answer.empty()) add_text("last_answer", f.push->answer);
  }
  if (is_utf8(*t.body)) {
    add_text("body", *t.body);
  } else {
    add_text("body_base64", base64(*t.body));
  }
  to += '}';
}

std::string lease_text(task_id id, lease_token token) { return fmt::format("{}.{:x}", id, token); }

std::optional<std::pair<task_id, lease_token>> parse_lease(std::string_view text) {
  const auto point = text.find('.');
  if (point == text.npos) return std::nullopt;
  task_id id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + point, id);
  const auto token = parse_hex(text.substr(point + 1));
  if (error != std::errc() || end != text.data() + point || !token || *token == 0) {
    return std::nullopt;
  }
  return std::pair(id, *token);
}

std::string cursor_text(const list_position& p) {
  return fmt::format("{:x}.{:x}.{:x}", p.priority, static_cast<std::uint64_t>(p.at), p.id);
}

std::optional<list_position> parse_cursor(std::string_view text) {
  const auto first = text.find('.');
  const auto last = text.rfind('.');
  if (first == text.npos || first == last) return std::nullopt;
  const auto priority = parse_hex(text.substr(0, first));
  const auto at = parse_hex(text.substr(first + 1, last - first - 1));
  const auto id = parse_hex(text.substr(last + 1));
  if (!priority || !at || !id || *priority > std::numeric_limits<std::uint32_t>::max()) {
    return std::nullopt;
  }
  return list_position{.priority = static_cast<std::uint32_t>(*priority),
                       .at = static_cast<std::int64_t>(*at),
                       .id = *id};
}

std::string written(const ordered_json& j) {
  return j.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace verge::server::web
