// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include <verge/detail/due_run.h>
#include <verge/detail/quad_heap.h>
#include <verge/detail/wheel_slots.h>

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
/// and has no order within a slot. Here a timer is put into its slot by two shifts, and only
/// shortly before it is due is it put into the heap, which is small and in the cache. So order is
/// exact to the nanosecond, and far timers, most of which are stopped before they are due, are
/// never sorted.
///  - Level and slot come from the highest bit in which the time differs from the wheel's own.
///    There are no ticks: time advances from one used slot to the next (wheel_slots.h).
///  - A slot is a chain of chunks, and a timer's entry in it is 8 bytes: a number that names the
///    timer, 18 bits of its time, a token. Nothing is linked through the timers: putting one in
///    touches no other, and moving a slot's entries down touches none.
///  - An entry stays when its timer is stopped. The owner of the timers says so when asked: an
///    entry is out of date if its token is. sweep() takes such entries out, a few chunks at a time.
///  - The entries of a slot with few of them skip the levels below and are put into the heap.
///  - Those of a slot whose time is over, as when many timers are overdue, are all due: they are
///    sorted together and taken from there, past levels and heap (due_run.h).
///  - Each slot knows the earliest time in it, so that no thread wakes before something is due.
///  - Emptying a slot, and sweeping, continue where they left off: a step is at most one chunk.
///
/// It knows no thread and no clock, and timers by their numbers only. The owner is asked
///
///   void prefetch(std::uint32_t id)                        its memory will be looked at soon
///   std::int64_t when(std::uint32_t id, std::uint32_t token)  the entry's key now; 0 to drop it
///   bool stale(std::uint32_t id, std::uint32_t token)      whether the entry is out of date
///
/// A key may be earlier than the time at which the timer is due (it was put off, say); it must not
/// be later. When an entry comes up the owner decides: the timer fires, or the entry is put back
/// with insert().
///
/// Memory comes from `Chunks`: void* allocate() noexcept, nullptr if there is none; void
/// free(void*) noexcept; 504 bytes, on a multiple of 8. If there is none insert() throws
/// std::bad_alloc and changes nothing; moving down stops, and continues when asked again.
namespace verge::detail {

template <class Chunks>
class timer_wheel {
 public:
  static constexpr unsigned token_bits = wheel_slots<Chunks>::token_bits;
  static constexpr std::uint32_t token_mask = wheel_slots<Chunks>::token_mask;
  /// Keys of this and more are kept, and never come up.
  static constexpr std::int64_t never = (std::int64_t{1} << 62) - 1;
  static constexpr std::size_t chunk_bytes = wheel_slots<Chunks>::chunk_bytes;

  /// What has come up.
  struct head {
    std::int64_t when;
    std::uint32_t id;
    std::uint32_t token;
  };

  /// Times before `start` count as near.
  explicit timer_wheel(Chunks chunks = {}, std::int64_t start = 0) noexcept
      : base_(start), slots_(std::move(chunks)) {}
  timer_wheel(const timer_wheel&) = delete;
  timer_wheel& operator=(const timer_wheel&) = delete;
  ~timer_wheel() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// How many entries there are, out of date or not.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// For a picture of it: the used slots of a level, a bit each, and how many are in the heap.
  [[nodiscard]] std::uint64_t used(int level) const noexcept { return slots_.used(level); }
  [[nodiscard]] std::size_t near_size() const noexcept { return near_.size() + run_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return slots_.bytes() + near_.bytes() + run_.bytes();
  }

  /// After this the next insert() does not throw. Throws std::bad_alloc.
  void reserve() {
    if (!slots_.reserve()) throw std::bad_alloc();
    near_.reserve(near_.size() + 1);
  }

  /// `when` is positive.
  void insert(std::int64_t when, std::uint32_t id, std::uint32_t token) {
    if (!put(when, id, token)) throw std::bad_alloc();
    ++size_;
  }

  /// No later than the key of any entry; 0 if there is none.
  [[nodiscard]] std::int64_t first() const noexcept {
    std::int64_t t = first_near();
    if (slots_.any()) t = std::min(t, first_far());
    return t == none ? 0 : t;
  }

  /// Tells the wheel the time, so that entries are put on no higher level than necessary.
  void advance(std::int64_t now) noexcept {
    if (now <= base_ || draining_ != none_draining) return;
    if (!slots_.any() || now < slots::start_of(first_place(), base_)) base_ = now;
  }

  /// A time between the wheel's own and `when`, and no later than that.
  [[nodiscard]] std::int64_t quarter_way_to(std::int64_t when) const noexcept {
    return when <= base_ ? when : std::max<std::int64_t>(base_ + (when - base_) / 4, 1);
  }

