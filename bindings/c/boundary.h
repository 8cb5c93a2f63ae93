// SPDX-License-Identifier: Apache-2.0
// What every function of libverge-c does at the boundary: no exception leaves, options of any size
// come in, and a C callback becomes a callable.
#pragma once

#include <verge/simulation.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "verge_c.h"

namespace verge::c {

/// A fault of the caller, as the function returns it.
class fault : public std::exception {
 public:
  explicit fault(int error) noexcept : error_(error) {}
  [[nodiscard]] int error() const noexcept { return error_; }

 private:
  int error_;
};

/// The negative errno of the exception that is being handled.
inline int error_of_exception() noexcept {
  try {
    throw;
  } catch (const fault& e) {
    return -e.error();
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (const deadlock&) {
    return -EDEADLK;
  } catch (const std::system_error& e) {
    return e.code().value() > 0 ? -e.code().value() : -EIO;
  } catch (const std::logic_error&) {  // std::invalid_argument, and misuse of an object
    return -EINVAL;
  } catch (...) {
    return -EIO;
  }
}

/// Calls f, and returns its result or the negative errno of what it threw.
template <class F>
auto guarded(F&& f) noexcept -> decltype(f()) {
  try {
    return std::forward<F>(f)();
  } catch (...) {
    return error_of_exception();
  }
}

inline void require(bool condition) {
  if (!condition) throw fault(EINVAL);
}

/// The caller's options: what it does not know of stays 0. A caller with a later header may not use
/// what this library does not know: then -E2BIG, as for system calls.
template <class Options>
Options read_options(const Options* from) {
  Options to{};
  if (from == nullptr) return to;
  require(from->size >= sizeof from->size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof to; i < from->size; ++i)
    if (bytes[i] != 0) throw fault(E2BIG);
  std::memcpy(&to, from, std::min(from->size, sizeof to));
  return to;
}

/// A callback with its argument, which is destroyed with the last copy.
///
/// The functions that start a timer keep a copy until the timer has started. If that fails they
/// disown the argument: no other thread has a copy then.
class call {
 public:
  call(verge_callback f, void* argument, verge_callback destroy)
      : body_(std::make_shared<body>(f, argument, destroy)) {}
  void operator()() const { body_->f(body_->argument); }

  /// start(call) with the argument disowned if it throws.
  template <class Start>
  static auto start(verge_callback f, void* argument, verge_callback destroy, Start&& start) {
    require(f != nullptr);
    const call c(f, argument, destroy);
    try {
      return std::forward<Start>(start)(c);
    } catch (...) {
      c.body_->destroy = nullptr;
      throw;
    }
  }

 private:
  struct body {
    verge_callback f;
    void* argument;
    verge_callback destroy;
    body(verge_callback called, void* with, verge_callback at_the_end) noexcept
        : f(called), argument(with), destroy(at_the_end) {}
    body(const body&) = delete;
    body& operator=(const body&) = delete;
    ~body() {
      if (destroy != nullptr) destroy(argument);
    }
  };
  std::shared_ptr<body> body_;
};

}  // namespace verge::c
