// SPDX-License-Identifier: Apache-2.0
// fiber_locals: the program's thread_local variables, for threads that are fibers of one thread.
// They are exchanged whenever a fiber is left and entered.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <explorer/explorer.h>

namespace verge::orders {

class fiber_locals {
 public:
  static fiber_locals& now() {
    static fiber_locals all;
    return all;
  }

  /// Every fiber begins with what the thread has now, changed by f(number of the fiber).
  template <class F>
  void begin(F&& f) {
    const std::vector<std::byte> before(start_, start_ + size_);
    for (std::size_t i = 0; i < fibers_.size(); ++i) {
      f(i);
      leave(i);
      restore(before);
    }
    main_ = before;
  }
  void leave(std::size_t fiber) { fibers_[fiber].assign(start_, start_ + size_); }
  void enter(std::size_t fiber) { restore(fibers_[fiber]); }
  /// The thread is itself again.
  void end() { restore(main_); }

  [[nodiscard]] bool contains(const void* p) const {
    const auto* const b = static_cast<const std::byte*>(p);
    return b >= start_ && b < start_ + size_;
  }

 private:
  fiber_locals();  // NOLINT(modernize-use-equals-delete): it is defined elsewhere
  void restore(const std::vector<std::byte>& saved) {
    for (std::size_t i = 0; i < size_; ++i) start_[i] = saved[i];
  }

  std::byte* start_ = nullptr;
  std::size_t size_ = 0;
  std::array<std::vector<std::byte>, test::explorer::most_threads> fibers_;
  std::vector<std::byte> main_;
};

}  // namespace verge::orders
