// SPDX-License-Identifier: Apache-2.0

#include "move.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <verge/runtime.h>

#include "../broker/broker.h"
#include "../broker/schedule.h"
#include "../postgres/postgres_store.h"
#include "../postgres/schema.h"
#include "../store/rocks_store.h"
#include "leases.h"
#include "tube_hash.h"

namespace verge::server::cluster {

namespace {

constexpr std::size_t at_once = 1'000;
constexpr const char* mover = "verge move";

/// The leases of all shards, for as long as it lives: no server can serve them meanwhile.
class all_shards {
 public:
  explicit all_shards(const postgres::link_options& o, std::uint32_t shards)
      : table_(o, {.length = std::chrono::hours(24)}) {
    std::vector<std::uint32_t> wanted;
    for (std::uint32_t s = 0; s < shards; ++s) wanted.push_back(s);
    runtime_.run([&]() -> verge::task<> { held_ = co_await table_.take(mover, wanted); });
    if (held_.size() == shards) return;
    give_up();
    throw store_error("a server has the tasks of the database: end all servers first");
  }
  all_shards(const all_shards&) = delete;
  all_shards& operator=(const all_shards&) = delete;
  ~all_shards() {
    try {
      give_up();
    } catch (const store_error&) {
      // The next start of a server says what is wrong with the database.
    }
  }
  const std::vector<held_shard>& held() const noexcept { return held_; }

 private:
  void give_up() {
    runtime_.run([&]() -> verge::task<> { co_await table_.give_up(held_); });
  }

  verge::runtime runtime_{{.processors = 1}};
  lease_table table_;
  std::vector<held_shard> held_;
};

/// Writes tasks to a store, with counts and numbers of tubes that are right for it.
class task_writer {
 public:
  explicit task_writer(store& to) : to_(to) {}

  /// `from` is the tube in the other store, or one that is known by its name alone, so far.
  void add_tube(const tube_record& from) {
    const auto [found, is_new] = tubes_.try_emplace(from.name);
    tube_record& t = found->second;
    if (is_new) {
      t.number = static_cast<tube_number>(tubes_.size());
      t.name = from.name;
    }
    if (from.pause != 0) {
      t.paused_until = from.paused_until;
      t.pause = from.pause;
    }
    t.due_mark = std::max(t.due_mark, from.due_mark);
  }

  void add(const std::string& tube, stored_task t, std::string body) {
    tube_record& record = tubes_.at(tube);
    t.fields.tube = record.number;
    record.delayed += t.where.kind == place_kind::delayed ? 1 : 0;
    record.buried += t.where.kind == place_kind::buried ? 1 : 0;
    if (t.where.kind == place_kind::ready) {
      ++record.ready;
      if (t.where.priority < urgent_below) ++record.urgent;
    }
    ids_ = std::max(ids_, t.fields.id + 1);
    burials_ = std::max(burials_, t.fields.burial + 1);
    tasks_.emplace_back(std::move(t), std::move(body));
    if (tasks_.size() >= at_once) flush();
  }

  void flush() {
    batch b;
    for (const auto& [t, body] : tasks_) {
      b.insertions.push_back({.fields = &t.fields, .where = t.where, .body = body});
    }
    if (!b.empty()) to_.write(b);
    tasks_.clear();
  }

  /// The last batch has what makes the others count.
  void finish(const recovered& marks, std::vector<note> notes, std::uint64_t factor) {
    flush();
    batch b;
    for (const auto& [name, t] : tubes_) b.tubes.push_back(t);
    b.notes = std::move(notes);
    b.id_ceiling = std::max(ids_, marks.id_ceiling * factor);
    b.burial_ceiling = std::max(burials_, marks.burial_ceiling);
    to_.write(b);
  }

  std::size_t tubes() const noexcept { return tubes_.size(); }

