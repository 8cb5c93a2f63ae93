// slab_pool: memory for nodes of one size, that stays what it is.
//
// What for. A timer's node is freed by one thread while another still has its address, in a queue
// entry or a handle. In a pool that address stays good: memory is never given back while the pool
// lives, and a node is only ever reused as the same kind of node. So whoever has an old address may
// look, and learns from the node's version that it is not the one that was meant.
//
// Promises
//   - Any thread may allocate and free, also what another allocated. With warm caches either takes
//     a few nanoseconds, no lock and no atomic read-modify-write.
//   - The pool never writes to a node but for its version, neither when it is free nor when it is
//     handed out again: a node keeps its last contents. What is constructed in it is constructed
//     once, before it is first handed out.
//   - A version is odd while the node is in use, even while it is free, and goes up by one each
//     time. It never comes round: a node that has used up its 2^31 lives is never used again.
//   - A node's address leads to its pool (owner) and to its index without either in the node. The
//     four bytes beside the version are the user's (note), from one life of the node to the next.
//   - Out of memory: allocate() throws std::bad_alloc, try_allocate() returns nullptr; the pool is
//     as it was.
//   - A pool of few nodes is small: pages are touched as nodes are first used. From the second
//     2 MiB on it asks for huge pages, so that a million nodes cost no TLB misses.
//
// How. Memory comes in chunks of 2 MiB, on multiples of 2 MiB:
//
//     | owner ... |  depot segment: n x 4 bytes  | node 0 | node 1 | ... | node n-1 |
//                                                   |
//                                         | version, note | contents ... |
//
// The owner is on one of the first 64 lines, which one the chunk's address says: were it the same
// in all, the lines of all chunks would fall into one set of a cache and push each other out.
//
// Each thread has a cache of addresses in each pool, at its thread_slot. It is filled from, and
// spills into, the pool's depot, half a cache at a time. The depot is a stack of the indices of
// free nodes; it lies in the chunks, a piece in each, and has room for all of the chunk's nodes, so
// freeing needs no memory. Nodes are not linked: to refill a cache touches no node.
//
// Ground rules
//   - A cache's `nodes` belong to the thread whose slot it is; its `count` is written by it, and
//     read by stats() of others.
//   - mutex_ guards the depot (top_ and the segments), the carving (carved_) and the adding of
//     chunks. The table of chunks is written under it and read without.
//   - A node's version is written by whoever has the node: its user, who frees it, or the thread
//     that takes it out of its cache. Anybody may read it. A node is handed from one to the next by
//     the user (who must order his last use before the free, as with any allocator), by the cache
//     (one thread), by the mutex (depot) or by the slot (a thread that takes over a cache).
//   - Looking at a node that may have been freed: load the field, atomically and with acquire, then
//     compare the version. If it still is the one that was meant, the field is that life's. This
//     holds if the field is only ever stored with release: the new life's store comes after the new
//     version, so who sees the one sees the other.
//   - The pool may be destroyed when no other thread is in one of its functions any more. Caches
//     are part of the pool: threads need not know. To find that out, those who might be in the way
//     make a visit, and the one who ends it all waits for the visits that are under way.
#pragma once

#include <memory/page_source.h>
#include <memory/thread_slot.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace verge::detail {

/// One life of one node, as whoever wants to find it again remembers it.
template <class T>
struct slab_ref {
  T* node = nullptr;
  std::uint32_t version = 0;

  friend bool operator==(const slab_ref&, const slab_ref&) = default;
};

/// The same in 8 bytes, for one who knows the pool.
struct slab_id {
  std::uint32_t index = 0;
  std::uint32_t version = 0;

  friend bool operator==(const slab_id&, const slab_id&) = default;
};

/// Exact while no thread is in the pool's functions, else close.
struct slab_stats {
  std::size_t bytes_reserved = 0;  // addresses; untouched pages among them take no memory
  std::size_t nodes_total = 0;     // that there is room for
  std::size_t nodes_live = 0;      // in use
  std::size_t nodes_free = 0;      // that can be had without more memory
  std::size_t nodes_used_up = 0;   // that have had all their lives
};

class slab_pool {
 public:
  static constexpr std::size_t chunk_bytes = std::size_t{2} << 20;
  static constexpr std::size_t header_bytes = 8;

  /// Makes a node from zeroed memory, once.
  using construct_fn = void (*)(void* node) noexcept;

  /// For nodes of `size` bytes. A version takes 8 bytes more, and the sum is rounded up to a
  /// multiple of 16: contents of 56 bytes fill a cache line, and start 8 bytes into it. Throws
  /// std::bad_alloc, and std::invalid_argument if `size` is more than 4096 or `alignment` is not a
  /// power of two up to 64.
  explicit slab_pool(std::size_t size, std::size_t alignment = header_bytes,
                     construct_fn construct = nullptr, page_source& pages = system_pages());
  slab_pool(const slab_pool&) = delete;
  slab_pool& operator=(const slab_pool&) = delete;

