// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <verge/endpoint.h>
#include <verge/runtime.h>

#pragma GCC visibility push(default)

/// The inspector: a page that shows what a live runtime does.
///
///   verge::inspector page(rt);                       // http://127.0.0.1:6060/
///
/// It shows pending timers by when they are due, how late timers were in the last minutes, what the
/// processors do, what the wheel looks like, stalls, tasks and labels; and it has
///
///     /metrics             the figures for Prometheus (verge/metrics.h)
///     /stats.json          what the page shows
///     /trace?seconds=2     a recording (verge/trace.h), for ui.perfetto.dev; 30 s at most
///     /dump                what each task waits for, and the timers due next (verge/dump.h)
///
/// It runs on a runtime of its own, with one processor, so it answers while the other is stuck, and
/// adds nothing to what the other has to do. It reads timers without a lock, and no more than some
/// thousands of them for each look: with a million timers and a page that looks once a second it
/// takes less than 1 % of a core (docs/observability.md).
///
/// It listens on the loopback interface only, and answers requests for a loopback name only, unless
/// it is given a token.
namespace verge {

/// Where the page is served, and what a request has to have.
struct inspector_options {
  /// Where it listens: an IP address. With port 0 the kernel chooses one: inspector::at().
  endpoint at{endpoint::loopback(6060)};
  /// With a token, of 16 characters or more, every request has to have it: as `?token=TOKEN`, which
  /// the page passes on, or in a header `Authorization: Bearer TOKEN`. An address other than the
  /// loopback interface needs one. What it protects is sent as it is: use it in a network that is
  /// trusted, or through a tunnel.
  std::string token{};
};

/// The page of a runtime, as long as this lives. It must be destroyed before the runtime.
class inspector {
 public:
  /// Throws std::invalid_argument for an address that needs a token, or a token that is too short,
  /// and std::system_error if it cannot listen there.
  explicit inspector(runtime& rt, inspector_options options = {});
  ~inspector();
  inspector(const inspector&) = delete;
  inspector& operator=(const inspector&) = delete;

  /// Where it listens.
  endpoint at() const;
  /// The page's address, with the token if there is one.
  std::string url() const;

 private:
  class [[gnu::visibility("hidden")]] implementation;
  std::unique_ptr<implementation> it_;
};

}  // namespace verge

#pragma GCC visibility pop
