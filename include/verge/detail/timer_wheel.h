#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include <verge/detail/quad_heap.h>

#pragma GCC visibility push(default)

/// timer_wheel: where timers wait - a wheel for what is far, a 4-ary heap for what is near.
///
///   when - now      0 .. 65 us     .. 4 ms    .. 268 ms   .. 17 s     .. 18 min  ...  146 years
///                   near heap      level 0    level 1     level 2     level 3         level 7
///                   exact order    64 slots   64 slots    64 slots    64 slots        64 slots
///                        ^------------'  ^--------'  ^---------'  ^--------'
///                     a slot whose time has come is emptied into what is below it
///
/// Why it is built so. A heap is exact and costs a cache miss per level; a wheel is constant-time
/// and knows no order within a slot. Here a timer is put into its slot by two shifts, and only
/// shortly before it is due does it come into the heap, which is small and in the cache. So
/// order is exact to the nanosecond, and far timers, most of which are stopped before they are due,
/// are never sorted.
///  - Level and slot come from the highest bit in which the time differs from the wheel's own;
///    every level has one word that says which slots are in use, so the next one that is takes one
///    count of zeros. There are no ticks: time goes from one used slot to the next.
///  - A slot is a chain of chunks, and a timer's entry in it is 8 bytes: a number that names the
///    timer, 18 bits of its time, a token. Nothing is linked through the timers: putting one in
///    touches no other, and moving a slot's entries down touches none.
///  - An entry stays when its timer is stopped. Whoever owns the timers says so when asked: an
///    entry is out of date if its token is. sweep() takes such entries out, a few chunks at a time.
///  - A slot with few entries skips the levels below and goes into the heap at once.
///  - Each slot knows the earliest time in it, so that nobody wakes before something is due.
///  - Emptying a slot, and sweeping, go on where they left off: a step is at most one chunk.
///
/// It knows no thread and no clock, and timers by their numbers only. The owner is asked
///
///   void prefetch(std::uint32_t id)                        its memory will be looked at soon
///   std::int64_t when(std::uint32_t id, std::uint32_t token)  the entry's key now; 0 to drop it
///   bool stale(std::uint32_t id, std::uint32_t token)      whether the entry is out of date
///
/// A key may be earlier than the time at which the timer is due (it was put off, say); it must not
/// be later. An entry that comes up is the owner's to judge: it fires, or goes back with insert().
///
/// Memory comes from `Chunks`: void* allocate() noexcept, nullptr if there is none; void
/// free(void*) noexcept; 504 bytes, on a multiple of 8. Where there is none insert() throws
/// std::bad_alloc and changes nothing; moving down stops, and goes on when asked again.
namespace verge::detail {

template <class Chunks>
class timer_wheel {
 public:
  static constexpr unsigned token_bits = 14;
  static constexpr std::uint32_t token_mask = (1U << token_bits) - 1;
  /// Keys of this and more are kept, and never come up.
  static constexpr std::int64_t never = (std::int64_t{1} << 62) - 1;
  static constexpr std::size_t chunk_bytes = 504;

  /// What has come up.
  struct head {
    std::int64_t when;
    std::uint32_t id;
    std::uint32_t token;
  };

  /// Times before `start` are taken for near.
  explicit timer_wheel(Chunks chunks = {}, std::int64_t start = 0) noexcept
      : chunks_(std::move(chunks)), base_(start) {}
  timer_wheel(const timer_wheel&) = delete;
  timer_wheel& operator=(const timer_wheel&) = delete;
  ~timer_wheel() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// How many entries there are, those out of date among them.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return chunk_count_ * (chunk_bytes + 8) + near_.bytes();
  }

  /// Sees to it that the next insert() does not throw. Throws std::bad_alloc.
  void reserve() {
    if (spare_ == nullptr && (spare_ = new_chunk()) == nullptr) throw std::bad_alloc();
    near_.reserve(near_.size() + 1);
  }

  /// `when` is positive.
  void insert(std::int64_t when, std::uint32_t id, std::uint32_t token) {
    if (!put(when, id, token)) throw std::bad_alloc();
    ++size_;
  }

  /// No later than the key of any entry; 0 if there is none.
  [[nodiscard]] std::int64_t first() const noexcept {
    std::int64_t t = near_.empty() ? none : near_.front().when;
    if (used_levels_ != 0) t = std::min(t, first_far().min);
    return t == none ? 0 : t;
  }

