// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <cstdint>

#pragma GCC visibility push(default)

/// How one coroutine makes another continue in its place, without the stack growing.
///
/// The language has symmetric transfer for this, but with g++ that is only as good as the tail
/// calls of the optimiser: below -O2 and with a sanitizer every transfer nests, and a loop that
/// awaits a million tasks overflows the stack. So coroutines are resumed by a loop, and a transfer
/// looks how far it is above that: if it is not far, it is a symmetric one, else the coroutine
/// says which one continues and returns to the loop, which resumes that one. With tail calls it is
/// never far.
///
/// Ground rules
///  - Every coroutine is resumed by run_coroutine(). A transfer that finds no loop on its thread,
///    because foreign code has resumed the coroutine, becomes one.
///  - A transfer lives in a coroutine that stays suspended until the loop has looked at it.
namespace verge::detail {

struct transfer {
  std::coroutine_handle<> to;
  transfer* next{nullptr};
};

struct transfer_loop {
  /// Where on the stack the loop is.
  std::uintptr_t base{reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))};
  /// Those that are to continue. More than one only if foreign code resumes coroutines within one.
  transfer* first{nullptr};
};

/// The innermost loop that runs on the calling thread.
inline constinit thread_local transfer_loop* current_loop = nullptr;

/// Resumes h, and then what continues in its place.
inline void run_coroutine(std::coroutine_handle<> h) {
  transfer_loop loop;
  transfer_loop* const outer = current_loop;
  current_loop = &loop;
  h.resume();
  while (transfer* t = loop.first) {
    loop.first = t->next;
    t->to.resume();  // destroys t
  }
  current_loop = outer;
}

/// Makes t.to continue once the calling coroutine, which is suspended, has returned.
inline void transfer_through_loop(transfer& t) {
  if (transfer_loop* loop = current_loop) {
    t.next = loop->first;
    loop->first = &t;
  } else {
    run_coroutine(t.to);
  }
}

/// Makes t.to continue in place of the calling coroutine: for await_suspend to return.
inline std::coroutine_handle<> transfer_control(transfer& t) {
  constexpr std::uintptr_t far = 32 << 10;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (const transfer_loop* loop = current_loop; loop != nullptr && loop->base - here < far)
      [[likely]]
    return t.to;
  transfer_through_loop(t);
  return std::noop_coroutine();
}

}  // namespace verge::detail

#pragma GCC visibility pop
