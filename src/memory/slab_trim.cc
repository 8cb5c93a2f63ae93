// SPDX-License-Identifier: Apache-2.0

// How a pool gives memory back.
//
// A chunk of 2 MiB can be given back when all of its nodes are in the depot. The depot is a stack
// of indices without order, so those of one chunk are anywhere in it:
//
//   choose     the chunks that were free all the time since the last trim, less a reserve, are
//              marked as leaving. From then on a node of them is not taken from the depot.
//   clear      the depot is scanned once, a piece at a time, and the indices of leaving chunks are
//              dropped: what is on top fills the gap. Threads that use the depot meanwhile work
//              on its top. What they put there is not leaving, since a leaving chunk has no node
//              outside of the depot; so all that lies below the place reached stays clear.
//   give back  the last version of the chunk is noted, and the system takes its pages.
//
// A chunk's segment of the depot lies in the chunk. If the depot reaches into it, only the nodes
// are given back, otherwise everything, and the mark of the owner is written again. The mutex is
// held for that. (A thread that computes the owner or the index of a node has a node in use there,
// so its chunk is not leaving.)

#include <memory/slab_pool.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

namespace verge::detail {

namespace {

constexpr std::size_t page = 4096;
/// How many indices are looked at under one lock: some 10 us.
constexpr std::size_t indices_at_once = 4096;

}  // namespace

std::uint32_t& slab_pool::depot(std::size_t at) const noexcept {
  return depot_segment(at / per_chunk_)[at % per_chunk_];
}

/// The node has been put into the depot.
void slab_pool::count_free(std::uint32_t index) noexcept {
  if (++tables_->free_in[index >> place_bits] == per_chunk_) ++whole_;
}

/// The node is being taken out of the depot. False if it must not be used: its chunk leaves.
bool slab_pool::take_free(std::uint32_t index) noexcept {
  const std::uint32_t number = index >> place_bits;
  const bool here = tables_->where[number] == presence::here;
  if (tables_->free_in[number]-- == per_chunk_ && here) {
    --whole_;
    least_whole_ = std::min(least_whole_, whole_);
  }
  return here;
}

/// Takes a chunk that was given back into use again. False if there is none.
bool slab_pool::take_back() noexcept {
  if (given_back_ == 0) return false;
  std::size_t number = 0;
  while (tables_->where[number] != presence::given_back) ++number;
  tables_->where[number] = presence::here;
  --given_back_;
  pages_.prefer_huge_pages(tables_->chunks[number].load(std::memory_order_relaxed), chunk_bytes,
                           true);
  again_ = number;
  again_carved_ = 0;
  return true;
}

bool slab_pool::can_trim() const noexcept {
  const std::lock_guard lock(mutex_);
  return whole_ > 1 || chunks_held() > small || ahead_ != nullptr;
}

std::size_t slab_pool::trim() noexcept {
  drop_ahead_if_old();
  const std::size_t count = choose_leaving();
  if (count == 0) return 0;
  clear_depot_of_leaving();
  // Only this thread changes a chunk to leaving, and from leaving.
  std::size_t number = 0;
  for (std::size_t done = 0; done < count; ++done) {
    {
      const std::lock_guard lock(mutex_);
      while (tables_->where[number] != presence::leaving) ++number;
    }
    give_back(number);
  }
  return count;
}

/// Marks what is to be given back. Returns how many chunks that are.
std::size_t slab_pool::choose_leaving() noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t free_since = std::exchange(least_whole_, whole_);
  const std::size_t away = given_back_ * per_chunk_ + (per_chunk_ - again_carved_);
  const std::size_t used = carved_ - std::min(carved_, top_ + away);
  const std::size_t reserve = used / per_chunk_ / 8 + 1;
  if (free_since <= reserve) return 0;
  std::size_t left = free_since - reserve;
  // The last ones first: the first segments of the depot are needed longest.
  for (std::size_t number = chunk_count_; left != 0 && number-- > 1;) {
    if (tables_->free_in[number] != per_chunk_) continue;
    tables_->where[number] = presence::leaving;
    --whole_;
    --left;
  }
  least_whole_ = whole_;
  return free_since - reserve - left;
}

void slab_pool::clear_depot_of_leaving() noexcept {
  for (std::size_t at = 0;;) {
    const std::lock_guard lock(mutex_);
    for (std::size_t n = 0; n < indices_at_once && at < top_; ++n) {
      std::uint32_t& index = depot(at);
      if (tables_->where[index >> place_bits] != presence::leaving) {
        ++at;
        continue;
      }
      --tables_->free_in[index >> place_bits];
      index = depot(--top_);  // may be leaving as well: it is looked at next
    }
    if (at >= top_) return;
  }
}

void slab_pool::give_back(std::size_t number) noexcept {
  std::byte* const start = tables_->chunks[number].load(std::memory_order_relaxed);
  std::uint32_t last = 0;
  for (std::uint32_t place = 0; place < per_chunk_; ++place) {
    last = std::max(last, version(at(static_cast<std::uint32_t>(number << place_bits) | place)));
  }
  const std::lock_guard lock(mutex_);
  pages_.prefer_huge_pages(start, chunk_bytes, false);
  if (top_ <= number * per_chunk_) {
    pages_.discard(start, chunk_bytes);
    ::new (const_cast<std::byte*>(place_of_owner(start)))
        chunk{this, static_cast<std::uint32_t>(number)};
  } else {
    const std::size_t nodes = (first_node_ + page - 1) / page * page;
    pages_.discard(start + nodes, chunk_bytes - nodes);
  }
  tables_->begins_after[number] = last;
  tables_->where[number] = presence::given_back;
  ++given_back_;
}

}  // namespace verge::detail
