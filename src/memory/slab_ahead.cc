// SPDX-License-Identifier: Apache-2.0

// How a pool gets new chunks, and has one ready ahead of need.
//
// The first access to a chunk makes the kernel find and clear a huge page: a tenth of a
// millisecond, and several on a machine that has to make room first or whose memory a host
// provides. So no thread does that with the mutex held, and no thread that allocates should have to
// do it:
//
//   ask       the thread that takes the last of a chunk's first half, while there is none ahead,
//             leaves a word and has another thread woken (on_growth)
//   prepare   that thread maps a chunk, has the kernel find its first page, and puts it ahead
//   take      a thread that finds the last chunk used up takes the one ahead. If there is none it
//             makes one itself, and puts it ahead like the other; if both do, one is unmapped
//   drop      what is still ahead at the second trim() is unmapped: the pool does not grow any more
//
// Only a chunk that is ahead may be unmapped: none of its addresses is known yet.

#include <memory/slab_pool.h>

#include <mutex>
#include <new>
#include <utility>

namespace verge::detail {

/// A chunk whose memory is there if it is a huge page; small ones come quickly. The first chunk
/// must stay small: a huge page would take 2 MiB on first access.
std::byte* slab_pool::new_chunk(bool is_first) noexcept {
  auto* const start = static_cast<std::byte*>(pages_.map(chunk_bytes, chunk_bytes));
  if (start == nullptr) return nullptr;
  pages_.prefer_huge_pages(start, chunk_bytes, !is_first);
  ::new (const_cast<std::byte*>(place_of_owner(start))) chunk{this, 0};
  return start;
}

/// Puts a chunk ahead, unless another thread has meanwhile. False if there is no memory.
bool slab_pool::add_chunk() noexcept {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    if (chunk_count_ == max_chunks) return false;
    if (ahead_ != nullptr) return true;
    is_first = chunk_count_ == 0;
  }
  std::byte* start = new_chunk(is_first);
  if (start == nullptr) return false;
  {
    const std::lock_guard lock(mutex_);
    const bool wanted = asked_.load(std::memory_order_relaxed) || all_carved();
    if (ahead_ == nullptr && wanted) {
      ahead_ = std::exchange(start, nullptr);
      ahead_is_old_ = false;
    }
  }
  if (start != nullptr) pages_.unmap(start, chunk_bytes);  // another thread was faster
  return true;
}

/// Takes the chunk that is ahead into use. False if there is none.
bool slab_pool::take_ahead() noexcept {
  if (ahead_ == nullptr || chunk_count_ == max_chunks) return false;
  std::byte* const start = std::exchange(ahead_, nullptr);
  ::new (const_cast<std::byte*>(place_of_owner(start)))
      chunk{this, static_cast<std::uint32_t>(chunk_count_)};
  if (chunk_count_ == 1) {
    pages_.prefer_huge_pages(tables_->chunks[0].load(std::memory_order_relaxed), chunk_bytes, true);
  }
  tables_->chunks[chunk_count_].store(start, std::memory_order_release);
  ++chunk_count_;
  return true;
}

/// Whether the next chunk should be prepared, with so many nodes left in the one that is carved.
bool slab_pool::should_ask(std::size_t left_in_chunk) const noexcept {
  return left_in_chunk < per_chunk_ / 2 && chunk_count_ >= large && given_back_ == 0 &&
         ahead_ == nullptr && !asked_.load(std::memory_order_relaxed);
}

void slab_pool::prepare() noexcept {
  if (!asked_.load(std::memory_order_relaxed)) return;
  add_chunk();
  const std::lock_guard lock(mutex_);
  asked_.store(false, std::memory_order_relaxed);
}

void slab_pool::drop_ahead_if_old() noexcept {
  std::byte* old = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ahead_is_old_, true)) old = std::exchange(ahead_, nullptr);
  }
  if (old != nullptr) pages_.unmap(old, chunk_bytes);
}

}  // namespace verge::detail
