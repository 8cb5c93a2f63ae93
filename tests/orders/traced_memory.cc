// SPDX-License-Identifier: Apache-2.0

#include <orders/traced_memory.h>

#include <orders/fiber_locals.h>
#include <orders/tracing.h>

#include <cstdio>
#include <cstring>

namespace verge::orders {

namespace {

constexpr int spins_before_yield = 4096;

std::memory_order as_order(int order) { return static_cast<std::memory_order>(order); }

std::string hex(const volatile void* p) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", const_cast<const void*>(p));
  return text;
}

}  // namespace

traced_memory* traced_memory::now() {
  static traced_memory memory;
  return &memory;
}

void traced_memory::begin(int stale_reads) {
  memory_.begin();
  memory_.most_stale = stale_reads;
  used_ = 0;
  while (locks_used_ != 0) locks_[--locks_used_] = {};
  spins_ = {};
  sleepers_ = {};
  ++epoch_;
}

void traced_memory::end() {
  for (const garbage& g : garbage_) g.free(g.at);
  garbage_.clear();
}

// ---- Steps --------------------------------------------------------------------------------------

void traced_memory::point(const void* place, bool writes) {
  fiber_locals& locals = fiber_locals::now();
  locals.leave(e().current());
  e().point({.place = place, .writes = writes});
  locals.enter(e().current());
  tracing::busy = true;
  memory_.tick();
}

void traced_memory::wait_point(const void* place, const bool& blocked) {
  fiber_locals& locals = fiber_locals::now();
  locals.leave(e().current());
  e().lock_point(blocked, {.place = place, .writes = true});
  locals.enter(e().current());
  tracing::busy = true;
  memory_.tick();
}

void traced_memory::tell(const char* what, const volatile void* at, std::uint64_t v,
                         const void* by) {
  if (!e().telling()) return;
  e().tell(std::string(what) + " " + hex(at) + ": " + std::to_string(v) + " at " + hex(by));
}

// ---- Atomics ------------------------------------------------------------------------------------

std::uint64_t traced_memory::value_at(const volatile void* at, std::size_t size) {
  std::uint64_t v = 0;
  std::memcpy(&v, const_cast<const void*>(at), size);
  return v;
}

void traced_memory::keep(volatile void* at, std::size_t size, const test::weak_location& place) {
  const std::uint64_t v = place.peek();
  std::memcpy(const_cast<void*>(at), &v, size);
}

/// The order to use, which may be less than the code asks for.
std::memory_order traced_memory::ordered(site::kind what, int order, const void* by, int failure) {
  using enum std::memory_order;
  const std::memory_order asked = as_order(order);
  if (recording) seen.try_emplace(by, site{what, asked, as_order(failure)});
  if (weakened_part == part::none || !weakened.contains(by)) return asked;
  switch (weakened_part) {
    case part::acquire:
      if (asked == acq_rel || (asked == seq_cst && what != site::kind::load)) return release;
      return test::acquires(asked) ? relaxed : asked;
    case part::release:
      if (asked == acq_rel || (asked == seq_cst && what != site::kind::store)) return acquire;
      return test::releases(asked) ? relaxed : asked;
    case part::total:
      if (asked != seq_cst) return asked;
      return what == site::kind::load ? acquire : what == site::kind::store ? release : acq_rel;
    case part::none:
    case part::failure:
      break;
  }
  return asked;
}

/// The location at that address, before a step there is made, and after others have made theirs.
test::weak_location& traced_memory::atomic(const volatile void* at, std::size_t size, bool writes,
                                           const void* by) {
  point(const_cast<const void*>(at), writes);
  spins_[e().current()] = {};
  touched(const_cast<const void*>(at), size, writes, true, by);
  return location_at(at, size, by);
}

test::weak_location& traced_memory::location_at(const volatile void* at, std::size_t size,
                                                const void* by) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  std::int8_t& n = cell_of(address / 8).location[address % 8];
  // A value that no store has left: other code has made another object there.
  const bool other =
      n >= 0 && cut(places_[static_cast<std::size_t>(n)].peek(), size) != value_at(at, size);
  if (n < 0 || other) {
    if (used_ == places_.size()) e().fail("too large", "too many atomics, the last at " + hex(by));
    n = static_cast<std::int8_t>(used_++);
    places_[static_cast<std::size_t>(n)].reset(value_at(at, size));
  }
  return places_[static_cast<std::size_t>(n)];
}

