// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../model/push.h"
#include "../model/task.h"
#include "tube_filter.h"

/// What protocols ask of the broker, and what it answers. Protocols turn bytes into commands and
/// replies into bytes; all rules are the broker's.
namespace verge::server {

enum class verb : std::uint8_t {
  put,
  put_many,  ///< all or none, in one batch
  reserve,
  reserve_task,  ///< by id
  remove,
  release,
  bury,
  touch,
  kick,
  kick_task,
  peek,
  peek_ready,
  peek_delayed,
  peek_buried,
  cancel,      ///< by key
  reschedule,  ///< by key
  use,
  used,
  watch,
  ignore,
  pause,
  set_push,    ///< where the tasks of a tube are sent, from now on
  clear_push,  ///< nowhere
  show_push,
  follow_push,   ///< for the part that sends: the settings of all tubes now, and each change
  undelivered,   ///< a push has failed
  postpone,      ///< a push was not tried: as if the task had not been handed out
  limit,         ///< how many tasks a tube takes
  set_schedule,  ///< a task recurs from now on
  remove_schedule,
  show_schedule,
  list_schedules,
  stats,
  stats_task,
  stats_tube,
  survey,      ///< the server and its tubes, in the order of their names
  list_tasks,  ///< of one state, in its order
  forecast,    ///< how many tasks fall due, minute by minute
  list_tubes,
  list_watched,
  auth,   ///< shows a token; the connection's business
  drain,  ///< takes no more puts
  backup,
  arrive,        ///< nothing but that the client is there
  say,           ///< a reply that the protocol has made itself, in its turn; uses up `number` ids
  give_up,       ///< ends the wait of a reserve, which is answered as if its time had come
  give_back,     ///< a lease ends as if its connection were closed
  half_close,    ///< the client will send no more
  go_on,         ///< the client takes replies again, see client::admits
  quit,          ///< the client leaves when all before this has been answered
  leave,         ///< the client is disconnected
  show_cluster,  ///< the servers that share the tasks
};

/// Whether the broker can keep the reply to such a command with a once_key: those with bodies are
/// not written down.
bool keeps_reply(verb v) noexcept;

/// Whether a command whose reply was lost can be given again, though it may have been executed: it
/// changes nothing, it says what is to be the case afterwards, or what it has changed ends by
/// itself, as the lease of a task that no client has got. Of the others the outcome is not known.
bool is_repeatable(verb v) noexcept;

/// What a put does if a task of its tube has the same key.
enum class if_exists : std::uint8_t { keep, replace, refuse };

struct new_task {
  std::uint32_t priority{0};
  nanoseconds delay{0};
  std::optional<wall_time> due;  ///< instead of a delay
  nanoseconds ttr{0};
  std::string body;
  std::string key;
  if_exists mode{if_exists::keep};
  std::uint32_t max_attempts{0};
  nanoseconds backoff{0};
  std::string dead_letter;
  std::string url;  ///< of its own receiver, in a tube whose tasks are pushed
};

enum class answer : std::uint8_t {
  inserted,
  kept,  ///< a task with that key is there already
  replaced,
  exists,  ///< and that was not wanted
  taken,   ///< a worker has the task with that key
  inserted_many,
  draining,
  reserved,
  timed_out,
  deadline_soon,
  not_found,
  stale_lease,
  deleted,
  released,
  buried,
  touched,
  kicked,  ///< how many
  kicked_task,
  found,
  cancelled,
  rescheduled,
  using_tube,
  watching,
  not_ignored,
  paused,
  shown,   ///< see reply::shown
  failed,  ///< an operator's command; `text` says why
  done,
  denied,  ///< the caller may not touch that tube
  tube_full,
  other_request,  ///< the key of `once` belongs to another one
  no_push,        ///< a task with a URL, in a tube whose tasks are not pushed
  push_is,        ///< to one that follows: `text` is the tube, `push` its settings, or nothing
  moved,          ///< not executed: another server has the tasks now
  // Of the protocols:
  bad_format,
  unknown_command,
  expected_crlf,
  too_big,
  no_memory,
  internal_error,
};

/// Where a page of a list begins: what the order of its state compares.
struct list_position {
  std::uint32_t priority{0};
  std::int64_t at{0};  ///< due, or the number of the burial
  task_id id{0};
};

/// A task as it is handed out or shown.
struct handed_out {
  task_id id{0};
  lease_token token{0};
  std::shared_ptr<const std::string> body;
  /// Of a lease that is not bound to a client's connection.
  std::shared_ptr<const task> fields;
};

struct task_view {
  task fields;
  std::string tube;
  std::size_t size{0};
  nanoseconds age{0};
  nanoseconds time_left{0};                 ///< until it is due, or until its lease ends
  std::shared_ptr<const std::string> body;  ///< if it was asked for
};

struct tube_view {
  std::string name;
  std::uint64_t urgent{0}, ready{0}, reserved{0}, delayed{0}, buried{0}, total{0};
  std::uint64_t using_it{0}, waiting{0}, watching{0};
  nanoseconds pause{0}, pause_left{0};
  std::uint64_t deletes{0}, pauses{0};
  std::uint64_t reserves{0};
  bool pushes{false}, push_disabled{false};
  std::optional<std::uint64_t> most_tasks;
  nanoseconds oldest_ready{0};  ///< for how long the one that is due longest has been due
};

/// How late tasks were made ready: how many by at most so many microseconds, and by more.
struct lateness_figures {
  static constexpr std::array<std::uint64_t, 12> bounds{500,     1'000,     2'000,      5'000,
                                                        10'000,  25'000,    50'000,     100'000,
                                                        250'000, 1'000'000, 10'000'000, 60'000'000};
  std::array<std::uint64_t, bounds.size() + 1> counts{};
  std::uint64_t microseconds{0};  ///< all of them together
};

struct server_view {
  std::uint64_t urgent{0}, ready{0}, reserved{0}, delayed{0}, buried{0}, total{0};
  std::uint64_t commands[64]{};  ///< by verb
  std::uint64_t timeouts{0};
  std::uint64_t reserves_without_limit{0};
  std::uint64_t tubes{0}, connections{0}, producers{0}, workers{0}, waiting{0};
  std::uint64_t connections_ever{0};
  std::uint64_t batches{0}, batched_commands{0}, sync_nanoseconds{0};
  std::uint64_t in_memory{0};  ///< tasks of the window
  std::uint64_t bytes_written{0}, disk_bytes{0};
  std::int64_t uptime{0};
  bool draining{false};
  lateness_figures lateness;
};

/// The server, and a page of its tubes.
struct survey_view {
  server_view all;
  std::vector<tube_view> tubes;
  bool more{false};  ///< there are tubes after the last of these
  wall_time now{0};
};

/// A page of a list of tasks.
struct list_view {
  std::vector<task_view> tasks;
  std::optional<list_position> next;  ///< where the next page begins, if there is one
};

/// How many delayed tasks are due in what is left of this minute of the clock, and in each of those
/// that follow. What is due after `known_until` is not counted, or not all of it.
struct forecast_view {
  std::vector<std::uint64_t> minutes;
  std::optional<wall_time> known_until;
};

/// The servers that share a database, as one of them has found them. None: this one has its tasks
/// for itself.
struct cluster_view {
  struct server {
    std::string name;
    std::string tasks, http, peer;  ///< where it listens; `http` may be empty
    nanoseconds up{0};
    std::uint64_t shards{0};
  };
  struct shard {
    std::uint32_t number{0};
    std::int64_t epoch{0};
    std::string owner;  ///< empty: none
    nanoseconds lease_left{0};
    nanoseconds lag{0};  ///< for how long the oldest task that is not yet ready has been due
  };
  std::string answers;  ///< the server that was asked
  std::vector<server> servers;
  std::vector<shard> shards;
};

using shared_push = std::shared_ptr<const push_settings>;

struct schedule;  // schedule.h
struct schedule_list;
using shared_schedules = std::shared_ptr<const schedule_list>;

using view = std::variant<task_view, tube_view, server_view, std::vector<std::string>, survey_view,
                          list_view, forecast_view, shared_push, shared_schedules, cluster_view>;

/// A command that may come twice, because its reply was lost: it is executed once, and the second
/// one gets the reply to the first, for a day, also over a restart.
struct once_key {
  std::string key;
  std::string print;  ///< of the request: another one with the same key is refused
};

struct reply {
  answer what{answer::done};
  std::uint64_t number{0};  ///< an id or a count; 0 for a reserve that did not ask for several
  std::string text;         ///< a tube's name; an explanation
  handed_out task;          ///< reserved, found
  std::vector<handed_out> more;
  std::shared_ptr<const view> shown;
  std::vector<std::pair<answer, task_id>> each;  ///< of put_many: what became of each
  shared_push push;
  bool replayed{false};  ///< it is the reply to the same command, given before
};

struct command {
  command() = default;
  explicit command(verb v, std::uint64_t n = 0) : what(v), number(n) {}

