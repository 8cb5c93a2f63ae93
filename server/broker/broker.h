// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <verge/clock.h>

#include "../store/store.h"
#include "client.h"
#include "command.h"
#include "entry.h"
#include "keyed_hash.h"
#include "outlook.h"
#include "tube.h"

/// The broker: tubes, waiting clients, leases, and the window of near tasks.
///
/// It is a state machine for one task, the committer's. Time is given to it; it knows neither
/// sockets nor threads, and of the disk only the store's interface. The committer works in rounds:
///
///   broker.begin(clock::now(), wall now)
///   broker.execute(client, command) ...       changes memory, and notes what changes in the store
///   broker.advance()                          what has fallen due, leases and waits that end
///   store.write(broker.changes())             one batch for all of it, synced
///   broker.committed()                        only now replies are delivered
///
/// Ground rules:
///  - Nothing leaves the broker before the batch that it rests on is durable: replies, and tasks
///    that are handed out, wait in `replies_` until committed().
///  - A task is in memory or only in the store, never half: whatever a round has touched stays in
///    memory until the round is committed. find() loads what is not there.
///  - A task in memory is in exactly one window, or reserved, or leaving: about to be in the store
///    only.
///  - If a write fails, memory is ahead of the disk. Then nothing more is answered but
///    INTERNAL_ERROR, and the process must end.
///
/// The wall clock may be set, while the server runs and while it does not. The rule: a delayed task
/// falls due when the server sees the clock at its due time or later. From then on it is ready,
/// whatever the clock does; before that it is not, whatever the clock has done before the task was
/// put. To keep that over a restart without a write for each task that falls due, a tube has a due
/// mark:
///
///     delayed tasks in the store, by due time   |--fallen due--|--------not yet--------|
///                                                          due mark
///
///  - It rises with the tasks that fall due. It is in every batch that is written anyway; if none
///    is, it is written before a client is told anything, and at the latest a second after it has
///    risen. With leases in memory only the latter holds: what no batch has had for a second may
///    wait for its time again if the clock is set back and the server crashes.
///  - A clock that was set back may let a task be delayed until a time before the mark. Then, in
///    the batch that has this task, the mark is lowered to the clock, and the tasks between the two
///    are written to the index of ready ones.
namespace verge::server {

struct broker_options {
  /// Reservations are written and synced before they are handed out, so that attempts are counted
  /// and leases with tokens last over a restart. Otherwise they are kept in memory.
  bool durable_leases{true};
  /// How many tasks are kept in memory, about; the others are in the store alone.
  std::size_t most_in_memory{150'000};
  /// How many are read from the store, and how many fall due, in one go.
  std::size_t chunk{2'000};
  /// How many bytes the replies of one round have, and one more.
  std::size_t round_bytes{16U << 20};
  /// How many bytes of bodies of ready tasks are kept in memory.
  std::size_t body_bytes{32U << 20};
  /// What the tokens of leases are made with: random, and secret.
  hash_key token_key{.first = 1, .second = 2};
  /// Of delays that are random in part.
  std::uint64_t seed{1};
  /// Ids are the numbers with this remainder, by this divisor: an id says which shard has its task.
  std::uint64_t id_remainder{0};
  std::uint64_t id_divisor{1};
  /// Another server may take the tasks over. A command that was not executed, because the store had
  /// failed before, is answered `moved`: it can be given again, there.
  bool shared{false};
  /// Whether a tube is in another shard, so that a dead task cannot be moved to it in one batch.
  /// Then it is moved to `outbox`, and keeps the name of its dead-letter tube.
  std::function<bool(const std::string&)> elsewhere;
};

/// A tube that no client can name: dead tasks on their way to a tube of another shard.
inline constexpr const char* outbox = "-outbox";

class broker {
 public:
  broker(store& s, broker_options options);
  broker(const broker&) = delete;
  broker& operator=(const broker&) = delete;
  ~broker();

  /// Reads what the store knows. Tasks are loaded later, as they are needed.
  void recover(clock::time_point now, wall_time wall);

  /// The keys that a command will look for, as far as memory can tell which.
  void add_wanted_keys(client& c, const command& cmd, std::vector<key_name>& to);
  /// In this round they need not be looked for in the store.
  void know_keys(key_table found) { keys_.merge(found); }

  void begin(clock::time_point now, wall_time wall) noexcept;
  void execute(const std::shared_ptr<client>& from, command c);
  /// Does what the time asks for. True if there is more to do at once, in the next round.
  bool advance();

  /// What this round changes. Valid until committed().
  const batch& changes();
  void committed();
  /// The write has failed: everything from here on is answered with an error. `of_round` is what
  /// the commands of this round are answered.
  void fail(const std::string& why, answer of_round = answer::internal_error);
  bool has_failed() const noexcept { return failed_; }

  /// When to come back: for a lease, a wait, a pause; and for a task, by the wall clock. Never once
  /// it has failed.
  std::optional<clock::time_point> next_alarm() const noexcept;
  std::optional<wall_time> next_due() const noexcept;

  /// A census that was begun and has to be run, on another thread; it is asked after each round.
  std::shared_ptr<census> begun_census() noexcept { return std::exchange(begun_census_, nullptr); }

  /// For stats: what the committer knows.
  void note_commit(std::uint64_t commands, std::uint64_t took) noexcept;
  /// The ceiling of ids comes down to what was used, for the last batch of an orderly end.
  void close_books();

  std::size_t in_memory() const noexcept { return entries_.size(); }

 private:
  using shared_client = std::shared_ptr<client>;

  // broker.cc: clients and replies.
  void join(client& c);
  void leave(client& c);
  void say(client& c, reply r);
  void say(client& c, answer a, std::uint64_t number = 0);
  void deliver();

  // commands.cc: what the verbs do.
  void run(client& c, command& cmd);
  static bool is_busy(const client& c) noexcept;
  bool may_say(client& c) noexcept;
  /// A round ends early when its replies have so many bytes: what is left is for the next one.
  bool is_round_full() const noexcept { return round_bytes_ >= options_.round_bytes; }
  void resume();
  void resume_later(client& c);
  void run_put(client& c, command& cmd);
  reply put(tube& t, new_task& n);
  entry* find_named(client& c, const command& cmd);
  /// By its id, if the caller may touch its tube.
  entry* find_allowed(const command& cmd);
  static bool may_touch(const command& cmd, const tube& t) noexcept;
  bool watch_allowed(client& c, const command& cmd);
  void run_reserve(client& c, const command& cmd);
  void run_reserve_task(client& c, const command& cmd);
  void run_on_lease(client& c, const command& cmd);
  void run_peek(client& c, const command& cmd);
  void run_by_key(client& c, const command& cmd);

  // kicking.cc: kicks, in pieces.
  struct pending_kick {
    client* by{nullptr};
    tube_number tube{0};
    bool buried{false};  ///< buried tasks are kicked, otherwise delayed ones
    std::uint64_t left{0};
    std::uint64_t kicked{0};
    std::shared_ptr<const once_key> once;
  };
  void run_kick(client& c, const command& cmd);
  void run_kick_task(client& c, const command& cmd);
  void kick(entry& e);
  void kick_some(pending_kick& k, std::size_t most);
  void go_on_kicking();
  void stop_kicking();

  // pushing.cc: which tubes are pushed, and what comes of pushes.
  void recover_push(const note& n);
  void run_push(client& c, const command& cmd);
  void run_undelivered(client& c, const command& cmd);
  void set_push(const std::string& tube, const shared_push& settings);
  void follow_push(client& c);
  const push_settings* push_of(const std::string& tube) const;
  bool lacks_push(const tube& t, const command& cmd) const;
  void write_note(std::string name, std::optional<std::string> text);

  // once.cc: commands that come twice.
  void recover_once(const note& n);
  void run_once(client& c, command& cmd);
  void keep_answer(const once_key& once, const reply& said);
  void forget_old_answers();

  // limits.cc: how many tasks a tube takes.
  void recover_limit(const note& n);
  void run_limit(client& c, const command& cmd);
  bool is_full(tube& t, const command& cmd);
  std::optional<std::uint64_t> limit_of(const std::string& tube) const;

  // recurring.cc: schedules, and their firing.
  struct recurrence;
  using shared_recurrence = std::shared_ptr<recurrence>;
  void recover_schedule(const note& n);
  void look_back(recurrence& r);
  void arm(const recurrence& r);
  void disarm(const recurrence& r);
  std::optional<wall_time> next_firing() const noexcept;
  bool fire_schedules();
  void run_schedule(client& c, const command& cmd);
  void set_schedule(client& c, const command& cmd);
  void show_schedules(client& c, answer a, const std::vector<const recurrence*>& which,
                      std::size_t upcoming);

  // views.cc: what is shown.
  void run_show(client& c, const command& cmd);
  survey_view survey(const command& cmd);
  template <class Order>
  list_view list(tube& t, window<Order>& w, const command& cmd);
  list_view list_reserved(tube& t, const command& cmd);
  void show_in(list_view& page, entry& e, const command& cmd, std::size_t& bytes);
  forecast_view forecast(std::size_t minutes);
  forecast_view forecast_of_windows(wall_time from, std::size_t minutes);
  void look_ahead();
  nanoseconds oldest_ready(tube& t);
  task_view view_of(entry& e);
  tube_view view_of(tube& t);
  server_view view_of_all();

  // queueing.cc: tasks, their windows and their records.
  task_id next_id();
  entry& create(tube& t, new_task& n);
  entry* find(task_id id);
  entry* find_by_key(tube& t, const std::string& key);
  entry& load(stored_task s);
  const std::shared_ptr<const std::string>& body_of(entry& e);
  void take_out(entry& e) noexcept;
  void put_in(entry& e);
  template <class Order>
  void place_in(window<Order>& w, entry& e);
  template <class Order>
  std::size_t read_on(tube& t, window<Order>& w);
  template <class Order>
  entry* first_of(tube& t, window<Order>& w);
  void let_go(entry& e);
  void settle(entry& e);
  void write_later(entry& e);
  void remove(entry& e);
  void bury_or_move(entry& e);
  place place_for(const entry& e) const noexcept;
  void count_place(tube& t, const place& p, std::int64_t by) noexcept;
  std::uint64_t next_burial();

  // due.cc: when tasks fall due, and due marks.
  void note_due(tube& t);
  std::size_t queue_due_tubes(std::size_t most);
  void make_due_tasks_ready(std::size_t most);
  std::size_t fall_due(tube& t, std::size_t most);
  void raise_due_mark(tube& t, const due_order& to);
  void add_due_marks();
  void lower_due_marks();
  void load_fallen(tube& t, const due_order& behind);

  // waiting.cc: leases, and clients that wait.
  entry* best_for(client& c);
  bool hand_out(client& c);
  void lease(client& c, entry& e, bool any_state, handed_out& to);
  void write_lease(entry& e);
  void end_lease(entry& e) noexcept;
  void serve(tube& t);
  void stop_waiting(client& c);
  void wait(client& c, std::optional<nanoseconds> limit, std::uint64_t wants);
  std::optional<clock::time_point> first_lease_end(client& c) noexcept;
  static void on_lease_end(broker& b, void* e);
  static void on_wait_end(broker& b, void* c);
  static void on_pause_end(broker& b, void* t);
  lease_token new_token(const entry& e) noexcept;

  // tubes.cc: when tubes exist, and the commands about them.
  void run_tubes(client& c, const command& cmd);
  void run_pause(client& c, const command& cmd);
  tube& tube_named(const std::string& name);
  tube& add_tube(tube_number number, const std::string& name);
  tube* find_tube(const std::string& name) noexcept;
  /// The tube that a command is about, or nothing if there is none of that name.
  tube* tube_of(client& c, const command& cmd) noexcept;
  void watch_only(client& c, const std::vector<std::string>& names);
  /// Until the alarm of its end has been seen: what the clock says does not matter.
  bool is_paused(const tube& t) const noexcept { return alarms_.pending(t.pause_end); }
  static bool is_used(const tube& t) noexcept;
  void drop_if_unused(tube& t);
  void change(tube& t);

  store& store_;
  broker_options options_;
  clock::time_point now_{};
  wall_time wall_{0};
  clock::time_point start_{};
  bool stepped_back_{false};  ///< the wall clock, and schedules have not been looked at since
  bool failed_{false};
  bool draining_{false};
  bool new_marks_{false};
  bool filling_{false};
  bool is_lowering_{false};

  entry_table entries_;
  std::map<tube_number, std::unique_ptr<tube>> tubes_;
  std::unordered_map<std::string, tube*> tubes_by_name_;
  std::vector<tube*> tubes_in_order_;  ///< as they are listed
  tube_number next_tube_{1};
  std::vector<tube*> changed_tubes_;
  std::vector<tube*> doubtful_tubes_;  ///< perhaps unused now
  std::set<std::pair<wall_time, tube*>> due_;
  std::deque<tube*> falling_;        ///< tubes with tasks whose time has come, each in its turn
  std::vector<tube*> raised_marks_;  ///< tubes whose due mark is not in the store yet
  clock::time_point marks_written_{};
  std::vector<tube_number> unserved_;  ///< have got ready tasks while something was read

  alarm_queue alarms_;
  std::map<client*, shared_client> clients_;
  std::uint64_t next_wait_{1};
  std::uint64_t leases_{0};  ///< given so far
  std::vector<client*> resumed_;
  std::vector<pending_kick> kicks_;
  std::vector<shared_client> left_;

  task_id next_id_{1};
  task_id id_ceiling_{1};
  std::uint64_t next_burial_{1};
  std::uint64_t burial_ceiling_{1};
  std::size_t body_bytes_{0};

  std::vector<entry*> dirty_;
  std::vector<entry*> leaving_;
  key_table keys_;  ///< of this round: what was asked for in advance, and what has changed
  std::unordered_map<task_id, std::string> old_keys_;
  batch batch_;
  std::vector<tube_number> removed_tubes_;
  std::map<std::string, std::optional<std::string>> changed_notes_;  ///< nothing: removed

  std::map<std::string, shared_push, std::less<>> pushes_;  ///< by tube
  /// What was answered, by the key of `once`; and the keys by age.
  struct answered {
    std::string print;
    reply said;
    wall_time at{0};
  };
  std::map<std::string, answered> answered_;
  std::set<std::pair<wall_time, std::string>> answered_by_age_;
  std::map<std::string, std::uint64_t> limits_;  ///< of tubes
  std::map<std::string, shared_recurrence> schedules_;
  std::set<std::pair<wall_time, std::string>> firings_;  ///< when each schedule fires next
  std::vector<std::pair<client*, reply>> replies_;
  std::size_t round_bytes_{0};  ///< of them

  outlook outlook_;
  std::shared_ptr<census> census_;        ///< that is taken
  std::shared_ptr<census> begun_census_;  ///< the same, until the committer knows of it
  bool has_census_{true};                 ///< the store can take one

  server_view figures_;
};

}  // namespace verge::server