  /// Gives all memory back, nodes in use or not.
  ~slab_pool();

  void* allocate();
  void* try_allocate() noexcept;
  void free(void* node) noexcept;

  /// Their fast path, for callers that know their thread_slot(): only the cache of the slot is
  /// used. nullptr, or false, if there is no such slot, or its cache is empty, or full.
  void* allocate_from_cache(std::uint32_t slot) noexcept;
  bool free_to_cache(void* node, std::uint32_t slot) noexcept;

  /// These take any node that was ever handed out by a pool that is still there, free or not.
  static slab_pool& owner(const void* node) noexcept;
  static std::uint32_t version(const void* node) noexcept;
  static std::uint32_t index(const void* node) noexcept;
  /// Zero when the node is first handed out; the pool never touches it.
  static std::atomic<std::uint32_t>& note(const void* node) noexcept {
    return header_of(node).note;
  }
  static constexpr bool is_live(std::uint32_t version) noexcept { return version % 2 != 0; }

  /// The node with that index: any that was ever handed out.
  void* at(std::uint32_t index) const noexcept;

  /// The node of that life if it still lasts, else nullptr. Takes any numbers.
  void* find(slab_id id) const noexcept;

  slab_stats stats() const noexcept;

  /// Calls f(void*) for every node that is in use. Nodes may be freed meanwhile, so f may be given
  /// one that is free by then; none may be allocated.
  template <class F>
  void for_each_live(F&& f) const {
    std::size_t left = nodes_carved();
    for (std::uint32_t chunk_number = 0; left != 0; ++chunk_number) {
      const auto n = static_cast<std::uint32_t>(std::min<std::size_t>(left, per_chunk_));
      for (std::uint32_t place = 0; place < n; ++place) {
        void* const node = at(chunk_number << place_bits | place);
        if (is_live(version(node))) f(node);
      }
      left -= n;
    }
  }

  /// The calling thread is about to look whether the pool is to be ended, and if not, to use it.
  /// Costs two stores: the fence between the first and the look is left to the one who ends the
  /// pool. First that one says that the pool is to be ended, where visitors look; then he calls
  /// wait_for_visits(). Visits do not nest, and wait for nothing.
  class visit {
   public:
    visit(slab_pool& pool, std::uint32_t slot) noexcept
        : mark_(slot < thread_slot_count ? pool.tables_->caches[slot].visits : pool.slotless_),
          shared_(slot >= thread_slot_count) {
      if (shared_) [[unlikely]] {
        mark_.fetch_add(1, std::memory_order_seq_cst);
      } else {
        mark_.store(1, std::memory_order_relaxed);
      }
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    ~visit() {
      // Release: what was done to the pool comes before its end.
      if (shared_) [[unlikely]] {
        mark_.fetch_sub(1, std::memory_order_release);
      } else {
        mark_.store(0, std::memory_order_release);
      }
    }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;

   private:
    std::atomic<std::uint32_t>& mark_;
    const bool shared_;
  };
  /// Returns when all visits that do not know of the end are over. False if that cannot be found
  /// out on this system: then the pool must stay.
  bool wait_for_visits() const noexcept;

  /// How many bytes apart nodes are.
  std::size_t stride() const noexcept { return stride_; }

 private:
  friend struct slab_pool_access;  // tests

  struct header {
    std::atomic<std::uint32_t> version;
    std::atomic<std::uint32_t> note;
  };
  static_assert(sizeof(header) == header_bytes);

  struct chunk {
    slab_pool* owner;
    std::uint32_t number;
  };
  static constexpr std::size_t line = 64;
  static constexpr std::size_t owner_lines = 64;

  static constexpr std::uint32_t cache_size = 127;
  static constexpr std::uint32_t batch_size = 64;

  struct alignas(64) cache {
    std::atomic<std::uint32_t> count;   // stats() is all that reads it from elsewhere
    std::atomic<std::uint32_t> visits;  // whether its thread makes a visit
    void* nodes[cache_size];
  };
  static_assert(sizeof(cache) == 1024, "found from a slot by a shift");

  static constexpr unsigned place_bits = 16;  // an index: chunk number above, place in it below
  static constexpr std::size_t max_chunks = std::size_t{1} << (32 - place_bits);
  static constexpr std::uint32_t last_version = UINT32_MAX - 1;  // even: free, for ever

  // Zeroed pages as they were mapped, which is right for all in them: what is not used takes no
  // memory.
  struct tables {
    cache caches[thread_slot_count];
    std::atomic<std::byte*> chunks[max_chunks];  // released when there, acquired by find()
  };

