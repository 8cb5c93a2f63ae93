// SPDX-License-Identifier: Apache-2.0

#include "joint_commits.h"

#include <algorithm>
#include <utility>

namespace verge::server::postgres {

namespace {

std::size_t size_of(const batch& b) {
  return b.insertions.size() + b.updates.size() + b.removals.size();
}

}  // namespace

/// As many as make one transaction, in the order of their shards: transactions that lock leases in
/// one order cannot wait for each other.
std::vector<joint_commits::entry*> joint_commits::take() {
  std::vector<entry*> all;
  {
    std::lock_guard held(lock_);
    for (std::size_t size = 0; !queue_.empty() && size < enough; queue_.pop_front()) {
      size += size_of(*queue_.front()->what);
      all.push_back(queue_.front());
    }
  }
  std::sort(all.begin(), all.end(),
            [](const entry* a, const entry* b) { return a->of.shard < b->of.shard; });
  return all;
}

verge::task<> joint_commits::commit(shard_lease of, const batch& b) {
  entry mine{.of = of, .what = &b};
  bool leads = false;
  {
    std::lock_guard held(lock_);
    queue_.push_back(&mine);
    leads = !std::exchange(led_, true);
  }
  if (!leads) leads = co_await recv(mine.answer) == told::to_lead;
  if (leads) {
    co_await yield();  // to the brokers of other shards, whose commands have come meanwhile
    const std::vector<entry*> all = take();
    co_await write(all);
    finish(all, mine);
  }
  if (mine.failure) std::rethrow_exception(mine.failure);
}

/// Tells the others, and who leads next.
void joint_commits::finish(const std::vector<entry*>& all, const entry& leader) {
  // An entry may end as soon as it is told, while its channel is still used here.
  const auto tell = [](const entry& e, told what) {
    const chan<told> answer = e.answer;
    static_cast<void>(answer.try_send(what));
  };
  for (const entry* const e : all) {
    if (e != &leader) tell(*e, told::done);
  }
  std::lock_guard held(lock_);
  led_ = !queue_.empty();
  if (led_) tell(*queue_.front(), told::to_lead);
}

/// Sets what has failed in the entries, and does not throw.
verge::task<> joint_commits::write(const std::vector<entry*>& all) {
  std::exception_ptr failure;
  co_await try_to_write(all, failure);
  if (!failure) co_return;
  bool nothing_done = false;
  try {
    std::rethrow_exception(failure);
  } catch (const refusal&) {
    nothing_done = true;
  } catch (...) {
  }
  if (!nothing_done || all.size() == 1) {
    for (entry* const e : all) e->failure = failure;
    co_return;
  }
  for (entry* const e : all) {
    const std::vector<entry*> alone{e};
    co_await try_to_write(alone, e->failure);
  }
}

verge::task<> joint_commits::try_to_write(const std::vector<entry*>& all,
                                          std::exception_ptr& failure) {
  try {
    transaction t;
    for (const entry* const e : all) t.add(e->of, *e->what);
    const std::vector<statement> statements = t.statements();
    const pool::loan l = links_.take();
    for (int attempt = 1;; ++attempt) {
      try {
        static_cast<void>(co_await l->run(statements));
        co_return;
      } catch (const refusal& e) {
        if (!is_transient(e) || attempt == most_attempts) throw;
      }
    }
  } catch (...) {
    failure = std::current_exception();
  }
}

void joint_commits::commit_here(shard_lease of, const batch& b) {
  transaction t;
  t.add(of, b);
  const std::vector<statement> statements = t.statements();
  const pool::loan l = links_.take();
  for (int attempt = 1;; ++attempt) {
    try {
      static_cast<void>(l->run_here(statements));
      return;
    } catch (const refusal& e) {
      if (!is_transient(e) || attempt == most_attempts) throw;
    }
  }
}

}  // namespace verge::server::postgres