  /// Moves down what may be due at `now`, in at most `steps` steps, which it counts down. True if
  /// the earliest entry of all is front() then, and its key is no later than `now`.
  template <class Owner>
  bool ready(std::int64_t now, Owner& owner, unsigned& steps) noexcept {
    for (;;) {
      const std::int64_t near = first_near();
      const std::int64_t far = slots_.any() ? first_far() : none;
      if (far > now || far >= near) {
        if (!run_.empty()) owner.prefetch(run_.id_ahead());
        return near <= now;
      }
      if (steps == 0) return false;
      --steps;
      if (!step(now, owner)) return false;
    }
  }
  /// After ready().
  [[nodiscard]] head front() const noexcept {
    if (run_is_first()) return head_of(run_.front());
    const near_id who{near_.front().node};
    return {near_.front().when, who.id(), who.token()};
  }
  /// Takes front() out. The next insert() does not throw.
  void pop() noexcept {
    if (run_is_first()) {
      run_.pop();
    } else {
      near_.pop();
    }
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

  /// Moves about so many entries to another wheel. False if that has no memory.
  bool give(timer_wheel& to, std::size_t about) noexcept {
    while (size_ != 0) {
      if (about == 0) return true;
      if (const bool from_run = run_.size() != 0; from_run || !near_.empty()) {
        const head h = from_run ? head_of(run_.back()) : front();
        if (!to.put(h.when, h.id, h.token)) return false;
        if (from_run) {
          run_.drop_back();
        } else {
          near_.pop();
        }
        --size_;
        ++to.size_;
        --about;
        continue;
      }
      const int p = first_place();
      chunk& c = *slots_[p].first;
      const std::int64_t start = slots::start_of(p, base_);
      while (c.count != 0) {
        const entry e = c.entries[c.count - 1];
        if (!to.put(slots::lower_bound_of(e, p, start), e.id, e.token())) return false;
        --c.count;
        --size_;
        ++to.size_;
        if (about != 0) --about;
      }
      drop_first_chunk(p);
    }
    return true;
  }

  /// Takes all entries out, and calls f(id, token) for each.
  template <class F>
  void clear(F&& f) noexcept {
    for (const auto& e : near_) f(near_id{e.node}.id(), near_id{e.node}.token());
    near_.clear();
    run_.clear(f);
    run_.release();
    while (slots_.any()) {
      const int p = first_place();
      for (chunk* c = slots_[p].first; c != nullptr; c = c->next) {
        for (std::uint32_t i = 0; i < c->count; ++i) {
          f(c->entries[i].id, c->entries[i].token());
        }
      }
      while (slots_[p].first != nullptr) drop_first_chunk(p);
    }
    slots_.free_reserve();
    size_ = 0;
    sweep_ = {};
  }
  void clear() noexcept {
    clear([](std::uint32_t, std::uint32_t) {});
  }

  /// What is wrong with it, in words; empty if nothing is.
  [[nodiscard]] std::string describe_violation() const {
    if (!near_.verify()) return near_.describe_violation();
    std::size_t seen = near_.size() + run_.size();
    for (int level = 0; level * 64 < slots::places; ++level) {
      const std::uint64_t filled = filled_slots(level);
      if (const std::uint64_t wrong = filled ^ slots_.used(level); wrong != 0) {
        return "slot " + std::to_string(level * 64 + std::countr_zero(wrong)) +
               " is marked wrongly";
      }
      if (filled != 0 && !slots_.uses_level(level)) return "a used level is not marked";
      for (std::uint64_t left = filled; left != 0; left &= left - 1) {
        const int p = level * 64 + std::countr_zero(left);
        if (p != draining_ && slots::start_of(p, base_) <= base_) {
          return "slot " + std::to_string(p) + " should have been emptied";
        }
        for (const chunk* c = slots_[p].first; c != nullptr; c = c->next) seen += c->count;
      }
    }
    if (seen == size_) return {};
    return std::to_string(seen) + " entries found, " + std::to_string(size_) + " counted";
  }

 private:
  using slots = wheel_slots<Chunks>;
  using chunk = typename slots::chunk;
  using entry = typename slots::entry;

  /// An entry's mark says all about its time that the levels below this one need.
  static constexpr int marked_levels = 3;
  /// A slot of up to this many chunks has few entries, unless the heap has this many already.
  static constexpr std::uint32_t small_slot = 4;
  static constexpr std::size_t small_heap = 1024;
  /// From how many entries on, at least about, sorting them together pays.
  static constexpr std::size_t worth_a_run = 32;
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  static constexpr int none_draining = -1;
  /// Where the entries of the slot that is being emptied are put.
  enum class into : std::uint8_t { levels, heap, run };

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
      return static_cast<std::uint32_t>(bits) & slots::token_mask;
    }
    [[nodiscard]] near_timer* pointer() const noexcept { return std::bit_cast<near_timer*>(bits); }
  };
  static_assert(sizeof(void*) == 8);