  /// Of any address in it.
  static const chunk& chunk_of(const void* node) noexcept {
    const auto into_chunk = reinterpret_cast<std::uintptr_t>(node) % chunk_bytes;
    return *reinterpret_cast<const chunk*>(
        place_of_owner(static_cast<const std::byte*>(node) - into_chunk));
  }
  static const std::byte* place_of_owner(const std::byte* start) noexcept {
    return start + reinterpret_cast<std::uintptr_t>(start) / chunk_bytes % owner_lines * line;
  }

  static header& header_of(const void* node) noexcept {
    auto* const contents = static_cast<std::byte*>(const_cast<void*>(node));
    return *reinterpret_cast<header*>(contents - header_bytes);
  }

  // The next life. Relaxed: see the ground rules, the user's own stores publish it.
  static void* begin_life(void* node) noexcept {
    auto& version = header_of(node).version;
    version.store(version.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return node;
  }

  std::size_t nodes_carved() const noexcept;
  std::uint32_t* depot_segment(std::size_t chunk_number) const noexcept;
  void* allocate_slowly() noexcept;
  void free_slowly(void* node) noexcept;
  std::uint32_t refill(void** nodes, std::uint32_t wanted) noexcept;
  void spill(void* const* nodes, std::uint32_t count) noexcept;
  std::uint32_t take_from_depot(std::uint32_t* indices, std::uint32_t wanted) noexcept;
  std::uint32_t carve(std::uint32_t wanted, std::uint32_t& first) noexcept;
  bool add_chunk() noexcept;
  void* make_node(std::uint32_t index) noexcept;

  // Fixed when constructed.
  tables* tables_;
  page_source& pages_;
  construct_fn construct_;
  std::uint32_t stride_;
  std::uint32_t first_node_;  // where in a chunk the first node's contents are
  std::uint32_t per_chunk_;
  std::uint32_t stride_inverse_;            // 2^32 / stride_, rounded up: to divide by multiplying
  std::atomic<std::size_t> used_up_{0};     // not fixed, but next to never written
  std::atomic<std::uint32_t> slotless_{0};  // visits of threads that have no slot

  // A line of its own: written whenever a cache is filled or spills.
  alignas(64) mutable std::mutex mutex_;
  std::size_t chunk_count_ = 0;
  std::size_t carved_ = 0;  // how many nodes were ever made, in the order of their indices
  std::size_t top_ = 0;     // how many indices the depot holds
};

inline void* slab_pool::allocate_from_cache(std::uint32_t slot) noexcept {
  if (slot >= thread_slot_count) [[unlikely]]
    return nullptr;
  cache& c = tables_->caches[slot];
  const std::uint32_t count = c.count.load(std::memory_order_relaxed);
  if (count == 0) [[unlikely]]
    return nullptr;
  c.count.store(count - 1, std::memory_order_relaxed);
  return begin_life(c.nodes[count - 1]);
}

inline void* slab_pool::try_allocate() noexcept {
  void* const node = allocate_from_cache(thread_slot());
  return node != nullptr ? node : allocate_slowly();
}

inline bool slab_pool::free_to_cache(void* node, std::uint32_t slot) noexcept {
  auto& version = header_of(node).version;
  const std::uint32_t ended = version.load(std::memory_order_relaxed) + 1;
  if (is_live(ended) || ended == last_version || slot >= thread_slot_count) [[unlikely]]
    return false;
  cache& c = tables_->caches[slot];
  const std::uint32_t count = c.count.load(std::memory_order_relaxed);
  if (count == cache_size) [[unlikely]]
    return false;
  // Release: who sees that the life has ended sees all of it.
  version.store(ended, std::memory_order_release);
  c.nodes[count] = node;
  // Release: it may be the last that is done to the pool, and decide about its end.
  c.count.store(count + 1, std::memory_order_release);
  return true;
}

inline void slab_pool::free(void* node) noexcept {
  if (!free_to_cache(node, thread_slot())) [[unlikely]]
    free_slowly(node);
}

inline slab_pool& slab_pool::owner(const void* node) noexcept { return *chunk_of(node).owner; }

inline std::uint32_t slab_pool::index(const void* node) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(node);
  const chunk& c = chunk_of(node);
  const std::uint64_t offset = (address & (chunk_bytes - 1)) - c.owner->first_node_;
  // Exact: the offset is a multiple of the stride, and the error of the inverse, times the number
  // of nodes before this one, is below 2^28.
  return c.number << place_bits |
         static_cast<std::uint32_t>(offset * c.owner->stride_inverse_ >> 32);
}

// Acquire: what the life that is seen has ended did comes before.
inline std::uint32_t slab_pool::version(const void* node) noexcept {
  return header_of(node).version.load(std::memory_order_acquire);
}

inline void* slab_pool::at(std::uint32_t index) const noexcept {
  std::byte* const start = tables_->chunks[index >> place_bits].load(std::memory_order_relaxed);
  const std::uint32_t place = index & ((1U << place_bits) - 1);
  return start + first_node_ + std::size_t{place} * stride_;
}

}  // namespace verge::detail
