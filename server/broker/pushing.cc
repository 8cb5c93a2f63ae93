// SPDX-License-Identifier: Apache-2.0

// Which tubes are pushed, and what comes of pushes. What sends them is server/push, a client of the
// broker as any other: it reserves, and then removes, or says that it could not deliver.

#include <algorithm>

#include "broker.h"
#include "mix.h"
#include "push_note.h"

namespace verge::server {

namespace {

/// The names of notes that are push settings: this, and the tube.
constexpr std::string_view push_notes = "push/";

}  // namespace

void broker::recover_push(const note& n) {
  if (!n.name.starts_with(push_notes)) return;
  pushes_[n.name.substr(push_notes.size())] =
      std::make_shared<const push_settings>(parse_push_note(n.text));
}

const push_settings* broker::push_of(const std::string& tube) const {
  const auto found = pushes_.find(tube);
  return found == pushes_.end() ? nullptr : found->second.get();
}

/// A task with a URL would never be sent in a tube that is not pushed: all of the tasks are
/// refused.
bool broker::lacks_push(const tube& t, const command& cmd) const {
  const auto has_url = [](const new_task& n) { return !n.url.empty(); };
  return std::any_of(cmd.tasks.begin(), cmd.tasks.end(), has_url) && push_of(t.name) == nullptr;
}

void broker::write_note(std::string name, std::optional<std::string> text) {
  changed_notes_[std::move(name)] = std::move(text);
}

/// Nothing: the tube is not pushed any more.
void broker::set_push(const std::string& tube, const shared_push& settings) {
  std::string name(push_notes);
  name += tube;
  if (settings == nullptr) {
    pushes_.erase(tube);
    write_note(std::move(name), std::nullopt);
  } else {
    pushes_[tube] = settings;
    write_note(std::move(name), push_note(*settings));
  }
  for (auto& [c, shared] : clients_) {
    if (!c->follows_push_) continue;
    reply r;
    r.what = answer::push_is;
    r.text = tube;
    r.push = settings;
    say(*c, std::move(r));
  }
}

void broker::follow_push(client& c) {
  c.follows_push_ = true;
  for (const auto& [tube, settings] : pushes_) {
    reply r;
    r.what = answer::push_is;
    r.text = tube;
    r.push = settings;
    say(c, std::move(r));
  }
}

void broker::run_push(client& c, const command& cmd) {
  if (cmd.within != nullptr && !cmd.within->covers(cmd.tube)) return say(c, answer::denied);
  if (cmd.what == verb::set_push) {
    set_push(cmd.tube, cmd.push);
    return say(c, answer::done);
  }
  const auto found = pushes_.find(cmd.tube);
  if (found == pushes_.end()) return say(c, answer::not_found);
  reply r;
  r.what = answer::shown;
  r.shown = std::make_shared<const view>(found->second);
  if (cmd.what == verb::clear_push) {
    r.what = answer::done;
    set_push(cmd.tube, nullptr);
  }
  say(c, std::move(r));
}

/// A push has failed, or was not tried. The settings may have been removed meanwhile: then those
/// that are the default count.
void broker::run_undelivered(client& c, const command& cmd) {
  entry* e = find(cmd.number);
  if (e == nullptr) return say(c, answer::not_found);
  if (e->fields.state != task_state::reserved || e->fields.token != cmd.token) {
    return say(c, answer::stale_lease);
  }
  take_out(*e);
  end_lease(*e);
  if (cmd.what == verb::postpone) {
    static_cast<void>(server::postpone(e->fields, cmd.token, wall_, cmd.time));
  } else {
    const push_settings* const found = push_of(e->home->name);
    const push_settings settings = found != nullptr ? *found : push_settings{};
    const std::uint64_t random =
        mix(options_.seed ^ mix(e->fields.id + (std::uint64_t{e->fields.reserves} << 40)));
    const nanoseconds delay = retry_delay(settings, e->fields, cmd.time, random);
    const std::uint32_t most = cmd.give_up ? 1 : attempts_of(settings, e->fields);
    const std::string tube = e->home->name;
    if (server::fail(e->fields, cmd.token, wall_, delay, most, cmd.text) == outcome::dead) {
      bury_or_move(*e);
    }
    // Not if the tube has another receiver by now.
    if (cmd.disable && found != nullptr && settings.url == cmd.url && settings.disabled.empty()) {
      auto disabled = std::make_shared<push_settings>(settings);
      disabled->disabled = cmd.text;
      set_push(tube, disabled);
    }
  }
  write_later(*e);
  say(c, answer::released);
  put_in(*e);
  note_due(*e->home);
}

}  // namespace verge::server