  /// The used slot that comes first, or the one that is being emptied.
  [[nodiscard]] int first_place() const noexcept {
    return draining_ != none_draining ? draining_ : slots_.first();
  }
  /// The slots of a level that have entries, a bit each. Four at a time, as tests ask after each of
  /// millions of schedules, and most levels are empty.
  [[nodiscard]] std::uint64_t filled_slots(int level) const {
    std::uintptr_t any[4] = {};
    for (int i = 0; i < 64; i += 4) {
      for (int k = 0; k < 4; ++k) {
        any[k] |= reinterpret_cast<std::uintptr_t>(slots_[level * 64 + i + k].first);
      }
    }
    std::uint64_t filled = 0;
    if ((any[0] | any[1] | any[2] | any[3]) == 0) return filled;
    for (int i = 0; i < 64; ++i) {
      filled |= static_cast<std::uint64_t>(slots_[level * 64 + i].first != nullptr) << i;
    }
    return filled;
  }

  /// The earliest time in the slots.
  [[nodiscard]] std::int64_t first_far() const noexcept {
    const std::int64_t min = slots_[slots_.first()].min;
    return draining_ == none_draining ? min : std::min(min, slots_[draining_].min);
  }

  /// The earliest time in heap and run. What is still being gathered counts as in its slot.
  [[nodiscard]] std::int64_t first_near() const noexcept {
    return std::min(near_.empty() ? none : near_.front().when, run_.first());
  }
  [[nodiscard]] bool run_is_first() const noexcept {
    return !run_.empty() && (near_.empty() || run_.first() <= near_.front().when);
  }
  static head head_of(const due_run::entry& e) noexcept { return {e.when, e.id, e.token}; }

  bool put(std::int64_t when, std::uint32_t id, std::uint32_t token) noexcept {
    const auto time = static_cast<std::uint64_t>(when);
    const auto differ = (time ^ static_cast<std::uint64_t>(base_)) >> slots::near_bits;
    if (differ == 0 || when < base_) return put_near(when, id, token);
    const int level = (63 - std::countl_zero(differ)) / static_cast<int>(slots::digit_bits);
    const int digit = static_cast<int>(time >> slots::shift_of(level) & 63);
    return slots_.put(level, digit, when, id, token) || put_near(when, id, token);
  }

