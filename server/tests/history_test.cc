// SPDX-License-Identifier: Apache-2.0

// Random histories against a naive model: a list of tasks that is searched for everything. The
// broker has to say the same, byte for byte, whatever part of its tasks is in memory, and whenever
// it is killed and started again.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/lab.h"
#include "support/scale.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using verge::clock;

/// The rules, with nothing to make them fast.
class naive {
 public:
  struct member {
    std::string used{"default"};
    std::vector<std::string> watched{"default"};
    bool waits{false};
    std::uint64_t number{0};
    clock::time_point until;
    clock::time_point wake;
    std::deque<command> behind;
    std::string said;
  };
  struct item {
    task fields;
    std::string tube;
    std::string body;
    member* holder{nullptr};
    clock::time_point lease_end;
  };

  struct pause {
    clock::time_point end;
    wall_time wall_end;
    nanoseconds length;
  };

  explicit naive(std::size_t chunk) : chunk_(chunk) {}

  member& connect() { return members_.emplace_back(); }

  void begin(clock::time_point now, wall_time wall) {
    now_ = now;
    wall_ = wall;
  }

  void execute(member& m, command c) {
    if (m.waits || !m.behind.empty()) {
      m.behind.push_back(std::move(c));
      return;
    }
    run(m, c);
    resume();
  }

  void leave(member& m) {
    m.behind.clear();
    stop_waiting(m);
    for (item* i : held_by(m)) {
      i->holder = nullptr;
      static_cast<void>(give_back(i->fields, i->fields.token, wall_));
      serve(i->tube);
    }
    members_.remove_if([&](const member& x) { return &x == &m; });
  }

  /// All clients are disconnected. What is left of a pause is known by the wall clock, and is no
  /// longer than the pause. Nothing else happens.
  void restart() {
    members_.clear();
    std::map<std::string, pause> paused;
    for (auto& [tube, p] : paused_) {
      p.end = now_ + std::chrono::nanoseconds(std::min(p.wall_end - wall_, p.length));
      if (p.end > now_) paused[tube] = p;
    }
    paused_ = paused;
    falling_.clear();
    for (item& i : items_) {
      i.holder = nullptr;
      if (i.fields.state == task_state::reserved) {
        static_cast<void>(give_back(i.fields, i.fields.token, std::max(wall_, i.fields.due)));
      }
    }
    resumed_.clear();
  }

  void advance() {
    for (bool more = true; more;) more = advance_once();
  }

  std::size_t size() const { return items_.size(); }
  task_id some_id(std::size_t n) const {
    if (items_.empty()) return 1;
    return std::next(items_.begin(), static_cast<std::ptrdiff_t>(n % items_.size()))->fields.id;
  }

  std::string describe() const {
    std::string all;
    for (const item& i : items_) {
      all += "  task " + std::to_string(i.fields.id) + " in " + i.tube + ": " +
             name_of(i.fields.state) + ", priority " + std::to_string(i.fields.priority) +
             ", due in " + std::to_string(i.fields.due - wall_) + "\n";
    }
    return all;
  }

 private:
  bool advance_once() {
    queue_due_tubes();
    for (std::size_t most = chunk_; most > 0 && !falling_.empty();) {
      const std::string tube = falling_.front();
      falling_.pop_front();
      const std::size_t share = std::max<std::size_t>(most / (falling_.size() + 1), 1);
      std::size_t done = 0;
      for (; done < share; ++done) {
        item* i = first_delayed(tube);
        if (i == nullptr || i->fields.due > wall_) break;
        static_cast<void>(fall_due(i->fields, wall_));
        serve(tube);
      }
      most -= std::max<std::size_t>(done, 1);
      if (done == share) falling_.push_back(tube);
    }
    for (std::size_t i = 0; i < chunk_ && alarm(); ++i) {
    }
    resume();
    const item* first = first_delayed("");
    return (first != nullptr && first->fields.due <= wall_) || !falling_.empty() ||
           first_alarm() <= now_;
  }

  /// In the order of their first due times.
  void queue_due_tubes() {
    std::vector<std::pair<wall_time, std::string>> due;
    for (const std::string t : {"default", "a", "b", "dead"}) {
      const item* first = first_delayed(t);
      if (first == nullptr || first->fields.due > wall_) continue;
      if (std::find(falling_.begin(), falling_.end(), t) == falling_.end()) {
        due.emplace_back(first->fields.due, t);
      }
    }
    std::sort(due.begin(), due.end());
    for (auto& [at, t] : due) falling_.push_back(std::move(t));
  }

