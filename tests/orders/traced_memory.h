// SPDX-License-Identifier: Apache-2.0
// traced_memory: the memory of a scene, by address. Its atomics are locations of the model
// (explorer/weak_memory.h), its plain memory is checked for data races and for use after free.
//
// Ground rules
//  - An address is an atomic from its first atomic access on, and until it is written plainly:
//    then another object begins there.
//  - What the memory holds is always the newest store, so that code outside of the model (the
//    kernel's part, the checks) reads that.
//  - A thread that makes the same load again and again, and no other, and finds the same store,
//    spins. From the third time on it is not switched away from, unless there is a newer store:
//    what others do meanwhile they could have done at the second.
//  - Memory that is freed during a schedule is not reused before its end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <explorer/weak_memory.h>

namespace verge::orders {

/// An atomic operation or a fence in the code: the address it returns to.
struct site {
  enum class kind : std::uint8_t { load, store, change, compare, fence };
  kind what;
  std::memory_order order;
  std::memory_order failure;
};

class traced_memory {
 public:
  static traced_memory* now();

  /// Before every schedule.
  void begin(int stale_reads);
  /// After it: frees what it has freed.
  void end();

  // Atomics. `size` is 1 to 8 bytes.
  std::uint64_t load(const volatile void* at, std::size_t size, int order, const void* by);
  void store(volatile void* at, std::size_t size, std::uint64_t v, int order, const void* by);
  template <class F>
  std::uint64_t change(volatile void* at, std::size_t size, F&& f, int order, const void* by) {
    test::weak_location& place = atomic(at, size, true, by);
    const std::uint64_t before = place.change([&](std::uint64_t was) { return cut(f(was), size); },
                                              ordered(site::kind::change, order, by));
    keep(at, size, place);
    return before;
  }
  bool compare_exchange(volatile void* at, std::size_t size, std::uint64_t& expected,
                        std::uint64_t desired, int success, int failure, const void* by);
  void fence(int order, const void* by);
  void fence_all();

  // Plain memory.
  void read(const void* at, std::size_t bytes, const void* by);
  void write(const void* at, std::size_t bytes, const void* by);

  // The system.
  void mutex_lock(const void* mutex);
  bool mutex_try_lock(const void* mutex);
  void mutex_unlock(const void* mutex);
  /// False if the word differs.
  bool futex_wait(const void* word, std::uint32_t expected, bool limited);
  void futex_wake(const void* word, int n);
  /// The thread lets others run: it has found that it must wait.
  void yield();
  void freed(void* at, std::size_t bytes, void (*how)(void*));
  /// A step of the kernel on an object of its own. It gives no order.
  void system_point(const void* object);
  /// The same, as soon as `blocked` is false.
  void system_wait(const void* object, const bool& blocked);
  /// For what time or the system decides: the explorer tries all.
  std::size_t choose_one_of(std::size_t n) { return e().choose_one_of(n); }

  // Memory orders that are weakened, by site, and the sites that were seen.
  using sites = std::map<const void*, site>;
  sites seen;
  /// What is left out of the orders at these: acquire, release, what seq_cst is more, or the
  /// acquire of a compare-and-swap that fails.
  enum class part : std::uint8_t { none, acquire, release, total, failure };
  std::set<const void*> weakened;
  part weakened_part = part::none;
  bool recording = false;

 private:
  static constexpr std::size_t threads = test::weak_memory::threads;

  struct lock_state {
    const void* mutex = nullptr;
    bool taken = false;
    test::weak_memory::view released;
  };
  /// A plain access, or an atomic one as plain ones see it.
  struct touch {
    std::uint32_t time;
    std::uint8_t thread;
    std::uint8_t mask;  ///< of the eight bytes
    bool writes;
    bool atomic;
    const void* by;
  };
  struct cell {
    std::uintptr_t at = 0;
    std::uint32_t epoch = 0;
    std::array<std::int8_t, 8> location;  ///< of the atomic that begins at this byte; -1: none
    bool freed = false;
    std::vector<touch> touches;
  };
  struct spin {
    const void* by = nullptr;
    const volatile void* at = nullptr;
    const test::weak_location* place = nullptr;
    std::uint32_t stamp = 0;
    std::uint64_t value = 0;
    int times = 0;
  };
  struct sleeper {
    const void* word = nullptr;
    bool asleep = false;
  };
  struct garbage {
    void* at;
    void (*free)(void*);
  };

  static std::uint64_t cut(std::uint64_t v, std::size_t size) {
    return size == 8 ? v : v & ((std::uint64_t{1} << 8 * size) - 1);
  }
  static std::uint64_t value_at(const volatile void* at, std::size_t size);
  static void keep(volatile void* at, std::size_t size, const test::weak_location& place);

  std::memory_order ordered(site::kind what, int order, const void* by, int failure = 0);
  test::weak_location& atomic(const volatile void* at, std::size_t size, bool writes,
                              const void* by);
  test::weak_location& location_at(const volatile void* at, std::size_t size, const void* by);
  void touched(const void* at, std::size_t bytes, bool writes, bool atomic, const void* by);
  void touch_cell(cell& c, std::uint8_t mask, bool writes, bool atomic, const void* by);
  cell& cell_of(std::uintptr_t granule);
  lock_state& lock_of(const void* mutex);
  void point(const void* place, bool writes);
  void wait_point(const void* place, const bool& blocked);
  static void tell(const char* what, const volatile void* at, std::uint64_t v, const void* by);
  static test::explorer& e() { return *test::explorer::active(); }

  test::weak_memory memory_;
  std::vector<test::weak_location> places_ =
      std::vector<test::weak_location>(test::weak_memory::most_locations);
  std::size_t used_ = 0;
  std::vector<cell> cells_ = std::vector<cell>(std::size_t{1} << 14);
  std::uint32_t epoch_ = 0;
  std::array<lock_state, 96> locks_;
  std::size_t locks_used_ = 0;
  std::array<spin, threads> spins_;
  std::array<sleeper, threads> sleepers_;
  std::vector<garbage> garbage_;
};

}  // namespace verge::orders
