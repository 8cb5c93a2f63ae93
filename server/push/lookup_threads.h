// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <verge/runtime.h>

#include "dns_client.h"

/// Lookups that block, on threads of their own: the C library's, for names that it alone can
/// resolve.
///
/// A call that blocks cannot be ended. So one that has taken long is not counted among those at
/// work any more, and the next name has a thread, up to a limit. Names that were quick last time
/// come first, then those that are new, then those that took long; and the last two may not have
/// all threads. So names that hang hold up one another, and a name that was quick waits for none.
///
/// Ground rules: everything is in a core under one lock. Threads and the owner share the core, so
/// that the owner can be destroyed while a lookup hangs: its thread ends when the lookup does. Each
/// lookup has a thread: starting one takes little beside it.
namespace verge::server::push {

class lookup_threads {
 public:
  using lookup = std::function<addresses(const std::string& host, std::uint16_t port)>;
  struct options {
    std::size_t at_work{64};                   ///< lookups that are not known to hang
    std::size_t all{1'024};                    ///< and with those that do
    std::chrono::milliseconds long_time{100};  ///< after so long a lookup hangs
    lookup look_up{};
  };
  lookup_threads(runtime& rt, options o);
  lookup_threads(const lookup_threads&) = delete;
  lookup_threads& operator=(const lookup_threads&) = delete;
  ~lookup_threads();

  /// `told` is called once, on some thread. Does not block.
  void start(std::string host, std::uint16_t port, std::function<void(addresses)> told);

 private:
  struct core;
  std::shared_ptr<core> core_;
};

/// The C library's getaddrinfo.
addresses system_lookup(const std::string& host, std::uint16_t port);

}  // namespace verge::server::push