  clock::time_point first_alarm() {
    clock::time_point first = clock::time_point::max();
    for (const item& i : items_) {
      if (i.fields.state == task_state::reserved) first = std::min(first, i.lease_end);
    }
    for (const member& m : members_) {
      if (m.waits) first = std::min(first, m.wake);
    }
    for (const auto& [name, p] : paused_) first = std::min(first, p.end);
    return first;
  }

  bool alarm() {
    const clock::time_point at = first_alarm();
    if (at > now_) return false;
    for (item& i : items_) {
      if (i.fields.state != task_state::reserved || i.lease_end != at) continue;
      i.holder = nullptr;
      if (expire(i.fields, i.fields.token, wall_) == outcome::dead) kill(i);
      serve(i.tube);
      return true;
    }
    for (member& m : members_) {
      if (!m.waits || m.wake != at) continue;
      stop_waiting(m);
      m.said += m.until <= now_ ? "TIMED_OUT\r\n" : "DEADLINE_SOON\r\n";
      return true;
    }
    for (const auto& [name, p] : paused_) {
      if (p.end != at) continue;
      const std::string tube = name;
      paused_.erase(name);
      serve(tube);
      return true;
    }
    return false;
  }

  void kill(item& i) {
    if (i.fields.dead_letter.empty()) {
      bury_dead(i.fields, next_burial_++);
    } else {
      i.tube = i.fields.dead_letter;
      move_dead(i.fields, 0, wall_);
    }
  }

  item* first_delayed(const std::string& tube) {
    return first(tube, task_state::delayed, [](const item& i) { return due_order_of(i.fields); });
  }
  item* first_ready(const std::string& tube) {
    return first(tube, task_state::ready, [](const item& i) { return ready_order_of(i.fields); });
  }
  item* first_buried(const std::string& tube) {
    return first(tube, task_state::buried, [](const item& i) { return burial_order_of(i.fields); });
  }
  template <class Key>
  item* first(const std::string& tube, task_state s, Key key) {
    item* best = nullptr;
    for (item& i : items_) {
      if (i.fields.state != s || (!tube.empty() && i.tube != tube)) continue;
      if (best == nullptr || key(i) < key(*best)) best = &i;
    }
    return best;
  }

  std::vector<item*> held_by(const member& m) {
    std::vector<item*> held;
    for (item& i : items_) {
      if (i.holder == &m) held.push_back(&i);
    }
    // In the order in which they were reserved.
    std::sort(held.begin(), held.end(),
              [&](item* a, item* b) { return leased_.at(a) < leased_.at(b); });
    return held;
  }

  bool is_paused(const std::string& tube) { return paused_.contains(tube); }

  item* best_for(member& m) {
    item* best = nullptr;
    for (const std::string& t : m.watched) {
      if (is_paused(t)) continue;
      item* i = first_ready(t);
      if (i == nullptr) continue;
      if (best == nullptr || ready_order_of(i->fields) < ready_order_of(best->fields)) best = i;
    }
    return best;
  }

  void give(member& m, item& i) {
    static_cast<void>(reserve(i.fields, ++tokens_, wall_, true));
    i.holder = &m;
    i.lease_end = now_ + std::chrono::nanoseconds(i.fields.ttr);
    leased_[&i] = ++leases_;
    m.said += "RESERVED " + std::to_string(i.fields.id) + " " + std::to_string(i.body.size()) +
              "\r\n" + i.body + "\r\n";
  }

  void serve(const std::string& tube) {
    for (;;) {
      if (is_paused(tube) || first_ready(tube) == nullptr) return;
      member* next = nullptr;
      for (member& m : members_) {
        if (!m.waits || std::find(m.watched.begin(), m.watched.end(), tube) == m.watched.end()) {
          continue;
        }
        if (next == nullptr || m.number < next->number) next = &m;
      }
      if (next == nullptr) return;
      stop_waiting(*next);
      give(*next, *best_for(*next));
    }
  }

  void stop_waiting(member& m) {
    if (!m.waits) return;
    m.waits = false;
    if (!m.behind.empty()) resumed_.push_back(&m);
  }

  void resume() {
    while (!resumed_.empty()) {
      member& m = *resumed_.back();
      resumed_.pop_back();
      while (!m.waits && !m.behind.empty()) {
        command c = std::move(m.behind.front());
        m.behind.pop_front();
        run(m, c);
      }
    }
  }

