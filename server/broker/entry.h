// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <boost/intrusive/unordered_set.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <verge/clock.h>
#include <verge/queue.h>

#include "../model/task.h"
#include "../store/store.h"

namespace verge::server {

class broker;
class client;
struct tube;

/// Something that happens when a time has come: the end of a lease, of a wait or of a pause.
struct alarm {
  void (*call)(broker&, void*){nullptr};
  broker* of{nullptr};
  void* about{nullptr};
  void operator()() const { call(*of, about); }
};
using alarm_queue = basic_timer_queue<alarm, clock>;

/// A task in memory, with what is known of its record in the store.
struct entry {
  boost::intrusive::set_member_hook<boost::intrusive::optimize_size<true>> order;  // in a window
  boost::intrusive::unordered_set_member_hook<> by_id;
  boost::intrusive::list_member_hook<> held;  // by a client
  task fields;
  tube* home{nullptr};
  client* holder{nullptr};
  std::shared_ptr<const std::string> body;  ///< or nothing: then it is in the store
  alarm_queue::id lease;
  clock::time_point lease_end{};
  place stored_at;  ///< none: the store does not have it yet
  tube_number stored_tube{0};
  bool changed{false};  ///< the store has a second record of it
  bool dirty{false};    ///< the next batch writes it
  bool removed{false};  ///< and removes it
  bool unsaved{false};  ///< differs from its record, but not in a way that must last
  bool leaving{false};  ///< noted as one that does not stay in memory
};

struct id_of_entry {
  using type = task_id;
  task_id operator()(const entry& e) const noexcept { return e.fields.id; }
};

/// Ids are given out one after the other, all of them or those of a shard, which have the same
/// remainder by a small number: the bits above it are as good as any hash.
struct hash_of_id {
  std::size_t operator()(task_id id) const noexcept { return id ^ id >> 6 ^ id >> 10; }
};

/// All tasks that are in memory, by id. It owns them.
class entry_table {
 public:
  entry_table() : buckets_(new bucket[initial]), table_(traits(buckets_.get(), initial)) {}
  entry_table(const entry_table&) = delete;
  entry_table& operator=(const entry_table&) = delete;
  ~entry_table() {
    table_.clear_and_dispose([](entry* e) { delete e; });
  }

  entry* find(task_id id) noexcept {
    const auto found = table_.find(id);
    return found == table_.end() ? nullptr : &*found;
  }
  void insert(std::unique_ptr<entry> e) {
    if (table_.size() >= table_.bucket_count()) grow();
    table_.insert(*e.release());
  }
  void erase(entry& e) noexcept {
    table_.erase(table_.iterator_to(e));
    delete &e;
  }
  std::size_t size() const noexcept { return table_.size(); }
  /// In no particular order, until `f` returns false.
  template <class F>
  void visit(F f) {
    for (entry& e : table_) {
      if (!f(e)) return;
    }
  }

 private:
  using hook = boost::intrusive::member_hook<entry, boost::intrusive::unordered_set_member_hook<>,
                                             &entry::by_id>;
  using table =
      boost::intrusive::unordered_set<entry, hook, boost::intrusive::key_of_value<id_of_entry>,
                                      boost::intrusive::hash<hash_of_id>,
                                      boost::intrusive::power_2_buckets<true>>;
  using bucket = table::bucket_type;
  using traits = table::bucket_traits;
  static constexpr std::size_t initial = 1024;

  void grow() {
    const std::size_t n = table_.bucket_count() * 2;
    std::unique_ptr<bucket[]> larger(new bucket[n]);
    table_.rehash(traits(larger.get(), n));
    buckets_ = std::move(larger);
  }

  std::unique_ptr<bucket[]> buckets_;
  table table_;
};

/// The tasks that a client has reserved.
using held_list = boost::intrusive::list<
    entry,
    boost::intrusive::member_hook<entry, boost::intrusive::list_member_hook<>, &entry::held>>;

}  // namespace verge::server
