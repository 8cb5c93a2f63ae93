// SPDX-License-Identifier: Apache-2.0
// slab_pool: type-stable memory for nodes of one size.
//
// Why. A timer's node is freed by one thread while another still has its address, in a queue entry
// or a handle. In a pool that address stays valid: it is not unmapped during the pool's lifetime,
// and a node is only reused as a node of the same kind. So a thread with an old address may read
// the node, and its version shows whether it is still the one that was meant.
//
// Promises
//   - Any thread may allocate and free, including nodes that another thread allocated. With warm
//     caches either takes a few nanoseconds, no lock and no atomic read-modify-write.
//   - The pool writes nothing to a node except its version, neither when it is freed nor when it is
//     reused: a node keeps its last contents, except as trim() says. Its contents are constructed
//     once, before it is first allocated.
//   - A version is odd while the node is in use, even while it is free, and is incremented each
//     time. It never wraps around: after 2^31 lives a node is not used again.
//   - A node's pool (owner) and index are computed from its address. The four bytes beside the
//     version belong to the user (note) and persist from one life of the node to the next.
//   - Out of memory: allocate() throws std::bad_alloc, try_allocate() returns nullptr; the pool is
//     unchanged.
//   - trim() gives memory in which nothing is in use back to the system. Its addresses stay valid:
//     a free node there reads as zeros, which is a version that no node in use has. If it is used
//     again, it is constructed anew, and its version continues after all that the chunk has had.
//   - A pool of few nodes is small: pages are accessed as nodes are first used. From the second 2
//     MiB on it requests huge pages, so that a million nodes cost no TLB misses.
//   - prepare() has the next chunk's memory ready when a large pool grows: the kernel takes from a
//     tenth of a millisecond to several for a huge page, and no allocation waits for that.
//
// How. Memory comes in chunks of 2 MiB, on multiples of 2 MiB:
//
//     | owner ... |  depot segment: n x 4 bytes  | node 0 | node 1 | ... | node n-1 |
//                                                   |
//                                         | version, note | contents ... |
//
// The owner is on one of the first 64 lines, chosen by the chunk's address: if it were the same in
// all, the lines of all chunks would map to one cache set and evict each other.
//
// Each thread has a cache of addresses in each pool, at its thread_slot. It is filled from, and
// spills into, the pool's depot, half a cache at a time. The depot is a stack of the indices of
// free nodes. Each chunk has a segment of it with room for all of the chunk's nodes, so freeing
// needs no memory. Nodes are not linked: refilling a cache accesses no node.
//
// Ground rules
//   - Only the thread of the slot accesses a cache's `nodes` and writes its `count`; stats() of
//     other threads reads `count`.
//   - mutex_ guards the depot (top_ and the segments), carving (carved_) and adding chunks. The
//     table of chunks is written under it and read without it. Memory that the kernel has to find
//     first is accessed without it.
//   - A chunk whose nodes are all in the depot can be given back (slab_trim.cc). While it is
//     `leaving` no node of it is taken from the depot, and one that is found there is dropped; then
//     no thread but the trimming one writes to it. Others may read.
//   - Only the node's owner writes its version: the user that frees it, or the thread that takes it
//     out of its cache. Any thread may read it. Ownership is passed on by the user (whose last use
//     must happen before the free, as with any allocator), by the cache (one thread), by the mutex
//     (depot) or by the slot (a thread that takes over a cache).
//   - To read a node that may have been freed: load the field, atomically and with acquire, then
//     compare the version. If it is still the one that was meant, the field belongs to that life.
//     This requires that the field is only stored with release: the new life's store comes after
//     the new version, so a thread that sees the store sees the version.
//   - The pool may be destroyed when no other thread is in one of its functions. Caches are part of
//     the pool, so threads need not release them. Threads that may be in a function make a visit,
//     and the thread that ends the pool waits for the visits in progress.
#pragma once

#include <memory/page_source.h>
#include <memory/thread_slot.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace verge::detail {

/// A reference to one life of a node.
template <class T>
struct slab_ref {
  T* node = nullptr;
  std::uint32_t version = 0;

  friend bool operator==(const slab_ref&, const slab_ref&) = default;
};

/// The same in 8 bytes, for a given pool.
struct slab_id {
  std::uint32_t index = 0;
  std::uint32_t version = 0;

  friend bool operator==(const slab_id&, const slab_id&) = default;
};

/// Exact while no thread is in the pool's functions, otherwise approximate.
struct slab_stats {
  std::size_t bytes_reserved = 0;  // address space; unused pages take no memory
  std::size_t nodes_total = 0;     // capacity
  std::size_t nodes_live = 0;      // in use
  std::size_t nodes_free = 0;      // available without more memory
  std::size_t nodes_used_up = 0;   // out of versions
  std::size_t bytes_held = 0;      // of the address space, what was not given back
};

