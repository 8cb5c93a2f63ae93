// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

/// The word that counts a timer's calls: `runs` of its node.
///
/// Calls of one timer follow one another. A firing that comes while a call runs, or waits to begin,
/// is counted, and its call begins when that one has ended.
///
/// Ground rules
///  - Low bits: firings whose call has not begun. Then a bit for the call that runs. Two flags:
///    `ended`, set when the handle is destroyed, after which no call begins; `waited_for`, set by a
///    thread that waits for the end of the call that runs. The highest bit is not the calls': it
///    marks a precise timer (engine.h), and every operation here leaves it as it is.
///  - The node is on a run queue exactly while calls wait and none runs. The step that makes this
///    true is the one whose thread queues the node: add(), if nothing waits or runs; end(), if
///    something waits. Each is one atomic operation on one word, so it is queued once.
///  - A call happens before the next one: end() releases what begin() acquires.
namespace verge::detail {

/// Faults that the explorer's tests put in to show that they would be found.
enum class call_mutant : std::uint8_t {
  none,
  queues_while_running,  ///< add() queues the node although a call runs: calls overlap
  forgets_the_next,      ///< end() leaves what has come meanwhile
  begins_after_end,      ///< begin() does not look at `ended`
  never_wakes,           ///< end() does not look at `waited_for`
};

template <class Atomic, call_mutant Mutation = call_mutant::none>
class call_count {
 public:
  explicit call_count(Atomic& word) noexcept : word_(word) {}

  enum class added : std::uint8_t {
    queue,    ///< counted, and the caller queues the node
    counted,  ///< counted
    refused,  ///< ended, or so many wait that this one is counted with them
  };
  added add() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    do {
      if ((word & ended) != 0 || waiting(word) == waiting_mask) return added::refused;
    } while (!word_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel,
                                          std::memory_order_relaxed));
    const bool idle = Mutation == call_mutant::queues_while_running
                          ? waiting(word) == 0
                          : (word & (waiting_mask | running)) == 0;
    return idle ? added::queue : added::counted;
  }

  /// Takes up the call that the node was queued for. Whether it is to be made.
  bool begin() noexcept {
    const std::uint32_t word = word_.fetch_add(running - 1, std::memory_order_acq_rel);
    return (word & ended) == 0 || Mutation == call_mutant::begins_after_end;
  }

  struct end_of_call {
    bool queue;  ///< more calls wait: the caller queues the node
    bool wake;   ///< a thread waits for this
  };
  end_of_call end() noexcept {
    const std::uint32_t word = word_.fetch_sub(running, std::memory_order_acq_rel);
    return {.queue = waiting(word) != 0 && Mutation != call_mutant::forgets_the_next,
            .wake = (word & waited_for) != 0 && Mutation != call_mutant::never_wakes};
  }

  /// No call begins after this. Whether one runs.
  bool close() noexcept {
    return (word_.fetch_or(ended, std::memory_order_acq_rel) & running) != 0;
  }
  /// Asks end() for a wake-up. Whether a call runs.
  bool ask() noexcept {
    return (word_.fetch_or(waited_for, std::memory_order_acq_rel) & running) != 0;
  }
  bool runs() const noexcept { return (word_.load(std::memory_order_acquire) & running) != 0; }

  /// Closes it and drops the calls that wait: how many these were.
  std::uint32_t discard() noexcept {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while (!word_.compare_exchange_weak(word, (word & ~waiting_mask) | ended,
                                        std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
    return waiting(word);
  }

 private:
  static constexpr std::uint32_t waiting_mask = 0xffff;
  static constexpr std::uint32_t running = 1U << 16;
  static constexpr std::uint32_t ended = 1U << 17;
  static constexpr std::uint32_t waited_for = 1U << 18;
  static constexpr std::uint32_t waiting(std::uint32_t word) noexcept {
    return word & waiting_mask;
  }

  Atomic& word_;
};

}  // namespace verge::detail
