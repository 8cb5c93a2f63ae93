// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#pragma GCC visibility push(default)

namespace verge::detail {

/// A reference with one owner, or none: what verge's move-only handles are made of. `Ref` is a
/// pointer or a coroutine handle; `Drop`, called with it, says what its end means.
template <class Ref, class Drop>
class owned {
 public:
  owned() noexcept = default;
  explicit owned(Ref ref) noexcept : ref_(ref) {}
  owned(owned&& other) noexcept : ref_(other.release()) {}
  owned& operator=(owned&& other) noexcept {
    owned(std::move(other)).swap(*this);
    return *this;
  }
  ~owned() {
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): lost in a binding `[d, e]`
    if (ref_ != nullptr) Drop()(ref_);
  }

  void swap(owned& other) noexcept { std::swap(ref_, other.ref_); }
  Ref get() const noexcept { return ref_; }
  /// Gives the reference to the caller, which has to drop it.
  Ref release() noexcept { return std::exchange(ref_, nullptr); }
  explicit operator bool() const noexcept { return ref_ != nullptr; }

 private:
  Ref ref_{nullptr};
};

}  // namespace verge::detail

#pragma GCC visibility pop
