// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "../broker/command.h"

/// Tasks, tubes and the server as JSON, in and out.
namespace verge::server::web {

using json = nlohmann::json;
using ordered_json = nlohmann::ordered_json;

/// Reads the members of one JSON object. Each is asked for by name; finish() refuses what was not
/// asked for. Throws `refused` with a pointer to what is wrong.
class object_reader {
 public:
  /// `at` is the pointer to the object: "" for the whole body.
  object_reader(const json& object, std::string at);

  bool has(const char* name) const { return object_.contains(name); }
  std::optional<std::string> text(const char* name);
  std::optional<std::uint64_t> number(const char* name, std::uint64_t most);
  /// In milliseconds.
  std::optional<nanoseconds> duration(const char* name);
  std::optional<wall_time> time(const char* name);
  std::optional<std::string> tube(const char* name);
  std::optional<std::string> key(const char* name);
  /// Of a receiver.
  std::optional<std::string> url(const char* name);
  /// A string, or an array of strings.
  std::vector<std::string> texts(const char* name);
  /// An object inside this one, which has to be there. It is not read yet.
  const json& object(const char* name);
  void finish() const;

  [[noreturn]] void refuse(const char* name, const std::string& detail) const;

 private:
  const json* find(const char* name);

  const json& object_;
  std::string at_;
  std::vector<std::string_view> known_;
};

/// `delay` in milliseconds or `due` as a time. False if there is neither.
bool read_when(object_reader& in, nanoseconds& delay, std::optional<wall_time>& due);
/// The fields of a new task.
new_task read_task(const json& object, std::uint32_t body_limit, const std::string& at);

/// What a task is put with, without its key and time.
ordered_json shown(const new_task& t);
ordered_json shown(const task_view& v);
ordered_json shown(const tube_view& v);
ordered_json shown(const server_view& v);
/// Appends it with its lease, "id.token". As text, without a document in between: workers ask for
/// nothing else as often.
void append_handed(std::string& to, const handed_out& t, std::string_view tube);

std::string lease_text(task_id id, lease_token token);
/// Nothing if the text is no lease.
std::optional<std::pair<task_id, lease_token>> parse_lease(std::string_view text);
/// Of a page of a list.
std::string cursor_text(const list_position& p);
std::optional<list_position> parse_cursor(std::string_view text);

std::string written(const ordered_json& j);

}  // namespace verge::server::web