  /// The heap also takes far entries, if there is no memory for a chunk.
  bool put_near(std::int64_t when, std::uint32_t id, std::uint32_t token) noexcept {
    try {
      near_.push(when, near_id(id, token).pointer());
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void drop_first_chunk(int place) noexcept {
    if (sweep_.place == place) sweep_.at = nullptr;
    if (slots_.drop_first_chunk(place) && draining_ == place) draining_ = none_draining;
  }

  /// Empties one chunk of the first slot into what is below. False if there is no memory.
  template <class Owner>
  bool step(std::int64_t now, Owner& owner) noexcept {
    const int p = first_place();
    const int level = p / 64;
    const std::int64_t start = slots::start_of(p, base_);
    const std::int64_t end = start + (std::int64_t{1} << slots::shift_of(level));
    chunk& c = *slots_[p].first;
    if (draining_ == none_draining) {
      // The next slot may be emptied before its time, by a caller that asks what will be due.
      base_ = std::max(base_, start);
      draining_ = p;
      draining_into_ = where_to(c, start, level, end <= now);
    }
    if (c.next != nullptr) slots::prefetch(c.next);
    // Few entries are put straight into the heap, which takes them faster than the levels between,
    // and under the exact time, so that no thread wakes 65 us early. For many the marks are exact
    // enough: something is due all the time.
    const bool ask = level == 0 || level > marked_levels || draining_into_ != into::levels;
    if (ask) prefetch_all(c, owner);
    if (level == 0 && c.next == nullptr) prefetch_slot_after(p, owner);
    while (c.count != 0) {
      const entry e = c.entries[c.count - 1];
      const std::uint32_t token = e.token();
      const std::int64_t when = ask ? owner.when(e.id, token) : slots::lower_bound_of(e, p, start);
      if (when == 0) {
        --size_;
      } else if (draining_into_ == into::run && when >= start && when < end) {
        run_.gather(when, e.id, token);
      } else if (!(draining_into_ == into::heap && when < end ? put_near(when, e.id, token)
                                                              : put(when, e.id, token))) {
        return false;
      }
      --c.count;
    }
    drop_first_chunk(p);
    if (draining_ == none_draining && draining_into_ == into::run) run_.sort();
    return true;
  }

  /// Decides for a slot, of which c is the first chunk, where its entries are put.
  into where_to(const chunk& c, std::int64_t start, int level, bool is_over) noexcept {
    const std::size_t most = std::size_t{c.below} * slots::per_chunk + c.count;
    if (is_over && most >= worth_a_run && run_.size() == 0 &&
        run_.begin(start, slots::shift_of(level), most)) {
      return into::run;
    }
    return c.below < small_slot && near_.size() < small_heap ? into::heap : into::levels;
  }

  /// The slots of the lowest level often have few entries, too few for their cache misses to
  /// overlap. So the timers of the next slot are prefetched while this one is emptied.
  template <class Owner>
  void prefetch_slot_after(int place, Owner& owner) const noexcept {
    const std::uint64_t after = slots_.used(0) & ~std::uint64_t{0} << place << 1;
    if (after != 0) prefetch_all(*slots_[std::countr_zero(after)].first, owner);
  }
  template <class Owner>
  static void prefetch_all(const chunk& c, Owner& owner) noexcept {
    for (std::uint32_t i = 0; i < c.count; ++i) owner.prefetch(c.entries[i].id);
  }

  /// From the highest level down, because entries move down meanwhile: they are met again, not
  /// missed.
  struct sweeper {
    int place = slots::places - 1;
    chunk* at = nullptr;  ///< of that slot: swept. nullptr: nothing of it is yet
    std::size_t heap_index = std::numeric_limits<std::size_t>::max();
  };

  template <class Owner>
  void sweep_far(Owner& owner) noexcept {
    // On to the next used slot.
    while (sweep_.place >= 0 && sweep_.at == nullptr &&
           (slots_[sweep_.place].first == nullptr || sweep_.place == draining_)) {
      const std::uint64_t below =
          slots_.used(sweep_.place / 64) & ((2ULL << (sweep_.place % 64)) - 1);
      if (below == 0) {
        sweep_.place = sweep_.place / 64 * 64 - 1;
      } else {
        const int top = sweep_.place / 64 * 64 + 63 - std::countl_zero(below);
        sweep_.place = top == sweep_.place ? top - 1 : top;
      }
    }
    if (sweep_.place < 0) return;
    if (sweep_.at == nullptr) {
      sweep_.at = slots_[sweep_.place].first;
      filter(*sweep_.at, owner);
    }
    chunk* const at = sweep_.at;
    chunk* const next = at->next;
    if (next != nullptr) {
      filter(*next, owner);
      while (at->count != slots::per_chunk && next->count != 0) {
        at->entries[at->count++] = next->entries[--next->count];
      }
      if (next->count == 0) {
        at->next = next->next;
        slots_.release_chunk(next);
      } else {
        sweep_.at = next;
      }
      return;
    }
    if (at->count == 0) drop_first_chunk(sweep_.place);  // it is the only one
    --sweep_.place;
    sweep_.at = nullptr;
  }

  template <class Owner>
  void filter(chunk& c, Owner& owner) noexcept {
    if (c.next != nullptr) slots::prefetch(c.next);
    prefetch_all(c, owner);
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < c.count; ++i) {
      const entry e = c.entries[i];
      c.entries[kept] = e;
      kept += !owner.stale(e.id, e.token());
    }
    size_ -= c.count - kept;
    c.count = kept;
  }

  /// From the end, so that what fills a gap has been looked at. (What then changes places with its
  /// parents may hide one of them until the next pass.) True at the end of the pass.
  template <class Owner>
  bool sweep_near(Owner& owner) noexcept {
    std::size_t i = std::min(sweep_.heap_index, near_.size());
    for (std::uint32_t n = 0; n < slots::per_chunk && i != 0; ++n) {
      const near_id who{near_[--i].node};
      if (!owner.stale(who.id(), who.token())) continue;
      near_.remove(i);
      --size_;
    }
    sweep_.heap_index = i;
    if (i == 0) {
      near_.shrink();
      if (run_.size() == 0 && draining_ == none_draining) run_.release();
    }
    return i == 0;
  }

  std::int64_t base_;  ///< the wheel's own time: what is due before the next block is in the heap
  std::size_t size_ = 0;
  int draining_ = none_draining;  ///< the slot that is being emptied
  into draining_into_ = into::levels;
  quad_heap<near_timer, numbers_only> near_;
  due_run run_;
  sweeper sweep_;
  slots slots_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
