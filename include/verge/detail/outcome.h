// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verge::detail {

/// How a task ended: with a result or with an exception; or it has not.
template <class T>
class outcome {
 public:
  template <class U>
  void set_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  void set_error(std::exception_ptr e) noexcept { error_ = std::move(e); }

  /// Gives the result away, or throws the exception.
  T take() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return std::move(*value_);
  }
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }

 private:
  std::optional<T> value_;
  std::exception_ptr error_;
};

template <class T>
class outcome<T&> {
 public:
  void set_value(T& value) noexcept { value_ = &value; }
  void set_error(std::exception_ptr e) noexcept { error_ = std::move(e); }
  T& take() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return *value_;
  }
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }

 private:
  T* value_{nullptr};
  std::exception_ptr error_;
};

template <>
class outcome<void> {
 public:
  void set_error(std::exception_ptr e) noexcept { error_ = std::move(e); }
  void take() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }

 private:
  std::exception_ptr error_;
};

}  // namespace verge::detail

#pragma GCC visibility pop