  item* find(task_id id) {
    for (item& i : items_) {
      if (i.fields.id == id) return &i;
    }
    return nullptr;
  }
  item* find_key(const std::string& tube, const std::string& key) {
    for (item& i : items_) {
      if (i.tube == tube && i.fields.key == key) return &i;
    }
    return nullptr;
  }
  void erase(item& which) {
    items_.remove_if([&](const item& i) { return &i == &which; });
  }

  void run(member& m, command& c) {
    const auto say = [&](const std::string& text) { m.said += text + "\r\n"; };
    switch (c.what) {
      case verb::put:
        return put(m, c.tasks.front());
      case verb::reserve: {
        if (item* i = best_for(m)) return give(m, *i);
        std::optional<clock::time_point> end;
        for (const item* i : held_by(m)) end = std::min(end.value_or(i->lease_end), i->lease_end);
        const bool soon = end && *end - std::chrono::seconds(1) <= now_;
        const bool any_ready = std::any_of(m.watched.begin(), m.watched.end(), [&](const auto& t) {
          return first_ready(t) != nullptr;
        });
        if (soon && !any_ready) return say("DEADLINE_SOON");
        if (c.limit && *c.limit <= 0) return say("TIMED_OUT");
        m.waits = true;
        m.number = ++waits_;
        m.until = c.limit ? now_ + std::chrono::nanoseconds(*c.limit) : clock::time_point::max();
        m.wake = m.until;
        if (end) m.wake = std::min(m.wake, std::max(now_, *end - std::chrono::seconds(1)));
        return;
      }
      case verb::reserve_task: {
        item* i = find(c.number);
        if (i == nullptr || i->fields.state == task_state::reserved) return say("NOT_FOUND");
        return give(m, *i);
      }
      case verb::remove: {
        item* i = find(c.number);
        if (i == nullptr || (i->fields.state == task_state::reserved && i->holder != &m)) {
          return say("NOT_FOUND");
        }
        erase(*i);
        return say("DELETED");
      }
      case verb::release:
      case verb::bury:
      case verb::touch: {
        item* i = find(c.number);
        if (i == nullptr || i->holder != &m) return say("NOT_FOUND");
        if (c.what == verb::touch) {
          i->lease_end = now_ + std::chrono::nanoseconds(i->fields.ttr);
          return say("TOUCHED");
        }
        i->holder = nullptr;
        if (c.what == verb::bury) {
          static_cast<void>(bury(i->fields, i->fields.token, c.priority, next_burial_++));
          return say("BURIED");
        }
        if (release(i->fields, i->fields.token, c.priority, wall_, c.time) == outcome::dead) {
          kill(*i);
        }
        say("RELEASED");
        return serve(i->tube);
      }
      case verb::kick: {
        std::uint64_t n = 0;
        const bool any_buried = first_buried(m.used) != nullptr;
        for (; n < c.number; ++n) {
          item* i = any_buried ? first_buried(m.used) : first_delayed(m.used);
          if (i == nullptr) break;
          static_cast<void>(kick(i->fields, wall_));
          serve(m.used);
        }
        return say("KICKED " + std::to_string(n));
      }
      case verb::kick_task: {
        item* i = find(c.number);
        if (i == nullptr || kick(i->fields, wall_) != outcome::done) return say("NOT_FOUND");
        serve(i->tube);
        return say("KICKED");
      }
      case verb::peek:
        return show(m, find(c.number));
      case verb::peek_ready:
        return show(m, first_ready(m.used));
      case verb::peek_delayed:
        return show(m, first_delayed(m.used));
      case verb::peek_buried:
        return show(m, first_buried(m.used));
      case verb::cancel: {
        item* i = find_key(m.used, c.text);
        if (i == nullptr) return say("NOT_FOUND");
        if (i->fields.state == task_state::reserved) return say("TAKEN");
        erase(*i);
        return say("CANCELLED");
      }
      case verb::reschedule: {
        item* i = find_key(m.used, c.text);
        if (i == nullptr) return say("NOT_FOUND");
        if (i->fields.state == task_state::reserved) return say("TAKEN");
        static_cast<void>(reschedule(i->fields, wall_, c.time));
        const task_id id = i->fields.id;
        serve(i->tube);
        return say("RESCHEDULED " + std::to_string(id));
      }
      case verb::use:
        m.used = c.text;
        return say("USING " + m.used);
      case verb::watch:
        if (std::find(m.watched.begin(), m.watched.end(), c.text) == m.watched.end()) {
          m.watched.push_back(c.text);
        }
        return say("WATCHING " + std::to_string(m.watched.size()));
      case verb::pause:
        paused_.erase(c.text);
        if (c.time > 0) {
          paused_[c.text] = {.end = now_ + std::chrono::nanoseconds(c.time),
                             .wall_end = wall_ + c.time,
                             .length = c.time};
        }
        say("PAUSED");
        return serve(c.text);
      case verb::stats_tube:
        return stats(m, c.text);
      default:
        FAIL() << "the model does not know verb " << static_cast<int>(c.what);
    }
  }