std::uint64_t traced_memory::load(const volatile void* at, std::size_t size, int order,
                                  const void* by) {
  const std::size_t me = e().current();
  spin before = spins_[me];
  const bool again = before.by == by && before.at == at;
  if (again && before.times >= 2 && before.stamp == before.place->stamp) {
    if (++spins_[me].times < spins_before_yield) return before.value;
    yield();
  }
  test::weak_location& place = atomic(at, size, false, by);
  const std::uint64_t v = place.load(ordered(site::kind::load, order, by));
  const bool same = again && before.place == &place && before.value == v;
  spins_[me] = {.by = by,
                .at = at,
                .place = &place,
                .stamp = place.stamp,
                .value = v,
                .times = same ? before.times + 1 : 1};
  tell("loads", at, v, by);
  return v;
}

void traced_memory::store(volatile void* at, std::size_t size, std::uint64_t v, int order,
                          const void* by) {
  test::weak_location& place = atomic(at, size, true, by);
  place.store(cut(v, size), ordered(site::kind::store, order, by));
  keep(at, size, place);
  tell("stores", at, v, by);
}

bool traced_memory::compare_exchange(volatile void* at, std::size_t size, std::uint64_t& expected,
                                     std::uint64_t desired, int success, int failure,
                                     const void* by) {
  test::weak_location& place = atomic(at, size, true, by);
  const std::memory_order if_equal = ordered(site::kind::compare, success, by, failure);
  std::memory_order if_not = as_order(failure);
  if (weakened_part == part::failure && weakened.contains(by)) if_not = std::memory_order_relaxed;
  std::uint64_t wanted = cut(expected, size);
  const bool done = place.compare_exchange(wanted, cut(desired, size), if_equal, if_not);
  expected = wanted;
  keep(at, size, place);
  tell(done ? "changes" : "does not change", at, done ? desired : wanted, by);
  return done;
}

void traced_memory::fence(int order, const void* by) {
  const std::memory_order o = ordered(site::kind::fence, order, by);
  // Weakened, it is a step all the same: then the same schedules are explored.
  if (as_order(order) == std::memory_order_seq_cst) point(nullptr, true);
  memory_.fence_here(o);
  tell("fence", nullptr, static_cast<std::uint64_t>(o), by);
}

void traced_memory::fence_all() {
  point(nullptr, true);
  memory_.fence_all_here();
}

// ---- Plain memory -------------------------------------------------------------------------------

traced_memory::cell& traced_memory::cell_of(std::uintptr_t granule) {
  std::size_t i = (granule * 0x9e3779b97f4a7c15U) >> 50U;
  while (cells_[i].epoch == epoch_ && cells_[i].at != granule) i = (i + 1) % cells_.size();
  cell& c = cells_[i];
  if (c.epoch != epoch_) {
    c.epoch = epoch_;
    c.at = granule;
    c.location.fill(-1);
    c.freed = false;
    c.touches.clear();
  }
  return c;
}

void traced_memory::touched(const void* at, std::size_t bytes, bool writes, bool atomic,
                            const void* by) {
  auto address = reinterpret_cast<std::uintptr_t>(at);
  while (bytes != 0) {
    const std::size_t offset = address % 8;
    const std::size_t n = std::min<std::size_t>(8 - offset, bytes);
    const auto mask = static_cast<std::uint8_t>(((1U << n) - 1) << offset);
    touch_cell(cell_of(address / 8), mask, writes, atomic, by);
    address += n;
    bytes -= n;
  }
}

