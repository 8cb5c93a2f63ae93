// SPDX-License-Identifier: Apache-2.0

#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "store.h"

namespace verge::server {

namespace {

class finished_census final : public census {
 public:
  finished_census(const census_range& r, std::vector<std::uint64_t> counts)
      : census(r), counts_(std::move(counts)) {}

 private:
  std::optional<std::vector<std::uint64_t>> count() override { return std::move(counts_); }

  std::vector<std::uint64_t> counts_;
};

class memory_store final : public store {
 public:
  recovered recover() override {
    recovered r = marks_;
    for (const auto& [number, tube] : tubes_) r.tubes.push_back(tube);
    for (const auto& [name, text] : notes_) r.notes.push_back({name, text});
    return r;
  }

  void write(const batch& b) override {
    for (const batch::insertion& i : b.insertions) {
      tasks_[i.fields->id] = {{.fields = *i.fields, .where = i.where, .changed = false},
                              std::string(i.body)};
      index_.insert(entry(i.fields->tube, i.where, i.fields->id));
      if (!i.fields->key.empty()) keys_[{i.fields->tube, i.fields->key}] = i.fields->id;
    }
    for (const batch::update& u : b.updates) change(u);
    for (const batch::removal& r : b.removals) {
      tasks_.erase(r.id);
      index_.erase(entry(r.tube, r.where, r.id));
      forget_key(r.tube, r.key, r.id);
    }
    for (const tube_record& t : b.tubes) tubes_[t.number] = t;
    for (const tube_number n : b.tubes_removed) tubes_.erase(n);
    for (const std::string& n : b.notes_removed) notes_.erase(n);
    for (const note& n : b.notes) notes_[n.name] = n.text;
    if (b.id_ceiling) marks_.id_ceiling = *b.id_ceiling;
    if (b.burial_ceiling) marks_.burial_ceiling = *b.burial_ceiling;
  }

  std::optional<stored_task> find(task_id id) override {
    const auto found = tasks_.find(id);
    if (found == tasks_.end()) return std::nullopt;
    return found->second.first;
  }

  std::string body_of(task_id id) override { return tasks_.at(id).second; }

  std::optional<task_id> find_key(tube_number tube, std::string_view key) override {
    const auto found = keys_.find({tube, std::string(key)});
    if (found == keys_.end()) return std::nullopt;
    return found->second;
  }

  std::vector<stored_task> scan(tube_number tube, const position& first,
                                std::size_t limit) override {
    std::vector<stored_task> found;
    for (auto i = index_.lower_bound(entry(tube, first.where, first.id));
         i != index_.end() && found.size() < limit; ++i) {
      if (std::get<0>(*i) != tube || std::get<1>(*i) != first.where.kind) break;
      found.push_back(tasks_.at(std::get<4>(*i)).first);
    }
    return found;
  }

  /// It is counted at once.
  std::shared_ptr<census> take_census(std::vector<tube_number> tubes,
                                      const census_range& range) override {
    std::vector<std::uint64_t> counts(range.steps);
    for (const tube_number tube : tubes) {
      const auto at = [&](wall_time t) { return entry(tube, {place_kind::delayed, 0, t}, 0); };
      const auto end = index_.lower_bound(at(range.end()));
      for (auto i = index_.lower_bound(at(range.first)); i != end; ++i) {
        ++counts[static_cast<std::size_t>((std::get<3>(*i) - range.first) / range.step)];
      }
    }
    auto made = std::make_shared<finished_census>(range, std::move(counts));
    made->run();
    return made;
  }

  store_figures figures() override { return {}; }

  void backup(const std::string&) override {
    throw store_error(
        "tasks that are kept in memory cannot be backed up: serve them from a directory");
  }

 private:
  using index_entry = std::tuple<tube_number, place_kind, std::uint32_t, std::int64_t, task_id>;

  static index_entry entry(tube_number tube, const place& p, task_id id) {
    return {tube, p.kind, p.kind == place_kind::ready ? p.priority : 0, p.at, id};
  }

  void change(const batch::update& u) {
    auto& [stored, body] = tasks_.at(u.fields->id);
    index_.erase(entry(u.tube_before, u.before, u.fields->id));
    index_.insert(entry(u.fields->tube, u.after, u.fields->id));
    if (u.key_before != u.fields->key || u.tube_before != u.fields->tube) {
      forget_key(u.tube_before, u.key_before, u.fields->id);
      if (!u.fields->key.empty()) keys_[{u.fields->tube, u.fields->key}] = u.fields->id;
    }
    stored = {.fields = *u.fields, .where = u.after, .changed = true};
  }

  void forget_key(tube_number tube, std::string_view key, task_id id) {
    if (key.empty()) return;
    const auto found = keys_.find({tube, std::string(key)});
    if (found != keys_.end() && found->second == id) keys_.erase(found);
  }

  std::unordered_map<task_id, std::pair<stored_task, std::string>> tasks_;
  std::set<index_entry> index_;
  std::map<std::pair<tube_number, std::string>, task_id> keys_;
  std::map<tube_number, tube_record> tubes_;
  std::map<std::string, std::string> notes_;
  recovered marks_;
};

}  // namespace

std::unique_ptr<store> make_memory_store() { return std::make_unique<memory_store>(); }

}  // namespace verge::server
