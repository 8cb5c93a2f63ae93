// SPDX-License-Identifier: Apache-2.0

#include "ledger.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <optional>
#include <utility>

#include "store/rocks_database.h"
#include "store/rocks_store.h"

namespace verge::crash {

namespace {

/// The system's clock may be set by a little while a test runs.
constexpr wall_time slack = 2'000'000'000;

wall_time plus(wall_time t, std::int64_t d) { return t > far_future - d ? far_future : t + d; }

void set_due(known_task& t, const step& s, std::int64_t delay) {
  t.state = delay > 0 ? task_state::delayed : task_state::ready;
  t.due_first = plus(s.sent, delay);
  t.due_last = s.answered == far_future ? far_future : plus(s.answered, delay);
}

void release(known_task& t, const step& s) {
  t.priority = s.priority;
  t.lease_unclear = false;
  if (t.max_attempts == 0 || t.reserves < t.max_attempts) return set_due(t, s, s.delay);
  if (t.dead_letter.empty()) {
    t.state = task_state::buried;
    t.burial = s.burial;
    return;
  }
  t.tube = t.dead_letter;
  t.dead_letter.clear();
  t.key.clear();
  t.max_attempts = 0;
  t.state = task_state::ready;
}

void change(known_task& t, const step& s) {
  switch (s.what) {
    case step::kind::reschedule:
      return set_due(t, s, s.delay);
    case step::kind::reserve:
      t.state = task_state::reserved;
      t.lease_unclear = false;
      ++t.reserves;
      return;
    case step::kind::release:
      return release(t, s);
    case step::kind::bury:
      t.state = task_state::buried;
      t.lease_unclear = false;
      t.priority = s.priority;
      t.burial = s.burial;
      return;
    case step::kind::kick:
      t.state = task_state::ready;
      return;
    default:
      return;
  }
}

std::string describe(const known_task& t) {
  static const char* const names[] = {"delayed", "ready", "reserved", "buried"};
  return "task " + std::to_string(t.id) + " of " + t.tube + " (" +
         names[static_cast<std::size_t>(t.state)] + ", priority " + std::to_string(t.priority) +
         (t.key.empty() ? "" : ", key " + t.key) + ", body of " + std::to_string(t.body->size()) +
         ")";
}

bool state_agrees(const known_task& t, const server::task& f, const world& w, wall_time taken) {
  const bool due_agrees =
      f.due >= t.due_first - slack && (t.due_last == far_future || f.due <= t.due_last + slack);
  switch (t.state) {
    case task_state::delayed:
      if (f.state == task_state::delayed) return due_agrees;
      if (t.due_first - slack > taken) return false;
      return f.state == task_state::ready || (f.state == task_state::reserved && w.some_reserved);
    case task_state::ready:
      return f.state == task_state::ready ||
             (f.state == task_state::reserved && (t.lease_unclear || w.some_reserved));
    case task_state::reserved:
    case task_state::buried:
      return f.state == t.state;
  }
  return false;
}

/// What is wrong with a task that was found, or nothing.
std::optional<std::string> difference(const known_task& t, const found_task& found, const world& w,
                                      wall_time taken) {
  const server::task& f = found.stored.fields;
  const auto wrong = [&](const std::string& what) {
    return describe(t) + " has come back with another " + what;
  };
  if (found.body != *t.body) return wrong("body");
  if (found.tube != t.tube) return wrong("tube: " + found.tube);
  if (f.key != t.key) return wrong("key: " + f.key);
  if (f.priority != t.priority) return wrong("priority: " + std::to_string(f.priority));
  if (f.ttr != t.ttr) return wrong("TTR: " + std::to_string(f.ttr));
  if (f.max_attempts != t.max_attempts) return wrong("number of attempts");
  if (!state_agrees(t, f, w, taken)) {
    return wrong(std::string("state: ") + server::name_of(f.state) + ", due " +
                 std::to_string(f.due) + " and not " + std::to_string(t.due_first) + " to " +
                 std::to_string(t.due_last));
  }
  // A reserve that was not answered may have been the last.
  const bool one_more =
      t.state != task_state::reserved && w.some_reserved && f.reserves == t.reserves + 1;
  if (f.reserves != t.reserves && !one_more) {
    return wrong("count of reservations: " + std::to_string(f.reserves) + " and not " +
                 std::to_string(t.reserves));
  }
  return std::nullopt;
}

std::vector<std::string> differences(const world& w, const std::set<std::string>& tubes,
                                     const snapshot& found) {
  std::vector<std::string> wrong;
  for (const auto& [id, t] : w.tasks) {
    const auto at = found.tasks.find(id);
    if (at == found.tasks.end()) {
      wrong.push_back(describe(t) + " is lost");
    } else if (auto d = difference(t, at->second, w, found.taken)) {
      wrong.push_back(std::move(*d));
    }
  }
  std::vector<const known_task*> nameless;
  for (const known_task& t : w.nameless) nameless.push_back(&t);
  for (const auto& [id, task] : found.tasks) {
    if (!tubes.contains(task.tube) || w.tasks.contains(id)) continue;
    const auto at = std::find_if(nameless.begin(), nameless.end(), [&, &f = task](const auto* t) {
      return !difference(*t, f, w, found.taken);
    });
    if (at == nameless.end()) {
      wrong.push_back("task " + std::to_string(id) + " of " + task.tube +
                      " is there, and must not be: " + task.body.substr(0, 40));
    } else {
      nameless.erase(at);
    }
  }
  for (const known_task* t : nameless) wrong.push_back(describe(*t) + " is not there");
  for (const auto& [tube, pause] : w.pauses) {
    const auto at = std::find_if(found.known.tubes.begin(), found.known.tubes.end(),
                                 [&, &name = tube](const auto& r) { return r.name == name; });
    if (at == found.known.tubes.end() || at->pause != pause) {
      wrong.push_back("the pause of " + tube + " is lost: " + std::to_string(pause));
    }
  }
  return wrong;
}

}  // namespace

wall_time now() {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return wall_time{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void apply(world& w, const step& s) {
  if (s.changed_nothing) return;
  switch (s.what) {
    case step::kind::put:
      for (const task_id id : s.about) w.tasks.erase(id);
      for (known_task t : s.made) {
        set_due(t, s, t.delay);
        if (t.id != 0) {
          w.tasks[t.id] = std::move(t);
        } else {
          w.nameless.push_back(std::move(t));
        }
      }
      return;
    case step::kind::remove:
      for (const task_id id : s.about) w.tasks.erase(id);
      return;
    case step::kind::pause:
      w.pauses[s.tube] = s.delay;
      return;
    case step::kind::lost:
      for (auto& [id, t] : w.tasks) {
        if (t.state != task_state::reserved) continue;
        t.state = task_state::ready;
        t.lease_unclear = true;
      }
      return;
    case step::kind::adopt:
      w = s.found;
      return;
    case step::kind::reserve:
      if (!s.has_answer) w.some_reserved = true;
      break;
    default:
      break;
  }
  for (const task_id id : s.about) {
    if (const auto at = w.tasks.find(id); at != w.tasks.end()) change(at->second, s);
  }
}

namespace {

snapshot read_all(server::store& store) {
  snapshot s;
  s.known = store.recover();
  s.taken = now();
  for (const server::tube_record& tube : s.known.tubes) {
    for (const auto kind :
         {server::place_kind::delayed, server::place_kind::ready, server::place_kind::buried}) {
      for (auto& stored :
           store.scan(tube.number, server::beginning_of(kind), std::size_t{1} << 30)) {
        const task_id id = stored.fields.id;
        s.tasks[id] = {.stored = std::move(stored), .tube = tube.name, .body = store.body_of(id)};
      }
    }
  }
  return s;
}

}  // namespace

snapshot look_at_directory(const std::string& directory) {
  std::vector<std::string> faults = server::check_rocks_store(directory).faults;
  server::rocks_options options;
  options.directory = directory;
  server::rocks_store store(options, server::access::read);
  snapshot s = read_all(store);
  s.faults = std::move(faults);
  return s;
}

snapshot read_directory(const std::string& directory) {
  std::vector<std::string> faults = server::check_rocks_store(directory).faults;
  const auto store = server::open_rocks_store({.directory = directory, .must_exist = true});
  snapshot s = read_all(*store);
  s.faults = std::move(faults);
  return s;
}

snapshot read_copy_of(const std::string& directory, const std::string& copy) {
  namespace fs = std::filesystem;
  fs::remove_all(copy);
  fs::copy(directory, copy, fs::copy_options::recursive);
  snapshot s = read_directory(copy);
  fs::remove_all(copy);
  return s;
}

std::vector<std::string> ledger::compare(const snapshot& found, position cut, position sure) const {
  world w;
  // What was found after an earlier crash settles what was unclear before it.
  const auto last = std::find_if(steps.rbegin(), steps.rend(), [&](const step& s) {
    return s.what == step::kind::adopt && s.acked < sure;
  });
  auto at = last == steps.rend() ? steps.begin() : std::prev(last.base());
  for (; at != steps.end() && at->acked < sure; ++at) apply(w, *at);
  // A server that was started since may have ended the leases of the one before.
  const bool started_since = std::any_of(
      at, steps.end(), [&](const step& s) { return s.what == step::kind::adopt && s.begun < cut; });
  const auto differs = [&] {
    if (!started_since) return differences(w, tubes, found);
    world after = w;
    step lost;
    lost.what = step::kind::lost;
    apply(after, lost);
    return differences(after, tubes, found);
  };
  std::vector<std::string> least = differs();
  for (; !least.empty() && at != steps.end() && at->begun < cut; ++at) {
    if (at->what == step::kind::adopt) break;
    apply(w, *at);
    std::vector<std::string> now_wrong = differs();
    if (now_wrong.size() < least.size()) least = std::move(now_wrong);
  }
  return least;
}

world ledger::adopt(const snapshot& found) const {
  world w;
  for (const auto& [id, f] : found.tasks) {
    if (!tubes.contains(f.tube)) continue;
    const server::task& t = f.stored.fields;
    const bool reserved = t.state == task_state::reserved;
    w.tasks[id] = {.id = id,
                   .tube = f.tube,
                   .key = t.key,
                   .dead_letter = t.dead_letter,
                   .body = std::make_shared<const std::string>(f.body),
                   .priority = t.priority,
                   .state = reserved ? task_state::ready : t.state,
                   .due_first = t.due,
                   .due_last = t.due,
                   .ttr = t.ttr,
                   .reserves = t.reserves,
                   .max_attempts = t.max_attempts,
                   .burial = t.burial,
                   .lease_unclear = reserved};
  }
  for (const server::tube_record& r : found.known.tubes) {
    if (tubes.contains(r.name) && r.pause != 0) w.pauses[r.name] = r.pause;
  }
  return w;
}

std::vector<std::string> compare(const std::vector<const ledger*>& ledgers, const snapshot& found,
                                 position cut, position sure) {
  std::vector<std::string> wrong = found.faults;
  for (const ledger* l : ledgers) {
    for (std::string& text : l->compare(found, cut, sure)) wrong.push_back(std::move(text));
    task_id highest = 0;
    for (const step& s : l->steps) {
      if (s.acked >= cut) continue;
      for (const known_task& t : s.made) highest = std::max(highest, t.id);
    }
    if (highest >= found.known.id_ceiling) {
      wrong.push_back("id " + std::to_string(highest) + " was given out and would be given again");
    }
  }
  return wrong;
}

}  // namespace verge::crash
