// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>

#include <sched/processor.h>

/// All processors of a scheduler: the numbered ones, of which the first in_use() are in use, and
/// the spare ones, which run while all others are stuck.
///
/// Ground rules
///  - A processor is never destroyed before the set is. The timers and queues of retired processors
///    are still looked at, so a thread may keep a reference to one.
///  - `made_` and `spares_made_` count what was made. They are raised with release after the
///    pointer is in its place and read with acquire, so every processor below the number may be
///    used.
///  - make_up_to() is called by one thread at a time, under the scheduler's lock on resizing;
///    make_spare_locked() and use_locked() are called under the scheduler's lock. All other
///    functions may be called by any thread.
namespace verge::detail {

class processor_set {
 public:
  static constexpr unsigned max_processors = 256;
  static constexpr unsigned max_spares = 1024;
  /// processor::id is below this: numbered ones first, then spare ones.
  static constexpr unsigned max_ids = max_processors + max_spares;

  /// Throws std::invalid_argument if there cannot be n processors.
  static void check_number(unsigned n) {
    if (n >= 1 && n <= max_processors) return;
    throw std::invalid_argument("verge: the number of processors must be from 1 to " +
                                std::to_string(max_processors) + ", not " + std::to_string(n));
  }
  explicit processor_set(unsigned in_use) : in_use_(in_use) { check_number(in_use); }

  static bool is_spare(const processor& p) noexcept { return p.id >= max_processors; }

  /// How many are to be used. Acquire: a thread that knows the number may use what was made for it.
  unsigned in_use() const noexcept { return in_use_.load(std::memory_order_acquire); }
  /// How many were ever made, retired ones included.
  unsigned made() const noexcept { return made_.load(std::memory_order_acquire); }
  unsigned spares_made() const noexcept { return spares_made_.load(std::memory_order_acquire); }

  processor& operator[](unsigned i) const noexcept { return *numbered_[i]; }
  processor& spare(unsigned i) const noexcept { return *spares_[i]; }

  template <class F>
  void for_each(F&& f) const {
    const unsigned n = made();
    for (unsigned i = 0; i < n; ++i) f(*numbered_[i]);
    const unsigned spares = spares_made();
    for (unsigned i = 0; i < spares; ++i) f(*spares_[i]);
  }

  /// Whether one that is not to be used any more is still at work.
  bool any_retires() const noexcept {
    for (unsigned i = 0; i < made(); ++i) {
      if (numbered_[i]->retiring.load(std::memory_order_relaxed)) return true;
    }
    return false;
  }

  /// Makes processors until there are n. They are retired until they are taken into use.
  void make_up_to(unsigned n) {
    for (unsigned i = made(); i < n; ++i) {
      numbered_[i] = std::make_unique<processor>(i, 0x2545f4914f6cdd1dU * (i + 1));
      numbered_[i]->retired.store(true, std::memory_order_relaxed);
      made_.store(i + 1, std::memory_order_release);
    }
  }

  void use_locked(unsigned n) noexcept { in_use_.store(n, std::memory_order_release); }

  /// Throws std::bad_alloc.
  processor& make_spare_locked() {
    const unsigned i = spares_made_.load(std::memory_order_relaxed);
    spares_[i] = std::make_unique<processor>(max_processors + i, 0x9e3779b97f4a7c15 + i);
    spares_made_.store(i + 1, std::memory_order_release);
    return *spares_[i];
  }

 private:
  std::atomic<unsigned> in_use_;
  std::atomic<unsigned> made_{0};
  std::atomic<unsigned> spares_made_{0};
  std::array<std::unique_ptr<processor>, max_processors> numbered_;
  std::array<std::unique_ptr<processor>, max_spares> spares_;
};

}  // namespace verge::detail
