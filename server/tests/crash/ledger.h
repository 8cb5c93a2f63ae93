// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "store/store.h"

/// What clients know: which tasks there must be, by what was acknowledged to them.
///
/// Each player (player.h) has tubes of its own, and one connection at a time: its commands are
/// executed in their order, and batches reach the disk in theirs. So what is on disk after a crash
/// is what the first k commands of the player have made of its tubes, for one k: all that were
/// acknowledged, and of those that were sent and not acknowledged any number, but no later one
/// without the earlier ones. A ledger is that list of commands; compare() looks for the k.
namespace verge::crash {

using server::task_id;
using server::task_state;
using server::wall_time;

/// A moment of a recording: the number of a record of the disk's log. Without one everything that
/// has happened is at 0.
using position = std::uint64_t;
inline constexpr position never = std::numeric_limits<position>::max();
inline constexpr wall_time far_future = std::numeric_limits<wall_time>::max();

/// A task as its client knows it.
struct known_task {
  task_id id{0};
  std::string tube;
  std::string key;
  std::string dead_letter;
  std::shared_ptr<const std::string> body;
  std::uint32_t priority{0};
  task_state state{task_state::ready};
  std::int64_t delay{0};   ///< what it was put with, in nanoseconds
  wall_time due_first{0};  ///< delayed: it is due between these two
  wall_time due_last{0};
  std::int64_t ttr{0};
  std::uint32_t reserves{0};
  std::uint32_t max_attempts{0};
  std::uint64_t burial{0};    ///< the order of kicks
  bool lease_unclear{false};  ///< its connection was lost: ready, or on disk still reserved
};

/// What a player's tubes hold.
struct world {
  std::map<task_id, known_task> tasks;
  std::vector<known_task> nameless;  ///< put, but the id was never told
  std::map<std::string, std::int64_t> pauses;
  bool some_reserved{false};  ///< a reserve was not answered: anything ready may be reserved
};

/// A command of a player, or something else that changes what it knows.
struct step {
  enum class kind : std::uint8_t {
    put,
    remove,  ///< delete and cancel
    reschedule,
    reserve,
    release,
    bury,
    kick,
    pause,
    lost,   ///< the connection is lost, with its leases
    adopt,  ///< from here on the world is what was found
  };
  kind what{};
  std::vector<known_task> made;  ///< put: without their ids until they are told
  std::vector<task_id> about;    ///< the tasks that it changes; put: the one that is replaced
  std::uint32_t priority{0};
  std::int64_t delay{0};  ///< in nanoseconds; of a pause too
  std::string tube;       ///< pause
  std::uint64_t burial{0};
  world found;  ///< adopt

  wall_time sent{0};
  wall_time answered{far_future};
  bool has_answer{false};
  bool changed_nothing{false};  ///< so the answer says
  position begun{0};
  position acked{never};  ///< when the last byte of the answer left the server
  std::uint16_t port{0};  ///< of the client, and where in its stream the answer ends
  std::uint64_t answer_end{0};
  int life{0};  ///< which start of the server it was given to
};

void apply(world& w, const step& s);

/// What was found on disk.
struct found_task {
  server::stored_task stored;
  std::string tube;
  std::string body;
};
struct snapshot {
  std::map<task_id, found_task> tasks;
  server::recovered known;
  std::vector<std::string> faults;  ///< of `verge check`
  wall_time taken{0};
};
/// Checks the store and reads everything, and changes nothing.
snapshot look_at_directory(const std::string& directory);
/// Opens the store, checks it and reads everything. Throws server::store_error if it cannot be
/// opened. The directory is changed by that, as by any start.
snapshot read_directory(const std::string& directory);
/// The same of a copy.
snapshot read_copy_of(const std::string& directory, const std::string& copy);

class ledger {
 public:
  std::set<std::string> tubes;
  std::vector<step> steps;

  /// What is wrong with what was found, if the crash was when `cut` records had been written, and
  /// what was acknowledged before `sure` has to be there.
  std::vector<std::string> compare(const snapshot& found, position cut, position sure) const;
  /// The tasks that were found, as they are known from now on.
  world adopt(const snapshot& found) const;
};

/// All ledgers against what was found, and what is no player's: invariants, ids.
std::vector<std::string> compare(const std::vector<const ledger*>& ledgers, const snapshot& found,
                                 position cut, position sure);
inline std::vector<std::string> compare(const std::vector<const ledger*>& ledgers,
                                        const snapshot& found, position cut) {
  return compare(ledgers, found, cut, cut);
}

wall_time now();

}  // namespace verge::crash
