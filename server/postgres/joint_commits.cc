// SPDX-License-Identifier: Apache-2.0

#include "joint_commits.h"

#include <cstdint>
#include <utility>

namespace verge::server::postgres {

namespace {

/// A transaction with this many changes, or bytes, takes no further shard.
constexpr std::size_t enough_changes = 4096;
constexpr std::size_t enough_bytes = std::size_t{16} << 20U;
constexpr int most_attempts = 5;

std::size_t changes_of(const batch& b) noexcept {
  return b.insertions.size() + b.updates.size() + b.removals.size() + b.tubes.size() +
         b.notes.size();
}

std::size_t bytes_of(const batch& b) noexcept {
  std::size_t all = 0;
  for (const batch::insertion& i : b.insertions) all += i.body.size();
  for (const note& n : b.notes) all += n.text.size();
  return all;
}

}  // namespace

class joint_commits::entry {
 public:
  enum class told : std::uint8_t { done, to_lead };

  entry(joint_commits& all, shard_lease lease, const batch& b) : of(lease), what(b), all_(all) {}
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;
  ~entry() {
    const std::lock_guard held(all_.lock_);
    if (in != nullptr) in->remove(*this);
  }

  const shard_lease of;
  const batch& what;
  std::exception_ptr failure;
  bool done{false};
  list* in{nullptr};
  entry* next{nullptr};
  const chan<told> answer{1};

 private:
  joint_commits& all_;
};

/// In the place `at`, a link of the list.
void joint_commits::list::insert(entry*& at, entry& e) noexcept {
  e.next = std::exchange(at, &e);
  e.in = this;
}

void joint_commits::list::remove(entry& e) noexcept {
  entry** at = &first;
  while (*at != &e) at = &(*at)->next;
  *at = e.next;
  e.in = nullptr;
}

/// From when a task leads until it does not. Its end is told to the others in any case.
class joint_commits::turn {
 public:
  turn(joint_commits& of, entry& leader) noexcept : of_(of), leader_(leader) {}
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;
  ~turn() { of_.finish(group, leader_); }

  list group;

 private:
  joint_commits& of_;
  entry& leader_;
};

verge::task<> joint_commits::commit(shard_lease of, const batch& b) {
  entry mine(*this, of, b);
  bool leads = false;
  {
    const std::lock_guard held(lock_);
    entry** end = &queue_.first;
    while (*end != nullptr) end = &(*end)->next;
    queue_.insert(*end, mine);
    leads = !std::exchange(led_, true);
  }
  if (!leads) leads = co_await recv(mine.answer) == entry::told::to_lead;
  if (leads) {
    turn its(*this, mine);
    co_await yield();  // to the brokers of other shards, whose commands have come meanwhile
    take(its.group);
    co_await write(its.group);
  }
  if (mine.failure) std::rethrow_exception(mine.failure);
  if (!mine.done) throw store_error("a commit was given up, with the one that it was part of");
}

/// As many as make one transaction, one for each shard, in the order of their shards: transactions
/// that lock leases in one order cannot wait for each other.
void joint_commits::take(list& group) noexcept {
  const std::lock_guard held(lock_);
  std::size_t changes = 0;
  std::size_t bytes = 0;
  while (queue_.first != nullptr && changes < enough_changes && bytes < enough_bytes) {
    entry& e = *queue_.first;
    entry** at = &group.first;
    while (*at != nullptr && (*at)->of.shard < e.of.shard) at = &(*at)->next;
    if (*at != nullptr && (*at)->of.shard == e.of.shard) return;
    queue_.remove(e);
    group.insert(*at, e);
    changes += changes_of(e.what);
    bytes += bytes_of(e.what);
  }
}

void joint_commits::finish(list& group, entry& leader) noexcept {
  const std::lock_guard held(lock_);
  while (entry* const e = group.first) {
    group.remove(*e);
    if (e != &leader) static_cast<void>(e->answer.try_send(entry::told::done));
  }
  if (leader.in != nullptr) queue_.remove(leader);  // it has ended before it took anything
  led_ = queue_.first != nullptr;
  if (led_) static_cast<void>(queue_.first->answer.try_send(entry::told::to_lead));
}

/// Says in the entries how it went. Throws only for lack of memory.
verge::task<> joint_commits::write(list& group) {
  std::vector<entry*> all;
  for (entry* e = group.first; e != nullptr; e = e->next) all.push_back(e);
  std::exception_ptr failure;
  co_await try_to_write(all, failure);
  if (!failure) co_return;
  bool refused = false;
  try {
    std::rethrow_exception(failure);
  } catch (const refusal&) {
    refused = true;
  } catch (...) {
  }
  if (!refused || all.size() == 1) {
    for (entry* const e : all) e->failure = failure;
    co_return;
  }
  std::exception_ptr lost;  // then the others need not be tried
  for (entry* const e : all) {
    e->failure = lost;
    if (lost) continue;
    const std::vector<entry*> alone(1, e);
    co_await try_to_write(alone, e->failure);
    try {
      if (e->failure) std::rethrow_exception(e->failure);
    } catch (const link_error&) {
      lost = e->failure;
    } catch (...) {
    }
  }
}

verge::task<> joint_commits::try_to_write(const std::vector<entry*>& all,
                                          std::exception_ptr& failure) {
  try {
    transaction t;
    for (const entry* const e : all) t.add(e->of, e->what);
    const std::vector<statement> statements = t.statements();
    const pool::loan l = links_.take();
    for (int attempt = 1; !failure; ++attempt) {
      try {
        static_cast<void>(co_await l->run(statements));
        for (entry* const e : all) e->done = true;
        co_return;
      } catch (const refusal& e) {
        if (is_lost_lease(e)) throw;
        if (!is_transient(e) || attempt == most_attempts) failure = std::current_exception();
      } catch (const link_error& e) {
        if (!e.nothing_done || attempt > 1) throw;
      }
    }
    // What another server has written may be why: then that one has the shard.
    const std::vector<statement> check = t.check();
    static_cast<void>(co_await l->run(check));
  } catch (...) {
    failure = std::current_exception();
  }
}

void joint_commits::commit_here(shard_lease of, const batch& b) {
  transaction t;
  t.add(of, b);
  const pool::loan l = links_.take();
  const std::vector<statement> statements = t.statements();
  for (int attempt = 1;; ++attempt) {
    try {
      static_cast<void>(l->run_here(statements));
      return;
    } catch (const refusal& e) {
      if (is_lost_lease(e)) throw;
      if (is_transient(e) && attempt < most_attempts) continue;
      static_cast<void>(l->run_here(t.check()));
      throw;
    }
  }
}

}  // namespace verge::server::postgres