  void put(member& m, new_task& n) {
    std::string word = "INSERTED ";
    if (!n.key.empty()) {
      if (item* i = find_key(m.used, n.key)) {
        const std::string id = std::to_string(i->fields.id) + "\r\n";
        if (n.mode == if_exists::keep) return void(m.said += "KEPT " + id);
        if (n.mode == if_exists::refuse) return void(m.said += "EXISTS " + id);
        if (i->fields.state == task_state::reserved) return void(m.said += "TAKEN\r\n");
        erase(*i);
        word = "REPLACED ";
      }
    }
    item& i = items_.emplace_back();
    i.fields.id = ++ids_;
    i.fields.priority = n.priority;
    i.fields.ttr = n.ttr;
    i.fields.key = n.key;
    i.fields.max_attempts = n.max_attempts;
    i.fields.backoff = n.backoff;
    i.fields.dead_letter = n.dead_letter;
    i.tube = m.used;
    i.body = n.body;
    verge::server::begin(i.fields, wall_, n.delay);
    const task_id id = i.fields.id;
    serve(m.used);
    m.said += word + std::to_string(id) + "\r\n";
  }

  void show(member& m, const item* i) {
    if (i == nullptr) return void(m.said += "NOT_FOUND\r\n");
    m.said += "FOUND " + std::to_string(i->fields.id) + " " + std::to_string(i->body.size()) +
              "\r\n" + i->body + "\r\n";
  }

  void stats(member& m, const std::string& tube) {
    std::uint64_t counts[4]{};
    std::uint64_t urgent = 0;
    for (const item& i : items_) {
      if (i.tube != tube) continue;
      ++counts[static_cast<std::size_t>(i.fields.state)];
      if (i.fields.state == task_state::ready && i.fields.priority < urgent_below) ++urgent;
    }
    m.said += "urgent " + std::to_string(urgent) + " ready " + std::to_string(counts[1]) +
              " reserved " + std::to_string(counts[2]) + " delayed " + std::to_string(counts[0]) +
              " buried " + std::to_string(counts[3]) + "\r\n";
  }

  std::size_t chunk_;
  clock::time_point now_;
  wall_time wall_{0};
  std::list<item> items_;
  std::list<member> members_;
  std::vector<member*> resumed_;
  std::map<std::string, pause> paused_;
  std::deque<std::string> falling_;
  std::map<const item*, std::uint64_t> leased_;
  std::uint64_t leases_{0};
  std::uint64_t waits_{0};
  std::uint64_t next_burial_{1};
  task_id ids_{0};
  lease_token tokens_{0};

 public:
  /// After a restart ids go on above what could have been given out.
  void ids_from(task_id next) { ids_ = next - 1; }
};

struct history_options {
  std::uint64_t seed;
  std::size_t window;
  std::size_t chunk;
  bool durable_leases;
  bool restarts;
  bool clock_steps{false};
};

class history {
 public:
  explicit history(history_options o)
      : options_(o),
        random_(o.seed),
        lab_({.durable_leases = o.durable_leases,
              .most_in_memory = o.window,
              .chunk = o.chunk,
              .body_bytes = 64,
              .seed = o.seed,
              .elsewhere = {}}),
        model_(o.chunk) {
    for (int i = 0; i < 4; ++i) join();
  }

  std::size_t most_on_disk_alone{0};

