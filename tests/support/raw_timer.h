// SPDX-License-Identifier: Apache-2.0
// A timer with any time and period, below the public interface: for example one that is periodic
// and due in the past, which no handle supports.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include <engine/clockwork.h>
#include <verge/detail/timer_functions.h>

namespace verge::test {

class raw_timer {
 public:
  raw_timer(detail::scheduler& s, std::int64_t when, std::int64_t period, std::function<void()> f)
      : node_(detail::make_timer(s.timers())) {
    using callable = std::function<void()>;
    detail::node_callable<callable>::make(node_, std::move(f));
    node_.run = &detail::run_callback;
    node_.does.store(&detail::callback_behaviour<callable>, std::memory_order_relaxed);
    s.timers().start(node_, when, period);
  }
  ~raw_timer() { detail::destroy_timer(node_); }
  raw_timer(const raw_timer&) = delete;
  raw_timer& operator=(const raw_timer&) = delete;

 private:
  detail::timer_node& node_;
};

}  // namespace verge::test
