// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>

#include <verge/runtime.h>

#pragma GCC visibility push(default)

/// A recording of what a runtime does for a while, for Perfetto (ui.perfetto.dev) or Chrome:
///
///   verge::trace recording(rt);
///   std::this_thread::sleep_for(2s);
///   recording.stop();
///   std::ofstream file("trace.json");
///   recording.write(file);
///
/// There is a track for each processor, and for each spare one that ran something while the others
/// were stuck: callbacks, turns of tasks and the times at which the processor was idle are slices
/// on it. Every timer that was started is a slice from there until it fires or is stopped.
///
/// Events are recorded into rings of a fixed size. If there are more, the oldest are lost, and the
/// recording says how many. While it lasts an operation on a timer takes longer, as it is
/// recorded; before and after it costs nothing.
namespace verge {

namespace detail {
struct [[gnu::visibility("hidden")]] trace_recording;
}

/// How much of a recording is kept.
struct trace_options {
  /// How many events are kept of each processor, and of operations on timers: rounded up to a power
  /// of two, 1 Ki to 1 Mi. The first recording of a runtime decides; each takes 64 bytes, until the
  /// runtime ends.
  std::size_t events{1 << 15};
};

/// A recording, of all that ends while it is under way: what was going on when it began is in it as
/// well. It must end before its runtime does.
class trace {
 public:
  /// Begins it. Throws std::logic_error if one of that runtime is under way, and std::bad_alloc.
  explicit trace(runtime& rt, trace_options options = {});
  /// Ends it, if stop() has not.
  ~trace();
  trace(const trace&) = delete;
  trace& operator=(const trace&) = delete;

  /// Ends it.
  void stop() noexcept;
  /// Writes it, after stop(), in Chrome's format: JSON, with times in microseconds. Throws
  /// std::logic_error if it has not been stopped.
  void write(std::ostream& out) const;
  /// How many events there were for which there was no room, after stop().
  std::uint64_t lost() const noexcept;

 private:
  detail::trace_recording* recording_;
};

}  // namespace verge

#pragma GCC visibility pop
