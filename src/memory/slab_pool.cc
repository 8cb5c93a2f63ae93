// SPDX-License-Identifier: Apache-2.0

#include <base/fence.h>
#include <memory/slab_pool.h>
#include <verge/detail/lock.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include <base/log.h>

namespace verge::detail {
namespace {

constexpr std::size_t max_size = 4096;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

[[noreturn]] void freed_twice(const slab_pool* pool, const void* node) {
  log(log_level::fatal,
      "slab_pool %p: free of node %p (index %u, version %u), which is free already; it was freed "
      "twice, or the pointer is wrong",
      static_cast<const void*>(pool), node, slab_pool::index(node), slab_pool::version(node));
  std::abort();
}

}  // namespace

slab_pool::slab_pool(std::size_t size, std::size_t alignment, construct_fn construct,
                     page_source& pages)
    : pages_(pages), construct_(construct) {
  if (size > max_size) {
    throw std::invalid_argument("verge::slab_pool: nodes of " + std::to_string(size) +
                                " bytes; the largest are of " + std::to_string(max_size));
  }
  if (!std::has_single_bit(alignment) || alignment > line) {
    throw std::invalid_argument("verge::slab_pool: an alignment of " + std::to_string(alignment) +
                                "; it must be a power of two up to 64");
  }
  const std::size_t contents = std::max(alignment, header_bytes);  // their offset in a node
  const std::size_t stride = round_up(contents + size, std::max<std::size_t>(alignment, 16));

  // As many as fit together with their depot segment, limited by the number of indices.
  std::size_t count = (chunk_bytes - owner_lines * line) / (stride + sizeof(std::uint32_t));
  count = std::min(count, std::size_t{1} << place_bits);
  const auto nodes_at = [](std::size_t n) {
    return round_up(owner_lines * line + n * sizeof(std::uint32_t), line);
  };
  while (nodes_at(count) + count * stride > chunk_bytes) --count;

  stride_ = static_cast<std::uint32_t>(stride);
  per_chunk_ = static_cast<std::uint32_t>(count);
  again_carved_ = count;
  stride_inverse_ = static_cast<std::uint32_t>((std::uint64_t{1} << 32) / stride + 1);
  first_node_ = static_cast<std::uint32_t>(nodes_at(count) + contents);
  static_assert(sizeof(chunk) <= line);

  tables_ = static_cast<tables*>(pages_.map(sizeof(tables), line));
  if (tables_ == nullptr) throw std::bad_alloc();
}

slab_pool::~slab_pool() {
  for (std::size_t i = 0; i < chunk_count_; ++i) {
    pages_.unmap(tables_->chunks[i].load(std::memory_order_relaxed), chunk_bytes);
  }
  if (ahead_ != nullptr) pages_.unmap(ahead_, chunk_bytes);
  pages_.unmap(tables_, sizeof(tables));
}

void* slab_pool::allocate() {
  void* const node = try_allocate();
  if (node == nullptr) throw std::bad_alloc();
  return node;
}

void* slab_pool::allocate_slowly() noexcept {
  const std::uint32_t slot = take_thread_slot();
  if (slot == no_thread_slot) {
    void* node = nullptr;
    return refill(&node, 1) == 0 ? nullptr : begin_life(node);
  }
  cache& c = tables_->caches[slot];
  std::uint32_t count = c.count.load(std::memory_order_relaxed);
  if (count == 0) count = refill(c.nodes, batch_size);
  if (count == 0) return nullptr;
  c.count.store(count - 1, std::memory_order_relaxed);
  return begin_life(c.nodes[count - 1]);
}

void slab_pool::free_slowly(void* node) noexcept {
  auto& version = header_of(node).version;
  const std::uint32_t ended = version.load(std::memory_order_relaxed) + 1;
  if (is_live(ended)) freed_twice(this, node);
  version.store(ended, std::memory_order_release);
  if (ended == last_version) {
    used_up_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::uint32_t slot = take_thread_slot();
  if (slot == no_thread_slot) return spill(&node, 1);
  cache& c = tables_->caches[slot];
  std::uint32_t count = c.count.load(std::memory_order_relaxed);
  if (count == cache_size) {
    // The older half: the newer half is still in the processor's cache.
    spill(c.nodes, batch_size);
    std::copy(c.nodes + batch_size, c.nodes + cache_size, c.nodes);
    count -= batch_size;
  }
  c.nodes[count] = node;
  c.count.store(count + 1, std::memory_order_relaxed);
}

// Puts free nodes into `nodes`, to be used from the last one, and returns how many; 0: out of
// memory.
std::uint32_t slab_pool::refill(void** nodes, std::uint32_t wanted) noexcept {
  std::uint32_t indices[batch_size];
  std::uint32_t count = 0;
  std::uint32_t first_new = 0;
  bool fresh = false;
  bool tell = false;
  do {
    const std::lock_guard lock(mutex_);
    count = take_from_depot(indices, wanted);
    fresh = count == 0;
    const bool was_small = chunks_held() <= small;
    if (fresh) count = carve(wanted, first_new, tell);
    tell = tell || (was_small && chunks_held() > small);
  } while (count == 0 && add_chunk());
  if (tell && grown_ != nullptr) grown_(grown_arg_);
  // New memory is accessed only now, without the mutex: the kernel may have to zero a huge page.
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[count - 1 - i] = fresh ? make_node(first_new + i) : at(indices[i]);
  }
  return count;
}

void slab_pool::spill(void* const* nodes, std::uint32_t count) noexcept {
  std::uint32_t indices[batch_size];
  for (std::uint32_t i = 0; i < count; ++i) indices[i] = index(nodes[i]);

  const std::lock_guard lock(mutex_);
  for (std::uint32_t done = 0; done < count;) {
    const auto run = std::min<std::size_t>(count - done, per_chunk_ - top_ % per_chunk_);
    std::copy_n(indices + done, run, depot_segment(top_ / per_chunk_) + top_ % per_chunk_);
    done += static_cast<std::uint32_t>(run);
    top_ += run;
  }
  for (std::uint32_t i = 0; i < count; ++i) count_free(indices[i]);
}

std::uint32_t slab_pool::take_from_depot(std::uint32_t* indices, std::uint32_t wanted) noexcept {
  std::uint32_t count = 0;
  while (count < wanted && top_ != 0) {
    const std::size_t in_segment = (top_ - 1) % per_chunk_ + 1;
    const auto run = std::min<std::size_t>(wanted - count, in_segment);
    const std::uint32_t* const end = depot_segment((top_ - 1) / per_chunk_) + in_segment;
    for (const std::uint32_t* at = end - run; at != end; ++at) {
      if (take_free(*at)) indices[count++] = *at;
    }
    top_ -= run;
  }
  return count;
}

// Takes up to `wanted` nodes that were never used, or not since their chunk was given back, all
// from one chunk; 0: there is no chunk ahead. `ask`: the next one should be prepared.
std::uint32_t slab_pool::carve(std::uint32_t wanted, std::uint32_t& first, bool& ask) noexcept {
  const bool again = again_carved_ != per_chunk_ || take_back();
  if (!again && all_carved() && !take_ahead()) return 0;
  const std::size_t number = again ? again_ : carved_ / per_chunk_;
  const std::size_t place = again ? again_carved_ : carved_ % per_chunk_;
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(wanted, per_chunk_ - place));
  first = static_cast<std::uint32_t>(number << place_bits | place);
  (again ? again_carved_ : carved_) += count;
  if (should_ask(per_chunk_ - place - count)) {
    asked_.store(true, std::memory_order_relaxed);
    ask = true;
  }
  return count;
}

