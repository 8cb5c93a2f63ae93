// SPDX-License-Identifier: Apache-2.0

// Commands that come twice: the reply to the first is kept, with its key, in the batch that holds
// what the command has changed. So the two are both on disk, or neither is.

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "broker.h"

namespace verge::server {

namespace {

constexpr std::string_view once_notes = "once/";
constexpr nanoseconds day = 86'400'000'000'000;
constexpr std::size_t most_answers = 100'000;

/// Replies that say that something was done, and that can be written down.
bool is_kept(answer a) noexcept {
  switch (a) {
    case answer::inserted:
    case answer::kept:
    case answer::replaced:
    case answer::inserted_many:
    case answer::deleted:
    case answer::released:
    case answer::buried:
    case answer::touched:
    case answer::kicked:
    case answer::kicked_task:
    case answer::paused:
      return true;
    default:
      return false;
  }
}

std::string note_of_key(const std::string& key) { return std::string(once_notes).append(key); }

}  // namespace

void broker::recover_once(const note& n) {
  if (!n.name.starts_with(once_notes)) return;
  try {
    const auto j = nlohmann::json::parse(n.text);
    answered a;
    a.print = j.at("print");
    a.at = j.at("at");
    a.said.what = static_cast<answer>(j.at("what").get<int>());
    a.said.number = j.at("number");
    a.said.text = j.at("text");
    for (const auto& [what, id] : j.at("each").get<std::vector<std::pair<int, task_id>>>()) {
      a.said.each.emplace_back(static_cast<answer>(what), id);
    }
    const std::string key = n.name.substr(once_notes.size());
    answered_by_age_.insert({a.at, key});
    answered_[key] = std::move(a);
  } catch (const nlohmann::json::exception&) {
    throw store_error("a reply that was kept cannot be read: restore a backup");
  }
}

void broker::run_once(client& c, command& cmd) {
  forget_old_answers();
  const auto once = std::exchange(cmd.once, nullptr);
  if (const auto found = answered_.find(once->key); found != answered_.end()) {
    if (found->second.print != once->print) return say(c, answer::other_request);
    reply again = found->second.said;
    again.replayed = true;
    return say(c, std::move(again));
  }
  const std::size_t before = replies_.size();
  run(c, cmd);
  if (c.kicks_) kicks_.back().once = once;  // it is answered later
  for (std::size_t i = before; i < replies_.size(); ++i) {
    const reply& said = replies_[i].second;
    if (replies_[i].first != &c || !is_kept(said.what)) continue;
    return keep_answer(*once, said);
  }
}

void broker::keep_answer(const once_key& once, const reply& said) {
  nlohmann::json j;
  j["print"] = once.print;
  j["at"] = wall_;
  j["what"] = static_cast<int>(said.what);
  j["number"] = said.number;
  j["text"] = said.text;
  j["each"] = nlohmann::json::array();
  for (const auto& [what, id] : said.each) j["each"].push_back({static_cast<int>(what), id});
  write_note(note_of_key(once.key), j.dump());
  answered_[once.key] = {.print = once.print, .said = said, .at = wall_};
  answered_by_age_.insert({wall_, once.key});
}

void broker::forget_old_answers() {
  while (!answered_by_age_.empty() && (answered_by_age_.begin()->first <= wall_ - day ||
                                       answered_by_age_.size() > most_answers)) {
    const std::string key = answered_by_age_.begin()->second;
    write_note(note_of_key(key), std::nullopt);
    answered_.erase(key);
    answered_by_age_.erase(answered_by_age_.begin());
  }
}

}  // namespace verge::server
