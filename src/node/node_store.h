// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

#include <memory/slab_pool.h>
#include <verge/detail/scheduling.h>
#include <verge/detail/timer_node.h>

/// The memory of a runtime's timers, below every engine: allocation of nodes, release of their last
/// reference, and the lifetime of it all.
///
/// A node's store is found from the node's address, so a handle is one pointer. A store outlives
/// its runtime while there are handles to its timers: stopping and destroying them works as before,
/// and only a restart throws. A timer that is started while the runtime ends may not fire.
///
/// Ground rules for its end, during which other threads may be stopping, resetting or destroying
/// timers
///  - A thread that operates on a timer has a reference to its node, and nothing is destroyed while
///    a node is in use: neither the store and classes derived from it, nor the object that contains
///    the engine's host (`keep_`). Only the last operation on a node needs care, which is to free
///    it.
///  - Freeing a node is a visit to the pool, in which the thread checks whether the store is
///    closing. If not, the thread does not access the store after the visit. If so, the node is
///    freed and counted under a lock shared by all stores.
///  - close_store() sets the mark first and then waits for visits that may not have seen it. From
///    then on nodes are freed under the lock, so end_store() knows how many are left; the thread
///    that frees the last one deletes the store.
///  - fast_path::end() is not a visit: that would add a tenth to the cost of ending a timer. So
///    there is one exception: a thread that found the engine usable just before the store closed.
///    Its node counts as in use until its last step, so nothing is destroyed under it; and since
///    there is at most one such node per thread, the last few are recounted each time. (If that
///    thread is the very last, the store is leaked.)
namespace verge::detail {

/// The layout of an engine's nodes: their size, and the offset of the timer.
struct node_layout {
  std::size_t size;
  std::size_t timer_at;

  template <class Node>
  static node_layout of() noexcept {
    static_assert(std::is_trivially_destructible_v<Node>);
    alignas(Node) static std::byte somewhere[sizeof(Node)];
    const auto* timer = static_cast<const timer_node*>(reinterpret_cast<const Node*>(somewhere));
    return {.size = sizeof(Node),
            .timer_at =
                static_cast<std::size_t>(reinterpret_cast<const std::byte*>(timer) - somewhere)};
  }
};

class [[gnu::visibility("hidden")]] node_store {
 public:
  node_store(const node_store&) = delete;
  node_store& operator=(const node_store&) = delete;

  static node_store& of(const timer_node& t) noexcept {
    return *static_cast<pool&>(slab_pool::owner(&t)).of;
  }

  /// Prefetches the engine's part of a node.
  void fetch(const timer_node& t) const noexcept {
    __builtin_prefetch(reinterpret_cast<const std::byte*>(&t) - layout_.timer_at, 1);
  }
  /// Frees a node whose payload has been destroyed.
  void free(timer_node & t) noexcept {
    void* const memory = reinterpret_cast<std::byte*>(&t) - layout_.timer_at;
    {
      const slab_pool::visit here(nodes_, thread_slot());
      if (!closing()) [[likely]]
        return nodes_.free(memory);
    }
    free_late(memory);
  }
  /// Destroys the payload of a node without references, and frees the node.
  void bury(timer_node & t) noexcept {
    if (auto* destroy = t.does.load(std::memory_order_acquire)->destroy) destroy(t);
    free(t);
  }
  /// Drops a reference.
  void release(timer_node & t) noexcept {
    if (t.refs.fetch_sub(1, std::memory_order_acq_rel) == 1) bury(t);
  }
  /// The engine dropped the last reference to a timer; its payload must be destroyed.
  void leave_dead() noexcept { state_.fetch_or(has_dead, std::memory_order_release); }

  scheduler& home() noexcept { return scheduler_; }
  slab_stats memory() const noexcept { return nodes_.stats(); }
  /// Gives memory back that has not been in use since the last call. From one thread at a time.
  void trim() noexcept { nodes_.trim(); }
  bool can_trim() const noexcept { return nodes_.can_trim(); }
  void prepare() noexcept { nodes_.prepare(); }
  void on_growth(void (*f)(void*) noexcept, void* arg) noexcept { nodes_.on_growth(f, arg); }

  bool closing() const noexcept { return has(is_closing); }
  bool ended() const noexcept { return has(has_ended); }
  bool forked() const noexcept { return has(is_forked); }
  /// Whether destroying a handle must do nothing here: after a fork, locks may be held by threads
  /// that do not exist in this process; and the exiting thread must not wait for a callback that
  /// may never end.
  bool given_up() const noexcept;
  void refuse_if_ended() const {
    if (ended()) [[unlikely]]
      throw_ended();
  }

  void let_go() noexcept;
  /// The lock shared by all stores, for fork handlers: it must be free in the child.
  static std::mutex& lock_of_all() noexcept;

 protected:
  static constexpr std::uint8_t has_ended = 1;
  static constexpr std::uint8_t is_forked = 2;
  static constexpr std::uint8_t is_halted = 4;
  static constexpr std::uint8_t is_closing = 8;
  static constexpr std::uint8_t has_dead = 16;
  static constexpr std::uint8_t has_strays = 32;  ///< stopped, but maybe still in a queue

  node_store(node_layout layout, scheduler & s);
  virtual ~node_store() = default;

  slab_pool& nodes() noexcept { return nodes_; }
  const timer_node& timer_in(const void* memory) const noexcept {
    return *reinterpret_cast<const timer_node*>(static_cast<const std::byte*>(memory) +
                                                layout_.timer_at);
  }
  /// Allocates a node. Throws std::bad_alloc.
  void* allocate() {
    void* const memory = nodes_.try_allocate();
    if (memory == nullptr) [[unlikely]]
      throw_bad_alloc();
    return memory;
  }
  bool has(std::uint8_t any) const noexcept {
    return (state_.load(std::memory_order_relaxed) & any) != 0;
  }
  void mark(std::uint8_t flag) noexcept { state_.fetch_or(flag, std::memory_order_relaxed); }
  /// Returns whether there are strays among the dead, and clears the mark. Acquire: a thread that
  /// sees the mark finds the stray on the list.
  bool take_marks() noexcept {
    const auto before = state_.fetch_and(std::uint8_t(~has_dead), std::memory_order_acquire);
    return (before & has_strays) != 0;
  }

  void close_store() noexcept;
  /// Calls `f` for each node in use, including one that another thread is about to free.
  void for_each_live(void (*f)(timer_node&) noexcept) noexcept;
  /// Deletes the store, and then `keep`, now or when the last node is freed; if `hold`, not before
  /// let_go().
  void end_store(std::shared_ptr<void> keep, bool hold) noexcept;
  void halt_store() noexcept;

 private:
  struct pool : slab_pool {
    pool(std::size_t size, node_store* s) : slab_pool(size), of(s) {}
    node_store* const of;
  };

  [[noreturn]] static void throw_ended();
  [[noreturn]] static void throw_bad_alloc();
  void free_late(void* memory) noexcept;
  void count_left() noexcept;
  void delete_all() noexcept;

  const node_layout layout_;
  pool nodes_;
  scheduler& scheduler_;
  std::atomic<std::uint8_t> state_{0};
  /// The nodes in use after the end. Guarded by the lock shared by all stores.
  static constexpr std::size_t not_counted = SIZE_MAX;
  std::size_t left_{not_counted};
  bool all_seen_{false};
  bool held_{false};
  std::thread::id halted_by_;  ///< written before is_halted is set
  std::shared_ptr<void> keep_;
};

}  // namespace verge::detail