  /// Tells the wheel the time, so that what is inserted goes no higher than it must.
  void advance(std::int64_t now) noexcept {
    if (now <= base_ || draining_ != none_draining) return;
    if (used_levels_ == 0 || now < start_of(first_place())) base_ = now;
  }

  /// A time between the wheel's own and `when`, and no later than that.
  [[nodiscard]] std::int64_t quarter_way_to(std::int64_t when) const noexcept {
    return when <= base_ ? when : std::max<std::int64_t>(base_ + (when - base_) / 4, 1);
  }

  /// Moves down what may be due at `now`, in at most so many steps, which it counts off. True if
  /// the earliest entry of all is now front(), and its key has come.
  template <class Owner>
  bool ready(std::int64_t now, Owner& owner, unsigned& steps) noexcept {
    for (;;) {
      const std::int64_t near = near_.empty() ? none : near_.front().when;
      const std::int64_t far = used_levels_ == 0 ? none : first_far().min;
      if (far > now || far >= near) return near <= now;
      if (steps == 0) return false;
      --steps;
      if (!step(owner)) return false;
    }
  }
  /// After ready().
  [[nodiscard]] head front() const noexcept {
    const near_id who{near_.front().node};
    return {near_.front().when, who.id(), who.token()};
  }
  /// Takes front() out. The next insert() does not throw.
  void pop() noexcept {
    near_.pop();
    --size_;
  }

  /// Drops entries that are out of date and closes the gaps, a number of chunks at a time. True
  /// when a pass over all that there was at its beginning is complete; the next call begins anew.
  template <class Owner>
  bool sweep(Owner& owner, unsigned steps) noexcept {
    for (; steps != 0; --steps) {
      if (sweep_.place >= 0) {
        sweep_far(owner);
      } else if (sweep_near(owner)) {
        sweep_ = {};
        return true;
      }
    }
    return false;
  }

  /// Moves about so many entries to another wheel. False if that has no memory for them.
  bool give(timer_wheel& to, std::size_t about) noexcept {
    while (size_ != 0) {
      if (about == 0) return true;
      if (!near_.empty()) {
        const head h = front();
        if (!to.put(h.when, h.id, h.token)) return false;
        pop();
        ++to.size_;
        --about;
        continue;
      }
      const int p = first_place();
      slot& s = slots_[p];
      chunk& c = *s.first;
      const std::int64_t start = start_of(p);
      while (c.count != 0) {
        const entry e = c.entries[c.count - 1];
        if (!to.put(lower_bound_of(e, p, start), e.id, e.mark & token_mask)) return false;
        --c.count;
        --size_;
        ++to.size_;
        if (about != 0) --about;
      }
      drop_first_chunk(p);
    }
    return true;
  }

  /// Takes out all there is, and shows it to f(id, token).
  template <class F>
  void clear(F&& f) noexcept {
    for (const auto& e : near_) f(near_id{e.node}.id(), near_id{e.node}.token());
    near_.clear();
    while (used_levels_ != 0) {
      const int p = first_place();
      for (chunk* c = slots_[p].first; c != nullptr; c = c->next) {
        for (std::uint32_t i = 0; i < c->count; ++i) {
          f(c->entries[i].id, c->entries[i].mark & token_mask);
        }
      }
      while (slots_[p].first != nullptr) drop_first_chunk(p);
    }
    if (spare_ != nullptr) free_chunk(spare_);
    spare_ = nullptr;
    size_ = 0;
    sweep_ = {};
  }
  void clear() noexcept {
    clear([](std::uint32_t, std::uint32_t) {});
  }

  /// What is wrong with it, in words; empty if nothing is.
  [[nodiscard]] std::string describe_violation() const {
    if (!near_.verify()) return near_.describe_violation();
    std::size_t seen = near_.size();
    for (int p = 0; p < places; ++p) {
      const slot& s = slots_[p];
      const bool marked = (used_[p / 64] >> (p % 64) & 1) != 0;
      if (marked != (s.first != nullptr)) return "slot " + std::to_string(p) + " is marked wrongly";
      if (!marked) continue;
      if ((used_levels_ >> (p / 64) & 1) == 0) return "a used level is not marked";
      if (p != draining_ && start_of(p) <= base_) {
        return "slot " + std::to_string(p) + " should have been emptied";
      }
      for (const chunk* c = s.first; c != nullptr; c = c->next) seen += c->count;
    }
    if (seen == size_) return {};
    return std::to_string(seen) + " entries found, " + std::to_string(size_) + " counted";
  }

