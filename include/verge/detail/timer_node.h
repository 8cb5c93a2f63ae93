// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include <verge/detail/scheduling.h>
#include <verge/timer_options.h>

#pragma GCC visibility push(default)

/// A timer as every engine and every handle shares it: what to do when its time has come, and how
/// many still need it. Where it waits until then is up to the engine, in the engine's own part of
/// the node.
///
/// Ground rules
///  - `refs` counts the parties that may still touch the node: its handle, the queue it is on,
///    every firing that has begun. The thread that takes it to zero destroys the payload and frees
///    the node.
///  - `does` and the payload are written before the timer is first started. The destructor of the
///    handle writes them once more, when no callback runs and none can begin; a firing that has
///    begun may still read `does`, and does nothing either way. Hence it is atomic.
///  - A timer that is periodic, as its engine sees it, has a payload of no more than the first
///    half: the engine keeps the period in the second.
///  - `runs` and the runnable belong to timers that have something to invoke, see
///    src/timer/call_count.h. The runnable is on a run queue while calls wait and none runs.
namespace verge::detail {

class clockwork;
struct timer_node;

/// How handles operate timers that have a lock and a schedule of their own: those with a channel,
/// and tickers with a function.
struct timer_operations {
  bool (*stop)(timer_node&) noexcept;
  bool (*reset)(timer_node&, std::int64_t when, std::int64_t period);
  /// The handle is destroyed, or lets the timer run on.
  void (*end)(timer_node&) noexcept;
  void (*detach)(timer_node&) noexcept;
};

/// The address of no place, and not null.
inline constexpr char no_place = 0;

/// What a timer does. One constant per kind of timer and type of callable.
struct timer_behaviour {
  /// The timer is due. Called by the engine, with no lock held, on the thread that found it due.
  void (*fire)(timer_node&, std::int64_t now) noexcept;
  /// What its turn on a run queue does: calls the callable. Null for timers that have none.
  void (*invoke)(timer_node&);
  /// Destroys the payload. Null if there is nothing to destroy.
  void (*destroy)(timer_node&) noexcept;
  /// As fire, for an engine that hands its reference over with the call. Null: there is fire only.
  void (*take)(timer_node&, std::int64_t now) noexcept {nullptr};
  /// Null: those of the engine are used.
  const timer_operations* operations{nullptr};
  /// What it is, for people: the type of the callable (site.h), or a word. Null: nothing is known.
  const char* written{nullptr};

  // The rest is for behaviours with a name (named_behaviour()), which are the library's and live as
  // long as it does, and so do their texts.

  /// The label, and the place where the timer was made: "shop.cc:42 shop::remind". Null: none.
  const char* label{nullptr};
  const char* place{nullptr};
  /// What they were given as.
  work_name given{};
  /// The place, if there is no label: one comparison tells that it is that of a call without one.
  const void* only_place{&no_place};
};

/// The behaviour `of` with a name: for the same two always the same one, made when it is first
/// asked for. `of` itself if there are too many, or no memory. The name of a timer is a part of
/// its behaviour because a node has no room for it; so it costs nothing after the start.
const timer_behaviour& named_behaviour(const timer_behaviour& of, const char* label,
                                       const void* place, const char* written = nullptr) noexcept;

struct timer_node : runnable {
  std::atomic<std::uint32_t> refs{1};
  std::atomic<std::uint32_t> runs{0};
  std::atomic<const timer_behaviour*> does{nullptr};
  alignas(void*) std::byte payload[16];
};
// With a word of the engine's and the memory's eight bytes it fills a cache line.
static_assert(sizeof(timer_node) == 48);

/// How much of the payload a timer may use.
inline constexpr std::size_t payload_bytes = sizeof(timer_node::payload);
inline constexpr std::size_t periodic_payload_bytes = payload_bytes / 2;

/// Whether a callable lives in the node; a larger one is allocated when the timer is made.
template <class F, std::size_t Room = payload_bytes>
inline constexpr bool fits_in_node = sizeof(F) <= Room && alignof(F) <= alignof(void*);

/// A callable in the node, or a pointer to it there.
template <class F>
struct node_callable {
  static constexpr bool in_node = fits_in_node<F>;

  static F& get(timer_node& t) noexcept {
    if constexpr (in_node) {
      return *std::launder(reinterpret_cast<F*>(t.payload));
    } else {
      return **std::launder(reinterpret_cast<F**>(t.payload));
    }
  }
  template <class G>
  static void make(timer_node& t, G&& f) {
    if constexpr (in_node) {
      ::new (static_cast<void*>(t.payload)) F(std::forward<G>(f));
    } else {
      ::new (static_cast<void*>(t.payload)) F*(new F(std::forward<G>(f)));
    }
  }
  static void destroy(timer_node& t) noexcept {
    if constexpr (in_node) {
      get(t).~F();
    } else {
      delete &get(t);
    }
  }
};

}  // namespace verge::detail

#pragma GCC visibility pop
