#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/endpoint.h>

/// Names to addresses. getaddrinfo() blocks, for many seconds if a name server does not answer: it
/// runs on a few threads of its own, never on one that serves.
///
/// Ground rules: everything is in a core under one lock. Threads and callers share the core, so
/// that the resolver can be destroyed while a lookup hangs: its thread ends when the lookup does.
/// One name is looked up once at a time, however many ask for it: a name that hangs holds one
/// thread. An answer is used for a few seconds.
namespace verge::server::push {

struct addresses {
  std::vector<endpoint> found;  ///< with the port that was asked for
  std::string why;              ///< if there are none
};

class resolver {
 public:
  /// Blocks. For tests it is another one than the system's.
  using lookup = std::function<addresses(const std::string& host, std::uint16_t port)>;
  struct options {
    std::size_t threads{8};
    std::size_t most_waiting{4'096};  ///< names; more are answered with an error at once
    std::chrono::seconds remember{5};
    lookup look_up;  ///< nothing: the system's
  };

  explicit resolver(options o);
  resolver(const resolver&) = delete;
  resolver& operator=(const resolver&) = delete;
  ~resolver();

  /// The channel gets one answer. May be called on any thread; does not block.
  chan<addresses> resolve(const std::string& host, std::uint16_t port);

 private:
  struct core;
  static void work(const std::shared_ptr<core>& c);

  std::shared_ptr<core> core_;
};

}  // namespace verge::server::push
