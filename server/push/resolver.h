// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/runtime.h>

#include "dns_client.h"
#include "lookup_threads.h"
#include "name_files.h"

/// Names to addresses: by the system's files and by DNS, as the C library would do it, and by the C
/// library where the system uses more than these.
///
/// A name server that does not answer holds up the names that it serves, and no others: a question
/// over DNS needs no thread, and lookups that block are kept apart by how they went before. One
/// name is looked up once at a time, however many ask for it. An answer is used for a few seconds,
/// also if it is that there is none; a name that has been looked up for longer than one waits for
/// it is answered at once.
///
/// Ground rules: everything is in a core under one lock, which lookups share, so that the resolver
/// can be destroyed while one hangs.
namespace verge::server::push {

class resolver {
 public:
  struct options {
    std::size_t most_waiting{4'096};             ///< names; more are answered with an error at once
    std::chrono::milliseconds patience{10'000};  ///< for one name
    std::chrono::seconds remember{5};
    std::chrono::seconds remember_failure{3};
    name_paths files{};
    lookup_threads::options threads{};
    /// For tests. A lookup that blocks, instead of all others; a name server; what is asked for.
    lookup_threads::lookup look_up{};
    std::optional<endpoint> server{};
    std::optional<bool> with_v6{};
  };

  /// `rt` has to outlive it.
  resolver(runtime& rt, options o);
  resolver(const resolver&) = delete;
  resolver& operator=(const resolver&) = delete;
  ~resolver();

  /// The channel gets one answer, unless the lookup hangs: one should wait for it no longer than
  /// patience(). May be called on any thread; does not block.
  chan<addresses> resolve(const std::string& host, std::uint16_t port);
  std::chrono::milliseconds patience() const noexcept;

 private:
  struct core;
  static verge::task<> ask(std::shared_ptr<core> c, std::shared_ptr<const name_sources> sources,
                           std::string host, std::uint16_t port);

  runtime& runtime_;
  std::shared_ptr<core> core_;
  lookup_threads threads_;
};

}  // namespace verge::server::push
