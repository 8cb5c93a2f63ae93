// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

/// A task and its life, as pure code: no clock, no store, no socket.
///
/// Each transition is a function that checks its precondition, changes the task, and returns what
/// happened. A transition that does not apply changes nothing.
///
///               put, delay                   release, delay / expiry or release with back-off
///     nothing --------------> delayed <--------------------------------------.
///        |                     |   ^                                         |
///        | put          falls  |   | reschedule                              |
///        |              due,   |   |                                         |
///        |              kick   v   |        reserve                          |
///        '------------------> ready -----------------------> reserved -------|
///                              ^ ^                              | |          |
///                              | '---- release, expiry ---------' |          |
///                              | kick, reschedule                 | bury     |
///                              '------------------ buried <-------'          |
///                                                    ^---- attempts used up -'
///
/// A task can be removed in every state: by any client while it is not reserved, and by the holder
/// of the lease while it is.
namespace verge::server {

using task_id = std::uint64_t;
using tube_number = std::uint32_t;

/// Nanoseconds since 1970, by the wall clock. Due times are of this kind.
using wall_time = std::int64_t;
/// Nanoseconds of a length of time.
using nanoseconds = std::int64_t;
inline constexpr nanoseconds millisecond = 1'000'000;
inline constexpr nanoseconds second = 1000 * millisecond;
inline constexpr nanoseconds minute = 60 * second;

enum class task_state : std::uint8_t { delayed, ready, reserved, buried };
const char* name_of(task_state s) noexcept;

/// Proof that a task is reserved: a release, a bury, a touch or a removal must show the token that
/// the reservation gave out. Each reservation of a task has another one; 0 is none.
using lease_token = std::uint64_t;

/// What only a task has that is pushed to a receiver (model/push.h).
struct push_part {
  std::string url;     ///< its own receiver; empty: its tube's
  std::string answer;  ///< what came of the last attempt that failed
  friend bool operator==(const push_part&, const push_part&) = default;
};

struct task {
  task_id id{0};
  tube_number tube{0};
  task_state state{task_state::ready};
  /// The lease belongs to a connection, and ends with it. Otherwise it lasts until its end.
  bool bound_to_connection{false};
  std::uint32_t priority{0};
  wall_time due{0};
  wall_time created{0};
  nanoseconds delay{0};  ///< as it was asked for last
  nanoseconds ttr{0};
  std::uint32_t reserves{0};
  std::uint32_t timeouts{0};
  std::uint32_t releases{0};
  std::uint32_t buries{0};
  std::uint32_t kicks{0};
  /// After so many reservations that did not end in removal the task is dead; 0 is no limit.
  std::uint32_t max_attempts{0};
  /// The delay after the first failed attempt; it doubles with each further one. 0 is none.
  nanoseconds backoff{0};
  lease_token token{0};
  wall_time lease_end{0};   ///< while reserved, for a restart; what counts is a monotonic timer
  std::uint64_t burial{0};  ///< buried tasks are kicked in this order
  std::string key;          ///< names the task within its tube; may be empty
  std::string dead_letter;  ///< the tube that it moves to when it is dead; empty: it is buried
  std::shared_ptr<const push_part> push;  ///< most tasks have none; it is replaced, never changed
};

/// What became of a transition.
enum class outcome : std::uint8_t {
  done,
  wrong_state,  ///< the task is in a state that this does not apply to
  stale_lease,  ///< reserved, but not by that lease
  dead,         ///< done, and no attempt is left: the caller buries or moves it
};

/// The order in which ready tasks of a tube are handed out: priority, then due time, then id.
struct ready_order {
  std::uint32_t priority{0};
  wall_time due{0};
  task_id id{0};
  auto operator<=>(const ready_order&) const = default;
};
/// The order in which delayed tasks fall due.
struct due_order {
  wall_time due{0};
  task_id id{0};
  auto operator<=>(const due_order&) const = default;
};
/// The order in which buried tasks are kicked.
struct burial_order {
  std::uint64_t burial{0};
  task_id id{0};
  auto operator<=>(const burial_order&) const = default;
};
inline ready_order ready_order_of(const task& t) noexcept { return {t.priority, t.due, t.id}; }
inline due_order due_order_of(const task& t) noexcept { return {t.due, t.id}; }
inline burial_order burial_order_of(const task& t) noexcept { return {t.burial, t.id}; }

/// Tasks below this priority are counted as urgent.
inline constexpr std::uint32_t urgent_below = 1024;
/// The longest delay, TTR and back-off: 2^32 seconds. Longer ones are refused by the protocols.
inline constexpr nanoseconds longest = (std::int64_t{1} << 32) * 1'000'000'000;

/// When something falls due that is put now: saturates at the end of time.
wall_time due_after(wall_time now, nanoseconds delay) noexcept;
/// The delay that makes something due at that time; 0 if it has passed.
nanoseconds delay_until(wall_time now, wall_time due) noexcept;

/// A new task is delayed if it is due later than now, and ready otherwise.
void begin(task& t, wall_time now, nanoseconds delay) noexcept;
/// From delayed to ready, if its time has come.
outcome fall_due(task& t, wall_time now) noexcept;
/// From ready to reserved, for as long as its TTR. With `any_state`, from delayed and buried as
/// well.
outcome reserve(task& t, lease_token token, wall_time now, bool any_state = false) noexcept;
/// Back from reserved. With a delay the task is delayed by it; without one by its back-off, if it
/// has that, and otherwise it is ready and keeps its place in the order.
outcome release(task& t, lease_token token, std::uint32_t priority, wall_time now,
                nanoseconds delay) noexcept;
/// The time of the lease has passed.
outcome expire(task& t, lease_token token, wall_time now) noexcept;
/// The connection that held the lease is closed. That is not held against the task.
outcome give_back(task& t, lease_token token, wall_time now) noexcept;
/// The TTR begins anew.
outcome touch(task& t, lease_token token, wall_time now) noexcept;
outcome bury(task& t, lease_token token, std::uint32_t priority, std::uint64_t burial) noexcept;
/// Back from reserved, as if it had not been handed out: the attempt is not counted.
outcome postpone(task& t, lease_token token, wall_time now, nanoseconds delay) noexcept;
/// The attempt has failed, with this answer. The next one is after the delay; with `most` attempts
/// used up the task is dead. 0 is no limit.
outcome fail(task& t, lease_token token, wall_time now, nanoseconds delay, std::uint32_t most,
             std::string_view answer);
/// From buried or delayed to ready.
outcome kick(task& t, wall_time now) noexcept;
/// Whether it may be removed: by the holder of the lease, by any client if it is not reserved.
outcome may_remove(const task& t, lease_token token) noexcept;
/// Gives another due time to a task that is not reserved.
outcome reschedule(task& t, wall_time now, nanoseconds delay) noexcept;
/// A dead task is buried.
void bury_dead(task& t, std::uint64_t burial) noexcept;
/// Or it is ready in its dead-letter tube: without a limit of attempts, its key and its URL.
void move_dead(task& t, tube_number to, wall_time now);

/// Tube names: 1 to 200 bytes of A-Z a-z 0-9 - + / ; . $ _ ( ), not beginning with a hyphen.
inline constexpr std::size_t longest_name = 200;
bool is_name(const char* data, std::size_t size) noexcept;
/// Keys: 1 to 200 bytes that are neither spaces nor control characters.
bool is_key(std::string_view key) noexcept;

}  // namespace verge::server