 private:
  store& to_;
  std::map<std::string, tube_record> tubes_;
  std::vector<std::pair<stored_task, std::string>> tasks_;
  task_id ids_{1};
  std::uint64_t burials_{1};
};

/// Each task of the tube with its body, in the order of its indexes.
template <class Each>
std::uint64_t read_tube(store& from, tube_number tube, Each each) {
  std::uint64_t count = 0;
  for (const place_kind kind : {place_kind::delayed, place_kind::ready, place_kind::buried}) {
    position next = beginning_of(kind);
    for (bool more = true; more;) {
      std::vector<stored_task> found = from.scan(tube, next, at_once);
      more = found.size() == at_once;
      if (more) next = {.where = found.back().where, .id = found.back().fields.id + 1};
      for (stored_task& t : found) {
        std::string body = from.body_of(t.fields.id);
        each(std::move(t), std::move(body));
        ++count;
      }
    }
  }
  return count;
}

bool is_once(const note& n) { return n.name.starts_with("once/"); }

/// The tube that a note is about: its name follows the kind of the note, or a schedule names it.
std::string tube_of(const note& n) {
  if (n.name.starts_with("schedule/")) return parse_schedule_note(n.text).tube;
  const std::size_t slash = n.name.find('/');
  return slash == std::string::npos ? n.name : n.name.substr(slash + 1);
}

void require_nothing_in(store& s, const std::string& what) {
  const recovered r = s.recover();
  if (!r.notes.empty() || std::any_of(r.tubes.begin(), r.tubes.end(), [](const tube_record& t) {
        return t.delayed + t.ready + t.buried != 0;
      })) {
    throw store_error(what + " has tasks already: choose one that is empty");
  }
}

}  // namespace

move_report move_to_database(const std::string& directory, const postgres::link_options& to,
                             std::uint32_t shards) {
  const auto from = open_rocks_store({.directory = directory, .must_exist = true});
  postgres::link first(to);
  const postgres::layout layout = postgres::prepare(first, shards);
  const all_shards leases(to, layout.shards);
  postgres::pool links(to);
  postgres::joint_commits commits(links);
  std::vector<std::unique_ptr<store>> stores;
  std::vector<task_writer> writers;
  for (const held_shard& h : leases.held()) {
    stores.push_back(postgres::open_postgres_store(commits, {.shard = h.shard, .epoch = h.epoch}));
    require_nothing_in(*stores.back(), "the database");
    writers.emplace_back(*stores.back());
  }
  move_report report;
  const recovered known = from->recover();
  std::vector<std::vector<note>> notes(layout.shards);
  for (const note& n : known.notes) {
    if (is_once(n)) continue;
    notes[shard_of_tube(tube_of(n), layout.shards)].push_back(n);
    ++report.notes;
  }
  for (const tube_record& t : known.tubes) {
    const std::uint32_t shard = shard_of_tube(t.name, layout.shards);
    task_writer& w = writers[shard];
    tube_record there = t;
    if (there.due_mark != no_due_mark) there.due_mark.id = t.due_mark.id * layout.shards + shard;
    w.add_tube(there);
    ++report.tubes;
    report.tasks += read_tube(*from, t.number, [&](stored_task s, std::string body) {
      s.fields.id = s.fields.id * layout.shards + shard;
      w.add(t.name, std::move(s), std::move(body));
    });
  }
  for (std::uint32_t s = 0; s < layout.shards; ++s) {
    writers[s].finish(known, std::move(notes[s]), layout.shards);
  }
  return report;
}

move_report move_to_directory(const postgres::link_options& from, const std::string& directory) {
  postgres::link first(from);
  const postgres::layout layout = postgres::look_at(first);
  if (layout.version == 0) throw store_error("the database has no tasks of verge");
  if (std::filesystem::exists(directory)) {
    throw store_error(directory + " exists: name a directory that does not");
  }
  const postgres::layout current = postgres::prepare(first, layout.shards);
  const all_shards leases(from, current.shards);
  postgres::pool links(from);
  postgres::joint_commits commits(links);
  const auto to = open_rocks_store({.directory = directory});
  task_writer w(*to);
  move_report report;
  recovered marks;
  std::vector<note> notes;
  for (const held_shard& h : leases.held()) {
    const auto shard = postgres::open_postgres_store(commits, {.shard = h.shard, .epoch = h.epoch});
    const recovered known = shard->recover();
    marks.id_ceiling = std::max(marks.id_ceiling, known.id_ceiling);
    marks.burial_ceiling = std::max(marks.burial_ceiling, known.burial_ceiling);
    for (const note& n : known.notes) {
      if (!is_once(n)) notes.push_back(n);
    }
    for (const tube_record& t : known.tubes) {
      // A task on its way to a tube of another shard has arrived: here all tubes are in one place.
      const bool on_its_way = t.name == outbox;
      if (!on_its_way) w.add_tube(t);
      report.tasks += read_tube(*shard, t.number, [&](stored_task s, std::string body) {
        std::string tube = t.name;
        if (on_its_way) {
          tube = std::exchange(s.fields.dead_letter, {});
          tube_record named;
          named.name = tube;
          w.add_tube(named);
        }
        w.add(tube, std::move(s), std::move(body));
      });
    }
  }
  report.tubes = w.tubes();
  report.notes = notes.size();
  w.finish(marks, std::move(notes), 1);
  return report;
}

}  // namespace verge::server::cluster
