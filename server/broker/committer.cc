// SPDX-License-Identifier: Apache-2.0

#include "committer.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <utility>

#include <verge/runtime.h>

namespace verge::server {

namespace {

/// A round takes no more than this, so that replies of the first do not wait for the last.
constexpr std::size_t most_at_once = 8192;
/// A wait this long is looked at again: it may be longer than timers go.
constexpr std::chrono::hours longest_sleep{24};

}  // namespace

wall_time wall_now() noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

committer::committer(store& s, broker_options options, std::function<wall_time()> wall)
    : store_(s), broker_(s, std::move(options)), wall_(std::move(wall)) {
  broker_.recover(clock::now(), wall_());
}

void committer::wake() noexcept { static_cast<void>(woken_.try_send(true)); }

void committer::submit(std::span<request> requests) {
  bool first = false;
  {
    std::lock_guard held(lock_);
    first = queue_.empty();
    std::move(requests.begin(), requests.end(), std::back_inserter(queue_));
  }
  if (first) wake();
}

void committer::stop() noexcept {
  stopping_.store(true);
  wake();
}

verge::task<> committer::run() {
  alarm_ = after_func(longest_sleep, [this] { wake(); });
  // What has fallen due before a restart is ready before the first command is executed.
  for (bool more = co_await round(false);;) {
    if (!more && !stopping_.load()) {
      set_alarm();
      static_cast<void>(co_await recv(woken_));
    }
    co_await yield();
    more = take();
    const bool last = stopping_.load() && taken_.empty() && !more;
    const bool again = co_await round(last);
    more = more || again;
    taken_.clear();  // it keeps clients alive
    if (last) break;
    take_census();
  }
  alarm_ = timer();
  if (census_ == nullptr) co_return;
  // It reads the store, which may be closed now.
  census_->give_up();
  co_await counting_;
}

/// Beside everything else; the broker sees when it is done.
void committer::take_census() {
  auto begun = broker_.begun_census();
  if (begun == nullptr) return;
  census_ = std::move(begun);
  counting_ = go(
      [](std::shared_ptr<census> c) -> verge::task<> {
        blocking([&] { c->run(); });
        co_return;
      },
      census_);
}

/// Takes what is in the queue. True if there is more.
bool committer::take() {
  std::lock_guard held(lock_);
  if (queue_.size() <= most_at_once) {
    taken_.swap(queue_);
  } else {
    const auto end = queue_.begin() + most_at_once;
    std::move(queue_.begin(), end, std::back_inserter(taken_));
    queue_.erase(queue_.begin(), end);
  }
  return !queue_.empty();
}

/// Does what was taken. True if the broker has more to do at once.
verge::task<bool> committer::round(bool last) {
  broker_.begin(clock::now(), wall_());
  std::size_t done = 0;
  const auto execute = [&] {
    for (; done < taken_.size(); ++done) {
      broker_.execute(taken_[done].from, std::move(taken_[done].what));
    }
  };
  std::string failure;
  answer of_round = answer::internal_error;
  try {
    bool more = false;
    if (store_.is_remote() && !broker_.has_failed()) {
      co_await look_keys_up();
      broker_.begin(clock::now(), wall_());
    }
    execute();
    if (!broker_.has_failed()) {
      more = broker_.advance();
      if (last) broker_.close_books();
      co_await commit(taken_.size());
    }
    broker_.committed();
    co_return more;
  } catch (const store_moved& e) {
    failure = e.what();
    of_round = answer::moved;
  } catch (const std::exception& e) {
    failure = e.what();
  }
  // Also what is not the disk's fault: memory may be ahead of the disk, and nothing more is
  // acknowledged. The command that has thrown and those that are left hear so as well.
  broker_.fail(failure, of_round);
  if (on_failure) on_failure(failure);
  execute();
  broker_.committed();
  co_return false;
}

/// One round trip, instead of one for each key.
verge::task<> committer::look_keys_up() {
  std::vector<key_name> wanted;
  for (const request& r : taken_) broker_.add_wanted_keys(*r.from, r.what, wanted);
  if (wanted.empty()) co_return;
  key_table found = co_await store_.find_keys(wanted);
  broker_.know_keys(std::move(found));
}

/// Writes what this round changes.
verge::task<> committer::commit(std::size_t commands) {
  const batch& changes = broker_.changes();
  if (changes.empty()) {
    if (still_ours && !still_ours()) throw store_moved("the lease of the tasks has ended");
    co_return;
  }
  const auto begin = std::chrono::steady_clock::now();
  co_await store_.commit(changes);
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
  broker_.note_commit(commands, static_cast<std::uint64_t>(took.count()));
}

/// For what the broker has to do by itself next.
void committer::set_alarm() {
  clock::time_point wake_at = clock::now() + longest_sleep;
  if (const auto alarm = broker_.next_alarm()) wake_at = std::min(wake_at, *alarm);
  if (const auto due = broker_.next_due()) {
    const wall_time now = wall_();
    // The difference of two wall times may overflow; a day is long enough.
    const auto left = *due <= now ? std::chrono::nanoseconds(0)
                      : *due > now + std::chrono::nanoseconds(longest_sleep).count()
                          ? std::chrono::nanoseconds(longest_sleep)
                          : std::chrono::nanoseconds(*due - now);
    wake_at = std::min(wake_at, clock::now() + left);
  }
  alarm_.reset_at(wake_at);
}

}  // namespace verge::server