 private:
  static constexpr unsigned near_bits = 16;
  static constexpr unsigned digit_bits = 6;
  static constexpr int levels = 8;
  static constexpr int places = levels * 64;
  /// An entry's mark says all about its time that the levels below this one need.
  static constexpr int marked_levels = 3;
  static constexpr std::uint32_t per_chunk = 61;
  /// So many chunks are few, unless the heap has so many entries already.
  static constexpr std::uint32_t small_slot = 4;
  static constexpr std::size_t small_heap = 1024;
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  static constexpr int none_draining = -1;

  struct entry {
    std::uint32_t id;
    std::uint32_t mark;  ///< bits 16 to 33 of the key, and the token
  };
  struct chunk {
    chunk* next;
    std::uint32_t count;
    std::uint32_t below;  ///< how many there are behind it, or were
    entry entries[per_chunk];
  };
  static_assert(sizeof(chunk) <= chunk_bytes);

  struct slot {
    chunk* first = nullptr;
    std::int64_t min = 0;  ///< no later than any key in it
  };

  /// A timer as the heap knows it: id and token in place of an address, which the heap never reads.
  struct near_timer;
  struct near_id {
    std::uint64_t bits;
    explicit near_id(const near_timer* p) noexcept : bits(std::bit_cast<std::uint64_t>(p)) {}
    near_id(std::uint32_t id, std::uint32_t token) noexcept
        : bits(std::uint64_t{id} << 32 | token) {}
    [[nodiscard]] std::uint32_t id() const noexcept {
      return static_cast<std::uint32_t>(bits >> 32);
    }
    [[nodiscard]] std::uint32_t token() const noexcept {
      return static_cast<std::uint32_t>(bits) & token_mask;
    }
    [[nodiscard]] near_timer* pointer() const noexcept { return std::bit_cast<near_timer*>(bits); }
  };
  static_assert(sizeof(void*) == 8);

  static constexpr unsigned shift_of(int level) noexcept {
    return near_bits + digit_bits * static_cast<unsigned>(level);
  }