class slab_pool {
 public:
  static constexpr std::size_t chunk_bytes = std::size_t{2} << 20;
  static constexpr std::size_t header_bytes = 8;

  /// Constructs a node in zeroed memory, once.
  using construct_fn = void (*)(void* node) noexcept;

  /// For nodes of `size` bytes. A version takes 8 bytes more, and the sum is rounded up to a
  /// multiple of 16: contents of 56 bytes fill a cache line, and start 8 bytes into it. Throws
  /// std::bad_alloc, and std::invalid_argument if `size` is more than 4096 or `alignment` is not a
  /// power of two up to 64.
  explicit slab_pool(std::size_t size, std::size_t alignment = header_bytes,
                     construct_fn construct = nullptr, page_source& pages = system_pages());
  slab_pool(const slab_pool&) = delete;
  slab_pool& operator=(const slab_pool&) = delete;

  /// Releases all memory, including nodes in use.
  ~slab_pool();

  void* allocate();
  void* try_allocate() noexcept;
  void free(void* node) noexcept;

  /// The fast path, for callers that have their thread_slot(). They take a few instructions, or do
  /// nothing and return nullptr or false; then use the functions above.
  void* allocate_from_cache(std::uint32_t slot) noexcept;
  bool free_to_cache(void* node, std::uint32_t slot) noexcept;

  /// For any node that a living pool ever allocated, free or not.
  static slab_pool& owner(const void* node) noexcept;
  static std::uint32_t version(const void* node) noexcept;
  static std::uint32_t index(const void* node) noexcept;
  /// Zero when the node is first allocated, and any number when its memory was given back since;
  /// otherwise the pool never accesses it.
  static std::atomic<std::uint32_t>& note(const void* node) noexcept {
    return header_of(node).note;
  }
  static constexpr bool is_live(std::uint32_t version) noexcept { return version % 2 != 0; }

  /// The node with that index, which must have been allocated once.
  void* at(std::uint32_t index) const noexcept;

  /// The node of that life, or nullptr if it has ended. Accepts any id.
  void* find(slab_id id) const noexcept;

  slab_stats stats() const noexcept;

  /// Gives chunks back that have been free altogether since the last call, except for an eighth of
  /// what is in use. Returns how many. From one thread at a time; others may use the pool: they
  /// wait for a few microseconds at most, or for the system to take one chunk. A node that a thread
  /// has in its cache keeps its chunk.
  std::size_t trim() noexcept;
  /// Whether a call of trim() may find something, now or when nodes are freed: not if the pool is
  /// small.
  bool can_trim() const noexcept;
  /// Has the next chunk ready if f (see below) was called for that. Takes as long as the system
  /// does. If it is not used by the second call of trim() that gives it back. From the thread that
  /// calls trim(); a few instructions if there is nothing to do.
  void prepare() noexcept;
  /// Calls f(arg) whenever can_trim() becomes true because the pool has grown, and when prepare()
  /// should be called: once half of a large pool's last chunk is used. f must not use the pool.
  /// Called before other threads use the pool.
  void on_growth(void (*f)(void*) noexcept, void* arg) noexcept {
    grown_ = f;
    grown_arg_ = arg;
  }

  /// Calls f(void*) for every node that is in use. Nodes may be freed concurrently, so f may be
  /// passed a free one; none may be allocated.
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

  /// Calls f(void*) for nodes in use, about `most` of them, evenly spread: 16 in a row, and then
  /// the next ones so far behind that the last are near the end; `seed` decides where it begins.
  /// Returns for how many each of them stands. Nodes may be allocated and freed concurrently, so f
  /// may be passed a free one, and reads nothing but atomics.
  template <class F>
  std::size_t sample_live(std::size_t most, std::uint32_t seed, F&& f) const {
    constexpr std::size_t row = 16;
    const std::size_t carved = nodes_carved();
    const std::size_t step = carved / std::max<std::size_t>(most, 1) + 1;
    for (std::size_t first = seed % step * row; first < carved; first += step * row) {
      for (std::size_t n = first; n < std::min(first + row, carved); ++n) {
        void* const node =
            at(static_cast<std::uint32_t>(n / per_chunk_ << place_bits | n % per_chunk_));
        if (is_live(version(node))) f(node);
      }
    }
    return step;
  }

  /// Brackets a check whether the pool is ending, and its use if it is not. Costs two stores: the
  /// thread that ends the pool pays for the fence between the first store and the check. That
  /// thread first sets the mark that visitors check, then calls wait_for_visits(). Visits do not
  /// nest and do not wait.
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
      // Release: the use of the pool happens before its end.
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
  /// Returns when all visits that have not seen the mark are over. Returns false if this system
  /// cannot tell: then the pool must not be destroyed.
  bool wait_for_visits() const noexcept;