// In a new chunk the version is zero already. The number in the note keeps what still refers to the
// node by its last notes from matching the next ones.
void* slab_pool::make_node(std::uint32_t index) noexcept {
  void* const node = at(index);
  const std::uint32_t before = tables_->begins_after[index >> place_bits];
  if (before != 0) {
    header_of(node).version.store(before, std::memory_order_relaxed);
    header_of(node).note.store(before * 5, std::memory_order_relaxed);
  }
  if (construct_ != nullptr) construct_(node);
  return node;
}

std::uint32_t* slab_pool::depot_segment(std::size_t chunk_number) const noexcept {
  std::byte* const start = tables_->chunks[chunk_number].load(std::memory_order_relaxed);
  return reinterpret_cast<std::uint32_t*>(start + owner_lines * line);
}

void* slab_pool::find(slab_id id) const noexcept {
  const bool there =
      tables_->chunks[id.index >> place_bits].load(std::memory_order_acquire) != nullptr &&
      (id.index & ((1U << place_bits) - 1)) < per_chunk_;
  if (!there || !is_live(id.version)) return nullptr;
  void* const node = at(id.index);
  return version(node) == id.version ? node : nullptr;
}

std::size_t slab_pool::nodes_carved() const noexcept {
  const std::lock_guard lock(mutex_);
  return carved_;
}

bool slab_pool::wait_for_visits() const noexcept {
  if (!fence_all_threads()) return false;
  const auto wait_while = [](const std::atomic<std::uint32_t>& mark) {
    backoff patience;
    while (mark.load(std::memory_order_acquire) != 0) patience.wait();
  };
  for (std::uint32_t slot = 0; slot < thread_slots_used(); ++slot) {
    wait_while(tables_->caches[slot].visits);
  }
  wait_while(slotless_);
  return true;
}

slab_stats slab_pool::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t cached = 0;
  for (std::uint32_t slot = 0; slot < thread_slots_used(); ++slot) {
    cached += tables_->caches[slot].count.load(std::memory_order_acquire);
  }
  slab_stats s;
  s.bytes_reserved = sizeof(tables) + (chunk_count_ + (ahead_ != nullptr ? 1 : 0)) * chunk_bytes;
  s.nodes_total = chunk_count_ * per_chunk_;
  s.nodes_used_up = used_up_.load(std::memory_order_relaxed);
  s.bytes_held = s.bytes_reserved - given_back_ * chunk_bytes;
  // Nodes being moved between a cache and the depot are counted in neither or in both.
  const std::size_t away = given_back_ * per_chunk_ + (per_chunk_ - again_carved_);
  s.nodes_live = carved_ - std::min(carved_, top_ + cached + s.nodes_used_up + away);
  s.nodes_free = s.nodes_total - std::min(s.nodes_total, s.nodes_live + s.nodes_used_up);
  return s;
}

}  // namespace verge::detail