void traced_memory::touch_cell(cell& c, std::uint8_t mask, bool writes, bool atomic,
                               const void* by) {
  const auto me = static_cast<std::uint8_t>(e().current());
  const auto& before = memory_.mine().current.time;
  if (c.freed) e().fail("use after free", "at " + hex(by));
  touch* mine = nullptr;
  for (touch& t : c.touches) {
    if (t.thread == me) {
      if (t.mask == mask && t.writes == writes && t.atomic == atomic) mine = &t;
      continue;
    }
    if ((t.mask & mask) == 0 || (!t.writes && !writes) || (t.atomic && atomic)) continue;
    if (t.time <= before[t.thread]) continue;
    e().fail("data race", std::string(atomic   ? "an atomic access"
                                      : writes ? "a write"
                                               : "a read") +
                              " by thread " + std::to_string(me) + " at " + hex(by) + ", and " +
                              (t.atomic   ? "an atomic access"
                               : t.writes ? "a write"
                                          : "a read") +
                              " by thread " + std::to_string(t.thread) + " at " + hex(t.by) +
                              ": neither happens before the other");
  }
  const std::uint32_t time = before[me];
  if (mine != nullptr) {
    mine->time = time;
    mine->by = by;
  } else {
    c.touches.push_back({time, me, mask, writes, atomic, by});
  }
  if (writes && !atomic) {
    for (std::size_t i = 0; i < 8; ++i) {
      if ((mask >> i & 1U) != 0) c.location[i] = -1;
    }
  }
}

void traced_memory::read(const void* at, std::size_t bytes, const void* by) {
  if (fiber_locals::now().contains(at)) return;
  memory_.tick();
  touched(at, bytes, false, false, by);
}

void traced_memory::write(const void* at, std::size_t bytes, const void* by) {
  if (fiber_locals::now().contains(at)) return;
  memory_.tick();
  touched(at, bytes, true, false, by);
}

void traced_memory::freed(void* at, std::size_t bytes, void (*how)(void*)) {
  memory_.tick();
  touched(at, bytes, true, false, __builtin_return_address(0));
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  for (std::size_t i = 0; i < bytes; i += 8) cell_of((address + i) / 8).freed = true;
  garbage_.push_back({at, how});
}

// ---- The system ---------------------------------------------------------------------------------

traced_memory::lock_state& traced_memory::lock_of(const void* mutex) {
  for (std::size_t i = 0; i < locks_used_; ++i) {
    if (locks_[i].mutex == mutex) return locks_[i];
  }
  if (locks_used_ == locks_.size()) e().fail("too large", "more than 96 mutexes in one scene");
  locks_[locks_used_].mutex = mutex;
  return locks_[locks_used_++];
}

void traced_memory::mutex_lock(const void* mutex) {
  lock_state& l = lock_of(mutex);
  wait_point(mutex, l.taken);
  l.taken = true;
  memory_.mine().current.join(l.released);
}

bool traced_memory::mutex_try_lock(const void* mutex) {
  lock_state& l = lock_of(mutex);
  point(mutex, true);
  if (l.taken) return false;
  l.taken = true;
  memory_.mine().current.join(l.released);
  return true;
}

/// Not a step of its own: threads that want the lock can continue from the next step on.
void traced_memory::mutex_unlock(const void* mutex) {
  lock_state& l = lock_of(mutex);
  l.taken = false;
  l.released.join(memory_.mine().current);
}

bool traced_memory::futex_wait(const void* word, std::uint32_t expected, bool limited) {
  point(word, true);
  spins_[e().current()] = {};
  // The kernel reads the newest store, and the thread no older one after that.
  test::weak_location& place = location_at(word, 4, nullptr);
  place.see(place.newest());
  if (value_at(word, 4) != expected) return false;
  if (limited && e().choose_one_of(2) == 1) return true;
  sleeper& s = sleepers_[e().current()];
  s = {.word = word, .asleep = true};
  wait_point(word, s.asleep);
  s.word = nullptr;
  return true;
}

void traced_memory::futex_wake(const void* word, int n) {
  point(word, true);
  for (sleeper& s : sleepers_) {
    if (n == 0) break;
    if (s.word != word || !s.asleep) continue;
    s.asleep = false;
    --n;
  }
}

/// The thread waits for a store to the place that it has read last. If there is a newer one than
/// it has read, it will see that in the end.
void traced_memory::yield() {
  const spin& s = spins_[e().current()];
  if (s.place == nullptr) return;
  auto& place = const_cast<test::weak_location&>(*s.place);
  if (place.seen() < place.newest()) {
    place.see(place.seen() + 1);
  } else {
    e().looked_at(place.stamp);
    e().yield();
  }
  spins_[e().current()].times = 0;
}

void traced_memory::system_point(const void* object) { point(object, true); }

void traced_memory::system_wait(const void* object, const bool& blocked) {
  wait_point(object, blocked);
}

}  // namespace verge::orders
