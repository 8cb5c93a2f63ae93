// SPDX-License-Identifier: Apache-2.0

// Tells the model of every access of the code that is compiled for it.
//
// One thread at a time makes accesses that count (coherence.cc), so the model needs no lock.

#include <cstddef>
#include <cstdint>

#include "caches.h"

namespace verge::coherence {

caches* current = nullptr;
thread_local constinit int this_core = -1;

}  // namespace verge::coherence

namespace {

/// The stack, and what is thread_local: all cores use those of one thread.
bool is_private(const void* at) {
  const auto n = reinterpret_cast<std::uintptr_t>(at);
  const auto stack = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const auto thread = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
  constexpr std::uintptr_t near = 1U << 16;
  return n - (stack - near) < 2 * near || n - (thread - near) < near + 4096;
}

template <class F>
void tell(const void* at, F&& f) {
  using verge::coherence::this_core;
  if (this_core < 0 || is_private(at)) return;
  const int core = this_core;
  this_core = -1;  // the model's own accesses do not count
  f(*verge::coherence::current, static_cast<unsigned>(core));
  this_core = core;
}

void on_read(const void* at, std::size_t bytes, const void* by) {
  tell(at, [&](auto& model, unsigned core) { model.read(core, at, bytes, by); });
}
void on_write(const void* at, std::size_t bytes, const void* by) {
  tell(at, [&](auto& model, unsigned core) { model.write(core, at, bytes, by); });
}
void on_change(const void* at, std::size_t bytes, const void* by) {
  if (bytes != 0) on_write(at, bytes, by);
}

}  // namespace

#include "access_hooks.h"

// The library says that it will change this line: it is fetched for that at once.
extern "C" void verge_will_change(const void* line);
extern "C" void verge_will_change(const void* line) {
  on_write(line, 1, __builtin_return_address(0));
}
