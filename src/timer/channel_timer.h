// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/detail/timer_node.h>

/// Timers that send the time to a channel: one-shots, and tickers with their three ways to miss a
/// tick. See channel_timer.cc.
namespace verge::detail {

using tick_state = chan_state<clock::time_point>;

enum class channel_kind : std::uint8_t { one_shot, skip, burst, delay };

/// A node with a channel, not started. If it is a ticker and has a handle, then that is to have a
/// share in the channel. Throws std::bad_alloc.
timer_node& make_channel_timer(clockwork& of, channel_kind kind, bool has_handle,
                               const work_name& name);
void destroy_channel(timer_node& t) noexcept;
inline bool is_channel_timer(const timer_node& t) noexcept {
  return t.does.load(std::memory_order_relaxed)->destroy == &destroy_channel;
}
/// The runtime has ended: closes the timer's channel, if it has one, and wakes those that wait.
/// Takes any node that was ever made, also one that another thread is about to free.
void close_channel_of(timer_node& t) noexcept;
/// The channel, with a reference for the caller.
tick_state* share_channel(const timer_node& t) noexcept;

/// First due after `delay`, then every `period` if it is a ticker.
void start_channel(timer_node& t, std::int64_t when, std::int64_t period);
bool is_ticker(const timer_node& t) noexcept;

}  // namespace verge::detail
