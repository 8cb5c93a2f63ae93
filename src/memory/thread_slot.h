// A small number for each thread, for tables that give each thread a place of its own.
//
// No two threads that are alive have the same number. A thread takes the lowest that is free when
// it first asks, and gives it back when it ends; the thread that takes it next takes over whatever
// lies at that place in any table, and sees all that the one before did there. So a table needs no
// care when threads come and go, and threads none when tables do.
//
// Ground rules. What lies at a number's place may be written by that number's thread only. There
// are `thread_slot_count` numbers; a thread that finds none left, asks after it gave its own back
// (from the destructor of a pthread key), or lacks the memory to give it back at its end, has none
// and must do without.
//
// To be asked for in plain functions, not in the body of a coroutine, which may go on in another
// thread with what the compiler remembers of this one.
#pragma once

#include <cstdint>

namespace verge::detail {

inline constexpr std::uint32_t thread_slot_count = 256;

/// Not a number: `thread_slot_count` or more.
inline constexpr std::uint32_t no_thread_slot = UINT32_MAX;

// initial-exec: a plain fs-relative access, from the shared library as well.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local std::uint32_t this_thread_slot;

/// The calling thread's number if it has one already.
inline std::uint32_t thread_slot() noexcept { return this_thread_slot; }

/// The calling thread's number; takes one if it has none. `no_thread_slot` if there is none to
/// take.
std::uint32_t take_thread_slot() noexcept;

/// More than any number that was ever taken.
std::uint32_t thread_slots_used() noexcept;

}  // namespace verge::detail