  void play(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      const std::string what = step();
      most_on_disk_alone = std::max(most_on_disk_alone,
                                    model_.size() - std::min(model_.size(), lab_.it().in_memory()));
      log_.push_back(what);
      if (log_.size() > 12) log_.pop_front();
      for (auto& [real, known] : clients_) {
        ASSERT_EQ(real->heard(), std::exchange(known->said, {}))
            << "seed " << options_.seed << ", step " << i << " of\n"
            << recent() << "where the model has\n"
            << model_.describe();
      }
    }
  }

 private:
  std::string recent() const {
    std::string all;
    for (const std::string& s : log_) all += "  " + s + "\n";
    return all;
  }

  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  void join() {
    model_.begin(lab_.now, lab_.wall);
    clients_.emplace_back(lab_.connect(), &model_.connect());
    clients_.back().first->only_counts = true;
  }

  std::string tube() { return below(3) == 0 ? "default" : below(2) == 0 ? "a" : "b"; }
  /// Mostly one that exists.
  task_id any_id() { return below(8) == 0 ? 1 + below(40) : model_.some_id(below(1000)); }

  /// Both ways, by less than the delays of tasks or by much more.
  std::chrono::nanoseconds any_step() {
    const auto by = static_cast<nanoseconds>(below(2) == 0 ? below(15 * second) : 3600 * second);
    return std::chrono::nanoseconds(below(2) == 0 ? by : -by);
  }

  std::string step() {
    if (below(4) == 0) {
      const auto d = std::chrono::nanoseconds(below(10) == 0 ? below(30 * second) : below(second));
      lab_.pass(d);
      model_.begin(lab_.now, lab_.wall);
      model_.advance();
      return "passes " + std::to_string(d.count()) + " ns";
    }
    if (options_.clock_steps && below(50) == 0) {
      const auto d = any_step();
      lab_.step(d);
      model_.begin(lab_.now, lab_.wall);
      model_.advance();
      return "the clock is set by " + std::to_string(d.count()) + " ns";
    }
    if (options_.restarts && below(150) == 0) {
      std::string text = "restart";
      if (options_.clock_steps) {
        // What has fallen due is known to have for a second, whatever the clock does now.
        lab_.pass(std::chrono::seconds(1));
        model_.begin(lab_.now, lab_.wall);
        model_.advance();
        const auto d = below(2) == 0 ? any_step() : std::chrono::nanoseconds(0);
        lab_.wall += d.count();
        text += ", the clock is set by " + std::to_string(d.count()) + " ns";
      }
      model_.begin(lab_.now, lab_.wall);
      model_.restart();
      clients_.clear();
      lab_.restart();
      // What is ready may be handed out in another order only after all is loaded.
      model_.advance();
      model_.ids_from(lab_.disk().recover().id_ceiling);
      for (int i = 0; i < 4; ++i) join();
      return text;
    }
    const std::size_t which = below(clients_.size());
    if (below(60) == 0) {
      model_.begin(lab_.now, lab_.wall);
      lab_.run(clients_[which].first, command(verb::leave));
      model_.leave(*clients_[which].second);
      model_.advance();
      clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(which));
      join();
      return "one leaves";
    }
    auto [c, text] = invent();
    command copy = c;
    lab_.run(clients_[which].first, std::move(c));
    model_.begin(lab_.now, lab_.wall);
    model_.execute(*clients_[which].second, std::move(copy));
    model_.advance();
    return "client " + std::to_string(which) + ": " + text;
  }

  std::pair<command, std::string> invent() {
    command c;
    const auto id = [&](verb v, const std::string& name) {
      c.what = v;
      c.number = any_id();
      return std::pair(c, name + " " + std::to_string(c.number));
    };
    switch (below(26)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: {
        c.what = verb::put;
        new_task& t = c.tasks.emplace_back();
        t.priority = static_cast<std::uint32_t>(below(3) * 1000);
        if (below(2) == 0) t.delay = static_cast<nanoseconds>(1 + below(20 * second));
        t.ttr = static_cast<nanoseconds>(1 + below(10 * second));
        t.body = std::string(below(30), 'x') + std::to_string(below(1000));
        if (below(3) == 0) {
          t.key = "k" + std::to_string(below(20));
          t.mode = static_cast<if_exists>(below(3));
        }
        if (below(4) == 0) t.max_attempts = static_cast<std::uint32_t>(1 + below(3));
        if (below(4) == 0) t.backoff = static_cast<nanoseconds>(1 + below(2 * second));
        if (below(8) == 0) t.dead_letter = "dead";
        return {c, "put"};
      }
      case 5:
      case 6:
      case 7: {
        c.what = verb::reserve;
        if (below(4) != 0)
          c.limit = static_cast<nanoseconds>(below(3) == 0 ? 0 : below(5 * second));
        return {c, "reserve"};
      }
      case 8:
        return id(verb::reserve_task, "reserve-job");
      case 9:
      case 10:
        return id(verb::remove, "delete");
      case 11: {
        c.time = below(2) == 0 ? 0 : static_cast<nanoseconds>(below(10 * second));
        c.priority = static_cast<std::uint32_t>(below(3) * 1000);
        return id(verb::release, "release");
      }
      case 12: {
        c.priority = static_cast<std::uint32_t>(below(3) * 1000);
        return id(verb::bury, "bury");
      }
      case 13:
        return id(verb::touch, "touch");
      case 14: {
        c.what = verb::kick;
        c.number = below(6);
        return {c, "kick " + std::to_string(c.number)};
      }
      case 15:
        return id(verb::kick_task, "kick-job");
      case 16:
        return id(verb::peek, "peek");
      case 17:
        c.what = verb::peek_ready;
        return {c, "peek-ready"};
      case 18:
        c.what = verb::peek_delayed;
        return {c, "peek-delayed"};
      case 19:
        c.what = verb::peek_buried;
        return {c, "peek-buried"};
      case 20:
        c.what = verb::cancel;
        c.text = "k" + std::to_string(below(20));
        return {c, "cancel " + c.text};
      case 21:
        c.what = verb::reschedule;
        c.text = "k" + std::to_string(below(20));
        c.time = static_cast<nanoseconds>(below(20 * second));
        return {c, "reschedule " + c.text};
      case 22:
        c.what = verb::use;
        c.text = tube();
        return {c, "use " + c.text};
      case 23:
        c.what = verb::watch;
        c.text = tube();
        return {c, "watch " + c.text};
      case 24:
        c.what = verb::pause;
        c.text = "default";
        c.time = static_cast<nanoseconds>(below(3) == 0 ? 0 : below(3 * second));
        return {c, "pause default"};
      default:
        c.what = verb::stats_tube;
        c.text = "default";
        return {c, "stats-tube default"};
    }
  }

  history_options options_;
  std::mt19937_64 random_;
  lab lab_;
  naive model_;
  std::vector<std::pair<std::shared_ptr<recording_client>, naive::member*>> clients_;
  std::deque<std::string> log_;
};

