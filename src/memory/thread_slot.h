// SPDX-License-Identifier: Apache-2.0
// A small number for each thread, for tables with one place per thread.
//
// No two running threads have the same number. A thread takes the lowest free number on first use
// and returns it when it ends; the next thread that takes it also takes over that place in every
// table, and sees everything that the previous thread did there. So threads and tables can be
// created and destroyed independently.
//
// Ground rules. Only the thread of a number may write to the number's place. There are
// `thread_slot_count` numbers. A thread has none if none is free, after it has returned its own (in
// the destructor of a pthread key), or if there is no memory to register its return; callers must
// handle that.
//
// Use it in plain functions, not in the body of a coroutine, which may resume on another thread
// with the address of this thread's variable.
#pragma once

#include <cstdint>

namespace verge::detail {

inline constexpr std::uint32_t thread_slot_count = 256;

/// No number: a table with one place more has one for threads without.
inline constexpr std::uint32_t no_thread_slot = thread_slot_count;

// initial-exec: a plain fs-relative access, from the shared library as well.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local std::uint32_t this_thread_slot;

/// The calling thread's number, if it already has one.
inline std::uint32_t thread_slot() noexcept { return this_thread_slot; }

/// The calling thread's number; takes one if it has none. `no_thread_slot` if that fails.
std::uint32_t take_thread_slot() noexcept;

/// Greater than any number that was ever taken.
std::uint32_t thread_slots_used() noexcept;

}  // namespace verge::detail
