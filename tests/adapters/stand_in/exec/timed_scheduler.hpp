// SPDX-License-Identifier: Apache-2.0
// A stand-in for the timed schedulers of stdexec: three names that look the scheduler up with
// tag_invoke, and the concept that they form.
#pragma once

#include <utility>

#include <stdexec/execution.hpp>

namespace exec {

struct now_t {
  template <class S>
  auto operator()(const S& s) const -> decltype(tag_invoke(*this, s)) {
    return tag_invoke(*this, s);
  }
};
struct schedule_after_t {
  template <class S, class D>
  auto operator()(const S& s, const D& d) const -> decltype(tag_invoke(*this, s, d)) {
    return tag_invoke(*this, s, d);
  }
};
struct schedule_at_t {
  template <class S, class T>
  auto operator()(const S& s, const T& t) const -> decltype(tag_invoke(*this, s, t)) {
    return tag_invoke(*this, s, t);
  }
};
inline constexpr now_t now{};
inline constexpr schedule_after_t schedule_after{};
inline constexpr schedule_at_t schedule_at{};

template <class S>
concept timed_scheduler = stdexec::scheduler<S> && requires(const S& s) {
  now(s);
  { schedule_at(s, now(s)) } -> stdexec::sender;
  { schedule_after(s, typename decltype(now(s))::duration()) } -> stdexec::sender;
};

}  // namespace exec