  /// The used slot that comes first, or the one that is being emptied. Places are numbered level by
  /// level. Lower levels come before higher ones: they lie within the wheel's own slot of those.
  [[nodiscard]] int first_place() const noexcept {
    if (draining_ != none_draining) return draining_;
    const int level = std::countr_zero(used_levels_);
    return level * 64 + std::countr_zero(used_[level]);
  }
  /// Its earliest time, as long as nothing earlier has come into the levels below it.
  struct far_time {
    std::int64_t min;
  };
  [[nodiscard]] far_time first_far() const noexcept {
    const int level = std::countr_zero(used_levels_);
    std::int64_t min = slots_[level * 64 + std::countr_zero(used_[level])].min;
    if (draining_ != none_draining) min = std::min(min, slots_[draining_].min);
    return {min};
  }
  /// When the slot begins, from the wheel's own time, whose higher digits it shares.
  [[nodiscard]] std::int64_t start_of(int place) const noexcept {
    const unsigned shift = shift_of(place / 64);
    const auto base = static_cast<std::uint64_t>(base_);
    const unsigned above = shift + digit_bits;
    const std::uint64_t high = above >= 64 ? 0 : base >> above << above;
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): a place is on some level
    return static_cast<std::int64_t>(high | static_cast<std::uint64_t>(place % 64) << shift);
  }
  /// The key, or an earlier time where the mark does not tell all.
  [[nodiscard]] static std::int64_t lower_bound_of(entry e, int place,
                                                   std::int64_t start) noexcept {
    const std::uint64_t block = std::uint64_t{e.mark >> token_bits} << near_bits;
    const std::uint64_t within = (std::uint64_t{1} << shift_of(place / 64)) - 1;
    return std::max<std::int64_t>(start | static_cast<std::int64_t>(block & within), 1);
  }

  bool put(std::int64_t when, std::uint32_t id, std::uint32_t token) noexcept {
    const auto differ =
        (static_cast<std::uint64_t>(when) ^ static_cast<std::uint64_t>(base_)) >> near_bits;
    if (differ == 0 || when < base_) return put_near(when, id, token);
    const int level = (63 - std::countl_zero(differ)) / static_cast<int>(digit_bits);
    const auto block = static_cast<std::uint64_t>(when) >> near_bits;
    const int digit = static_cast<int>(block >> (digit_bits * static_cast<unsigned>(level)) & 63);
    slot& s = slots_[level * 64 + digit];
    if (s.first == nullptr || s.first->count == per_chunk) [[unlikely]] {
      if (!add_chunk(s)) return put_near(when, id, token);
      used_[level] |= std::uint64_t{1} << digit;
      used_levels_ |= 1U << level;
      if (s.first->next == nullptr) s.min = when;
    }
    chunk& c = *s.first;
    c.entries[c.count++] = {id, static_cast<std::uint32_t>(block) << token_bits | token};
    if (when < s.min) s.min = when;
    return true;
  }

  /// The heap takes far ones too, where there is no memory for a chunk.
  bool put_near(std::int64_t when, std::uint32_t id, std::uint32_t token) noexcept {
    try {
      near_.push(when, near_id(id, token).pointer());
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  bool add_chunk(slot& s) noexcept {
    chunk* c = std::exchange(spare_, nullptr);
    if (c == nullptr && (c = new_chunk()) == nullptr) return false;
    c->next = s.first;
    c->count = 0;
    c->below = s.first == nullptr ? 0 : s.first->below + 1;
    s.first = c;
    return true;
  }
  chunk* new_chunk() noexcept {
    void* const memory = chunks_.allocate();
    if (memory == nullptr) return nullptr;
    ++chunk_count_;
    return static_cast<chunk*>(memory);
  }
  void free_chunk(chunk* c) noexcept {
    --chunk_count_;
    chunks_.free(c);
  }
  void release_chunk(chunk* c) noexcept {
    if (spare_ == nullptr) {
      spare_ = c;
    } else {
      free_chunk(c);
    }
  }

  void drop_first_chunk(int place) noexcept {
    slot& s = slots_[place];
    if (sweep_.place == place) sweep_.at = nullptr;
    chunk* const c = s.first;
    s.first = c->next;
    release_chunk(c);
    if (s.first == nullptr) slot_is_empty(place);
  }
  void slot_is_empty(int place) noexcept {
    const int level = place / 64;
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): no place is negative
    used_[level] &= ~(std::uint64_t{1} << (place % 64));
    if (used_[level] == 0) used_levels_ &= ~(1U << level);
    if (draining_ == place) draining_ = none_draining;
  }

  /// Empties one chunk of the first slot into what is below. False if there is no memory.
  template <class Owner>
  bool step(Owner& owner) noexcept {
    const int p = first_place();
    const std::int64_t start = start_of(p);
    // The next slot may be emptied before its time, by one who asks what will be due.
    chunk& c = *slots_[p].first;
    if (draining_ == none_draining) {
      base_ = std::max(base_, start);
      draining_ = p;
      draining_is_small_ = c.below < small_slot && near_.size() < small_heap;
    }
    const int level = p / 64;
    if (c.next != nullptr) prefetch_chunk(c.next);
    // Few entries go straight to the heap, which takes them faster than the levels between would,
    // and under the exact time, so that nobody wakes for 65 us before it. Of many the marks will
    // do: something is due all the time.
    const bool few = draining_is_small_;
    const bool ask = level == 0 || level > marked_levels || few;
    if (ask) prefetch_all(c, owner);
    if (level == 0 && c.next == nullptr) prefetch_slot_after(p, owner);
    const std::int64_t end = start + (std::int64_t{1} << shift_of(level));
    while (c.count != 0) {
      const entry e = c.entries[c.count - 1];
      const std::uint32_t token = e.mark & token_mask;
      const std::int64_t when = ask ? owner.when(e.id, token) : lower_bound_of(e, p, start);
      if (when == 0) {
        --size_;
      } else if (!(few && when < end ? put_near(when, e.id, token) : put(when, e.id, token))) {
        return false;
      }
      --c.count;
    }
    drop_first_chunk(p);
    return true;
  }

  static void prefetch_chunk(const chunk* c) noexcept {
    const auto* at = reinterpret_cast<const char*>(c);
    for (std::size_t i = 0; i < chunk_bytes; i += 64) __builtin_prefetch(at + i);
  }
  /// The slots of the lowest level often have few entries, too few to wait for side by side. So the
  /// timers of the next one are asked for while those of this one are dealt with.
  template <class Owner>
  void prefetch_slot_after(int place, Owner& owner) const noexcept {
    const std::uint64_t after = used_[0] & ~std::uint64_t{0} << place << 1;
    if (after != 0) prefetch_all(*slots_[std::countr_zero(after)].first, owner);
  }
  template <class Owner>
  static void prefetch_all(const chunk& c, Owner& owner) noexcept {
    for (std::uint32_t i = 0; i < c.count; ++i) owner.prefetch(c.entries[i].id);
  }

  /// From the highest level down, as entries move down meanwhile: they are met again, not missed.
  struct sweeper {
    int place = places - 1;
    chunk* at = nullptr;  ///< of that slot: swept. nullptr: nothing of it is yet
    std::size_t heap_index = std::numeric_limits<std::size_t>::max();
  };

  template <class Owner>
  void sweep_far(Owner& owner) noexcept {
    // On to the next used slot.
    while (sweep_.place >= 0 && sweep_.at == nullptr &&
           (slots_[sweep_.place].first == nullptr || sweep_.place == draining_)) {
      const std::uint64_t below = used_[sweep_.place / 64] & ((2ULL << (sweep_.place % 64)) - 1);
      if (below == 0) {
        sweep_.place = sweep_.place / 64 * 64 - 1;
      } else {
        const int top = sweep_.place / 64 * 64 + 63 - std::countl_zero(below);
        sweep_.place = top == sweep_.place ? top - 1 : top;
      }
    }
    if (sweep_.place < 0) return;
    slot& s = slots_[sweep_.place];
    if (sweep_.at == nullptr) {
      sweep_.at = s.first;
      filter(*s.first, owner);
    }
    chunk* const at = sweep_.at;
    chunk* const next = at->next;
    if (next != nullptr) {
      filter(*next, owner);
      while (at->count != per_chunk && next->count != 0) {
        at->entries[at->count++] = next->entries[--next->count];
      }
      if (next->count == 0) {
        at->next = next->next;
        release_chunk(next);
      } else {
        sweep_.at = next;
      }
      return;
    }
    if (at->count == 0) {  // then it is the only one
      s.first = nullptr;
      release_chunk(at);
      slot_is_empty(sweep_.place);
    }
    --sweep_.place;
    sweep_.at = nullptr;
  }

  template <class Owner>
  void filter(chunk& c, Owner& owner) noexcept {
    if (c.next != nullptr) prefetch_chunk(c.next);
    prefetch_all(c, owner);
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < c.count; ++i) {
      const entry e = c.entries[i];
      c.entries[kept] = e;
      kept += !owner.stale(e.id, e.mark & token_mask);
    }
    size_ -= c.count - kept;
    c.count = kept;
  }

  /// From the end, so that what fills a gap has been looked at. (What then changes places with its
  /// parents may hide one of them until the next pass.) True when through.
  template <class Owner>
  bool sweep_near(Owner& owner) noexcept {
    std::size_t i = std::min(sweep_.heap_index, near_.size());
    for (std::uint32_t n = 0; n < per_chunk && i != 0; ++n) {
      const near_id who{near_[--i].node};
      if (!owner.stale(who.id(), who.token())) continue;
      near_.remove(i);
      --size_;
    }
    sweep_.heap_index = i;
    if (i == 0) near_.shrink();
    return i == 0;
  }

  [[no_unique_address]] Chunks chunks_;
  std::int64_t base_;  ///< the wheel's own time: what is due before the next block is in the heap
  std::size_t size_ = 0;
  unsigned used_levels_ = 0;
  int draining_ = none_draining;  ///< the slot that is being emptied
  bool draining_is_small_ = false;
  chunk* spare_ = nullptr;
  quad_heap<near_timer, numbers_only> near_;
  std::uint64_t used_[levels] = {};
  std::size_t chunk_count_ = 0;
  sweeper sweep_;
  slot slots_[places];
};

}  // namespace verge::detail

#pragma GCC visibility pop