  verb what{verb::say};
  std::uint64_t number{0};  ///< an id or a count
  std::uint32_t priority{0};
  nanoseconds time{0};               ///< a delay, a pause
  std::optional<nanoseconds> limit;  ///< how long a reserve waits; nothing: forever
  lease_token token{0};              ///< 0: the lease of this connection
  std::string text;                  ///< a tube, a key, a directory
  /// The tube that the command is about; empty: the one that the client uses or those it watches.
  std::string tube;
  /// reserve: the tubes to watch from now on, and no others; empty: `tube`, or those it watches.
  std::vector<std::string> watch;
  std::optional<wall_time> due;  ///< reschedule: instead of a delay
  bool keep_priority{false};     ///< release, bury: the task keeps the one it has
  bool with_body{false};         ///< what is shown has the body
  task_state state{};            ///< list_tasks
  std::optional<list_position> from;
  /// The tubes that the caller may touch; nothing: all. Tasks of others do not exist for it.
  std::shared_ptr<const tube_filter> within;
  std::vector<new_task> tasks;             ///< put
  shared_push push;                        ///< set_push
  std::shared_ptr<const once_key> once;    ///< for commands whose reply has no bodies
  std::optional<std::uint64_t> most;       ///< limit: nothing lifts it
  std::shared_ptr<const schedule> recurs;  ///< set_schedule
  std::string url;                         ///< undelivered: where the task was sent to
  bool give_up{false};                     ///< undelivered: no further attempt
  bool disable{false};  ///< undelivered: the receiver wants no more from this tube
  reply prepared;       ///< say
};

}  // namespace verge::server
