// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <verge/task.h>

#include "../model/task.h"
#include "census.h"

/// Where tasks are kept. One interface for all stores; tests/store_test.cc holds each to it.
///
/// Ground rules:
///  - One task uses a store: the committer. Calls block, apart from commit().
///  - write() is atomic: after a crash either all of a batch is there or nothing of it. When it
///    returns the batch is as durable as the store was opened for. Batches are written in order: if
///    one is there, those before it are.
///  - A write that throws store_error may or may not be there after a restart. The store refuses
///    everything from then on.
///  - Each task has exactly one place: an entry in one of three ordered indexes. The place may lag
///    behind the state: a delayed task that falls due, and one that is reserved, keep the place
///    that they have until there is another reason to write it. Which of the tasks in the index of
///    delayed ones have fallen due is what the due mark of their tube says.
namespace verge::server {

/// The disk, or what is on it, does not let us go on. what() says what to do.
class store_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Another server has the tasks now, and nothing of the batch was written.
class store_moved : public store_error {
 public:
  using store_error::store_error;
};

enum class place_kind : std::uint8_t { none, delayed, ready, buried };

/// The entry of a task in an index of its tube: due and id; priority, due and id; burial and id.
struct place {
  place_kind kind{place_kind::none};
  std::uint32_t priority{0};  ///< ready
  std::int64_t at{0};         ///< delayed and ready: due; buried: the number of the burial
  friend bool operator==(const place&, const place&) = default;
};

/// Where to begin in an index.
struct position {
  place where;
  task_id id{0};
};
/// The beginning of an index.
position beginning_of(place_kind kind) noexcept;

/// A task as it is stored.
struct stored_task {
  task fields;
  place where;
  bool changed{false};  ///< written again since it was put: there is a second record to remove
};

/// Before all places.
inline constexpr due_order no_due_mark{.due = std::numeric_limits<wall_time>::min(), .id = 0};

/// What a tube has on disk, by place.
struct tube_record {
  tube_number number{0};
  std::string name;
  std::uint64_t delayed{0};
  std::uint64_t ready{0};
  std::uint64_t buried{0};
  std::uint64_t urgent{0};  ///< of those that are ready
  wall_time paused_until{0};
  nanoseconds pause{0};  ///< for how long it was paused
  /// Of the places in the index of delayed tasks, all up to this one are of tasks that have fallen
  /// due, and all behind it are of tasks that have not.
  due_order due_mark{no_due_mark};
};

/// A named text: what is kept besides tasks, all of which is read when the store is opened. The
/// broker says what names and texts mean.
struct note {
  std::string name;
  std::string text;
  friend bool operator==(const note&, const note&) = default;
};

/// What is changed together. Strings are referred to, and must last until write() has returned.
struct batch {
  struct insertion {
    const task* fields;
    place where;
    std::string_view body;
  };
  struct update {
    const task* fields;
    place before;
    place after;
    tube_number tube_before;
    std::string_view key_before;
  };
  struct removal {
    task_id id;
    tube_number tube;
    place where;
    bool changed;
    std::string_view key;
  };
  std::vector<insertion> insertions;
  std::vector<update> updates;
  std::vector<removal> removals;
  std::vector<tube_record> tubes;
  std::vector<tube_number> tubes_removed;
  std::vector<note> notes;
  std::vector<std::string> notes_removed;  ///< by name; one that is not there is no error
  std::optional<task_id> id_ceiling;       ///< ids below it may have been given out
  std::optional<std::uint64_t> burial_ceiling;

  bool empty() const noexcept;
  void clear() noexcept;
};

/// What a store knows when it is opened.
struct recovered {
  std::vector<tube_record> tubes;
  std::vector<note> notes;  ///< in the order of their names
  task_id id_ceiling{1};
  std::uint64_t burial_ceiling{1};
};

struct key_name {
  tube_number tube{0};
  std::string key;
  friend auto operator<=>(const key_name&, const key_name&) = default;
};
/// The task that has each key; 0: none has it.
using key_table = std::map<key_name, task_id>;

struct store_figures {
  std::uint64_t bytes_written{0};  ///< to the disk, by the store; 0 where it is not known
  std::uint64_t disk_bytes{0};
};

class store {
 public:
  store() = default;
  store(const store&) = delete;
  store& operator=(const store&) = delete;
  virtual ~store() = default;

  virtual recovered recover() = 0;
  virtual void write(const batch& b) = 0;
  /// The same, for a task: a store that is on another machine suspends it meanwhile.
  virtual verge::task<> commit(const batch& b);

  virtual std::optional<stored_task> find(task_id id) = 0;
  /// The body of a task that exists.
  virtual std::string body_of(task_id id) = 0;
  virtual std::optional<task_id> find_key(tube_number tube, std::string_view key) = 0;

  /// Whether each call is a round trip to another machine: then keys are asked for together.
  virtual bool is_remote() const noexcept { return false; }
  /// find_key() for each of them, in one round trip.
  virtual verge::task<key_table> find_keys(const std::vector<key_name>& which);

  /// Tasks of one index of one tube in its order, from `first` on, at most `limit`.
  virtual std::vector<stored_task> scan(tube_number tube, const position& first,
                                        std::size_t limit) = 0;

  /// Begins to count what is due when in these tubes; nothing if the store cannot.
  virtual std::shared_ptr<census> take_census(std::vector<tube_number> tubes,
                                              const census_range& range);

  virtual store_figures figures() = 0;
  /// A copy that can be opened, in a directory that does not exist yet.
  virtual void backup(const std::string& directory) = 0;
};

/// Tasks in memory: for tests, and for `--durability=none`.
std::unique_ptr<store> make_memory_store();

}  // namespace verge::server