/// Returns how many tasks were in the store alone, at most.
std::size_t play(history_options o) {
  const int seeds = verge::test::scale(150, 15);
  std::size_t most = 0;
  for (int seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    o.seed = static_cast<std::uint64_t>(seed);
    history h(o);
    h.play(2000);
    most = std::max(most, h.most_on_disk_alone);
  }
  return most;
}

constexpr std::size_t all = 100'000;

TEST(histories, agree_with_the_model_when_all_is_in_memory) {
  EXPECT_EQ(
      play({.seed = 0, .window = all, .chunk = 16, .durable_leases = true, .restarts = false}), 0U);
}
TEST(histories, agree_with_the_model_when_little_is_in_memory) {
  EXPECT_GT(play({.seed = 0, .window = 1, .chunk = 4, .durable_leases = true, .restarts = false}),
            50U);
}
TEST(histories, agree_with_the_model_with_leases_in_memory) {
  EXPECT_GT(play({.seed = 0, .window = 1, .chunk = 4, .durable_leases = false, .restarts = false}),
            50U);
}
TEST(histories, agree_with_the_model_over_restarts) {
  EXPECT_GT(play({.seed = 0, .window = all, .chunk = 16, .durable_leases = true, .restarts = true}),
            50U);
}
TEST(histories, agree_with_the_model_over_restarts_when_little_is_in_memory) {
  EXPECT_GT(play({.seed = 0, .window = 1, .chunk = 4, .durable_leases = true, .restarts = true}),
            50U);
}
TEST(histories, agree_with_the_model_when_the_clock_is_set) {
  EXPECT_GT(play({.seed = 0,
                  .window = 1,
                  .chunk = 4,
                  .durable_leases = true,
                  .restarts = false,
                  .clock_steps = true}),
            50U);
}
TEST(histories, agree_with_the_model_when_the_clock_is_set_over_restarts) {
  for (const std::size_t window : {all, std::size_t{1}}) {
    EXPECT_GT(play({.seed = 0,
                    .window = window,
                    .chunk = window == all ? 16U : 4U,
                    .durable_leases = true,
                    .restarts = true,
                    .clock_steps = true}),
              50U);
  }
}

}  // namespace
