// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

/// What a trace records: a ring of events for each processor, and one for operations on timers,
/// which any thread may perform. Lossy: a ring that is full overwrites its oldest events, and a
/// reader can tell how many.
///
/// Ground rules
///  - A processor's ring is written by the worker that holds the processor, the ring of operations
///    by any thread, which takes the next place by fetch_add; turns on spare processors are there.
///  - A place is written between two stores of its number: 0, and then, with release, the number of
///    the event. A reader takes what lies between two equal numbers. Should a thread be so late
///    that another writes to the same place, the event may be a mixture of two; all the pointers in
///    it are to constants.
///  - Rings live as long as the scheduler, so a thread that still writes to one that is not
///    recorded any more does no harm. A later recording drops what is older than itself.
namespace verge::detail {

struct trace_event {
  enum class kind : std::uint8_t { callback, task, idle, fire, start, stop, reset };

  std::int64_t time{0};   ///< when it began, or happened
  std::int64_t value{0};  ///< how long it took, or when the timer is due
  kind what{kind::idle};
  const void* id{nullptr};  ///< of a timer, or of a spare processor
  const char* label{nullptr};
  const char* written{nullptr};
  const void* code{nullptr};

  /// What lasts ends when it has taken its time, all else when it happens.
  [[nodiscard]] std::int64_t end() const noexcept {
    const bool lasts = what == kind::callback || what == kind::task || what == kind::idle;
    return lasts ? time + value : time;
  }
};

class trace_ring {
 public:
  /// A power of two.
  explicit trace_ring(std::size_t size) : places_(std::make_unique<place[]>(size)), size_(size) {}

  /// By the only writer.
  void add(const trace_event& e) noexcept {
    const std::uint64_t n = written_.load(std::memory_order_relaxed);
    write(n, e);
    written_.store(n + 1, std::memory_order_release);
  }
  /// By any thread.
  void add_shared(const trace_event& e) noexcept {
    write(written_.fetch_add(1, std::memory_order_relaxed), e);
  }

  /// The events that ended since then, oldest first, and how many of them are lost.
  struct contents {
    std::vector<trace_event> events;
    std::uint64_t lost{0};
  };
  contents since(std::int64_t begin) const;
  /// Begins a recording: what was written before is not looked at any more.
  void forget() noexcept { from_ = written_.load(std::memory_order_acquire); }

 private:
  static constexpr std::size_t words = 7;
  struct place {
    std::atomic<std::uint64_t> number{0};
    std::array<std::atomic<std::uint64_t>, words> content{};
  };

  void write(std::uint64_t n, const trace_event& e) noexcept;
  bool read(std::uint64_t n, trace_event& e) const noexcept;

  std::unique_ptr<place[]> places_;
  std::size_t size_;
  std::uint64_t from_{0};
  std::atomic<std::uint64_t> written_{0};
};

}  // namespace verge::detail
