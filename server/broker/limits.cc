// SPDX-License-Identifier: Apache-2.0

// How many tasks a tube takes. With a limit of 0 it takes none: it is drained.

#include <charconv>

#include "broker.h"

namespace verge::server {

namespace {

constexpr std::string_view limit_notes = "limit/";

}  // namespace

void broker::recover_limit(const note& n) {
  if (!n.name.starts_with(limit_notes)) return;
  std::uint64_t most = 0;
  const char* const end = n.text.data() + n.text.size();
  if (std::from_chars(n.text.data(), end, most).ptr != end) {
    throw store_error("the limit of a tube cannot be read: restore a backup");
  }
  limits_[n.name.substr(limit_notes.size())] = most;
}

std::optional<std::uint64_t> broker::limit_of(const std::string& tube) const {
  const auto found = limits_.find(tube);
  if (found == limits_.end()) return std::nullopt;
  return found->second;
}

/// Whether the tube has no room for what is put. A put that keeps or replaces the task with its key
/// needs none; of several puts at once each is taken for a new one.
bool broker::is_full(tube& t, const command& cmd) {
  if (limits_.empty()) return false;
  const auto most = limit_of(t.name);
  if (!most || t.tasks() + cmd.tasks.size() <= *most) return false;
  const new_task& first = cmd.tasks.front();
  if (cmd.tasks.size() != 1 || first.key.empty()) return true;
  return find_by_key(t, first.key) == nullptr;
}

void broker::run_limit(client& c, const command& cmd) {
  std::string name(limit_notes);
  name += cmd.tube;
  if (cmd.most) {
    limits_[cmd.tube] = *cmd.most;
    write_note(std::move(name), std::to_string(*cmd.most));
  } else {
    limits_.erase(cmd.tube);
    write_note(std::move(name), std::nullopt);
  }
  say(c, answer::done);
}

}  // namespace verge::server
