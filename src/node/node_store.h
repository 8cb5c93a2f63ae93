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

/// The memory of a runtime's timers, below every engine: where nodes come from, what the last
/// reference to one does, and how long all of it lives.
///
/// A node's store is found from the node's address, so a handle is one pointer. A store outlives
/// its runtime for as long as there are handles to its timers: they can be stopped and destroyed as
/// before, and only refuse to be started again. A thread that starts a timer just as the runtime
/// ends has a timer that does not fire.
///
/// Ground rules for its end, which may meet any other thread in the middle of stopping, resetting
/// or destroying a timer
///  - A thread that operates on a timer has a reference on its node, and nothing is destroyed while
///    a node is in use: neither the store and what derives from it, nor what the engine's host is
///    part of (`keep_`). All that needs care is the last thing that is done to a node, which is to
///    free it.
///  - To free a node is a visit to the pool, in which the thread looks whether the store closes. If
///    it does not, nothing of it is touched after the visit. If it does, the node is freed under a
///    lock that all stores share, and counted.
///  - close_store() says so first, and waits for visits that may not have seen it. From then on
///    nodes are freed under the lock, so end_store() knows how many are left; the thread that frees
///    the last one deletes the store.
///  - fast_path::end() is no visit, for that would cost a tenth of what it takes to end a timer. A
///    thread that found the engine usable just before the store closed is the exception to the
///    above: its node counts as in use until its last step, so nothing is destroyed under it; and
///    since there is at most one such node per thread, the last few are counted anew each time.
///    (Should that thread be the very last, the store stays.)
namespace verge::detail {

/// How an engine lays out its nodes: their size, and where in one the timer is.
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

  /// Asks for the engine's part of a node, before the rest of it is looked at.
  void fetch(const timer_node& t) const noexcept {
    __builtin_prefetch(reinterpret_cast<const std::byte*>(&t) - layout_.timer_at, 1);
  }
  /// Gives a node back whose payload has been destroyed.
  void free(timer_node & t) noexcept {
    void* const memory = reinterpret_cast<std::byte*>(&t) - layout_.timer_at;
    {
      const slab_pool::visit here(nodes_, thread_slot());
      if (!closing()) [[likely]]
        return nodes_.free(memory);
    }
    free_late(memory);
  }
  /// Destroys the payload of a node without references, and gives the node back.
  void bury(timer_node & t) noexcept {
    if (auto* destroy = t.does.load(std::memory_order_acquire)->destroy) destroy(t);
    free(t);
  }
  /// Drops a reference.
  void release(timer_node & t) noexcept {
    if (t.refs.fetch_sub(1, std::memory_order_acq_rel) == 1) bury(t);
  }
  /// The engine was the last to know a timer, and its payload is to be destroyed.
  void leave_dead() noexcept { state_.fetch_or(has_dead, std::memory_order_release); }

  scheduler& home() noexcept { return scheduler_; }
  slab_stats memory() const noexcept { return nodes_.stats(); }

  bool closing() const noexcept { return has(is_closing); }
  bool ended() const noexcept { return has(has_ended); }
  bool forked() const noexcept { return has(is_forked); }
  /// Whether a handle that is destroyed here and now is to leave all as it is: after a fork locks
  /// may be held by threads that do not exist in this process; and the thread that ends the program
  /// must not wait for a callback that may never end.
  bool given_up() const noexcept;
  void refuse_if_ended() const {
    if (ended()) [[unlikely]]
      throw_ended();
  }

  void let_go() noexcept;
  /// The lock that all stores share, for a fork: it must be free in the child.
  static std::mutex& lock_of_all() noexcept;

 protected:
  static constexpr std::uint8_t has_ended = 1;
  static constexpr std::uint8_t is_forked = 2;
  static constexpr std::uint8_t is_halted = 4;
  static constexpr std::uint8_t is_closing = 8;
  static constexpr std::uint8_t has_dead = 16;
  static constexpr std::uint8_t has_strays = 32;  ///< stopped, but a queue may know them

  node_store(node_layout layout, scheduler & s);
  virtual ~node_store() = default;

  slab_pool& nodes() noexcept { return nodes_; }
  /// Memory for a node. Throws std::bad_alloc.
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
  /// Whether there are strays, of the dead that are forgotten by this. Acquire: the thread that is
  /// told of one finds it on the list.
  bool take_marks() noexcept {
    const auto before = state_.fetch_and(std::uint8_t(~has_dead), std::memory_order_acquire);
    return (before & has_strays) != 0;
  }

  void close_store() noexcept;
  /// Calls `f` for each node in use, also for one that another thread is about to free.
  void for_each_live(void (*f)(timer_node&) noexcept) noexcept;
  /// Deletes the store now, or when the last node is freed, and `keep` after it. If `hold`, not
  /// before let_go() either.
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
  /// Nodes that are in use, once it has ended. Under the lock of those that come late.
  static constexpr std::size_t not_counted = SIZE_MAX;
  std::size_t left_{not_counted};
  bool all_seen_{false};
  bool held_{false};
  std::thread::id halted_by_;  ///< before is_halted is set
  std::shared_ptr<void> keep_;
};

}  // namespace verge::detail