  /// The distance between nodes in bytes.
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
    std::atomic<std::uint32_t> count;   // other threads read it only in stats()
    std::atomic<std::uint32_t> visits;  // whether its thread is in a visit
    void* nodes[cache_size];
  };
  static_assert(sizeof(cache) == 1024, "found from a slot by a shift");

  static constexpr unsigned place_bits = 16;  // an index: high bits chunk, low bits place
  static constexpr std::size_t max_chunks = std::size_t{1} << (32 - place_bits);
  // A pool of so many chunks, 8 MiB, is small: it is not worth a wake-up.
  static constexpr std::size_t small = 4;
  // From so many chunks on, 16 MiB, one that is ready and not in use is little beside the others.
  static constexpr std::size_t large = 8;
  static constexpr std::uint32_t last_version = UINT32_MAX - 1;  // even: free, forever

  enum class presence : std::uint8_t { here, leaving, given_back };

  // Mapped pages, whose zeros are the initial state of all members; unused pages take no memory.
  struct tables {
    cache caches[thread_slot_count];
    std::atomic<std::byte*> chunks[max_chunks];  // stored with release, acquired by find()
    // Guarded by mutex_.
    std::uint32_t free_in[max_chunks];       // how many nodes of a chunk are in the depot
    std::uint32_t begins_after[max_chunks];  // the last version that its nodes have had
    presence where[max_chunks];
  };

  /// The chunk of any address in it.
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

  // Begins the next life. Relaxed: the user's own stores publish it, see the ground rules.
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
  std::uint32_t carve(std::uint32_t wanted, std::uint32_t& first, bool& ask) noexcept;
  void* make_node(std::uint32_t index) noexcept;

  // slab_ahead.cc
  std::byte* new_chunk(bool is_first) noexcept;
  bool add_chunk() noexcept;
  bool take_ahead() noexcept;
  bool all_carved() const noexcept { return carved_ == chunk_count_ * per_chunk_; }
  bool should_ask(std::size_t left_in_chunk) const noexcept;
  void drop_ahead_if_old() noexcept;

  // slab_trim.cc
  std::size_t chunks_held() const noexcept { return chunk_count_ - given_back_; }
  std::uint32_t& depot(std::size_t at) const noexcept;
  void count_free(std::uint32_t index) noexcept;
  bool take_free(std::uint32_t index) noexcept;
  bool take_back() noexcept;
  std::size_t choose_leaving() noexcept;
  void clear_depot_of_leaving() noexcept;
  void give_back(std::size_t chunk_number) noexcept;

  // Constant after construction.
  tables* tables_;
  page_source& pages_;
  construct_fn construct_;
  void (*grown_)(void*) noexcept = nullptr;
  void* grown_arg_ = nullptr;
  std::uint32_t stride_;
  std::uint32_t first_node_;  // offset in a chunk of the first node's contents
  std::uint32_t per_chunk_;
  std::uint32_t stride_inverse_;            // 2^32 / stride_, rounded up: to divide by multiplying
  std::atomic<std::size_t> used_up_{0};     // not constant, but rarely written
  std::atomic<std::uint32_t> slotless_{0};  // visits of threads without a slot

  // A separate line: written whenever a cache is filled or spills.
  alignas(64) mutable std::mutex mutex_;
  std::size_t chunk_count_ = 0;
  std::size_t carved_ = 0;       // nodes ever constructed, in index order
  std::size_t top_ = 0;          // number of indices in the depot
  std::size_t whole_ = 0;        // chunks that are free altogether, and here
  std::size_t least_whole_ = 0;  // the least that it was since the last trim()
  std::size_t given_back_ = 0;   // chunks
  // The chunk that was given back and is carved again, and how much of it has been.
  std::size_t again_ = 0;
  std::size_t again_carved_ = 0;
  // The next chunk, ready or on its way, and whether it was there at the last trim() already.
  std::byte* ahead_ = nullptr;
  bool ahead_is_old_ = false;
  std::atomic<bool> asked_{false};  // for prepare(); read without the mutex, too
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
  // Release: a thread that sees that the life has ended sees all of it.
  version.store(ended, std::memory_order_release);
  c.nodes[count] = node;
  // Release: it may be the last access to the pool, after which the pool is destroyed.
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

// Acquire: everything in a life that is seen to have ended happens before.
inline std::uint32_t slab_pool::version(const void* node) noexcept {
  return header_of(node).version.load(std::memory_order_acquire);
}

inline void* slab_pool::at(std::uint32_t index) const noexcept {
  std::byte* const start = tables_->chunks[index >> place_bits].load(std::memory_order_relaxed);
  const std::uint32_t place = index & ((1U << place_bits) - 1);
  return start + first_node_ + std::size_t{place} * stride_;
}

}  // namespace verge::detail
