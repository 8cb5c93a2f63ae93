// SPDX-License-Identifier: Apache-2.0

// Boost.Asio: a steady_timer for each, on one io_context.
//
// For a single thread the io_context is told so (BOOST_ASIO_CONCURRENCY_HINT_UNSAFE), which removes
// its locks. A stopped timer is destroyed, which cancels its wait; the handler of that runs when
// the loop runs.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/version.hpp>
#include <chrono>
#include <memory>

#include "driver.h"
#include "linked.h"

namespace verge::bench {
namespace {

namespace asio = boost::asio;

class asio_adapter : public on_plain_threads {
 public:
  using handle = std::unique_ptr<asio::steady_timer>;
  static constexpr bool thread_safe = true;
  static constexpr bool has_loop = true;
  static constexpr const char* no_lateness = nullptr;

  explicit asio_adapter(const setting& s)
      : loop_(s.shared ? BOOST_ASIO_CONCURRENCY_HINT_DEFAULT : BOOST_ASIO_CONCURRENCY_HINT_UNSAFE),
        work_(loop_.get_executor()) {}

  handle start(std::int64_t delay, appointment* a) {
    auto t = std::make_unique<asio::steady_timer>(loop_, std::chrono::nanoseconds(delay));
    wait_for(*t, a);
    return t;
  }
  void stop(handle& h) { h.reset(); }
  void reset(handle& h, std::int64_t delay) {
    h->expires_after(std::chrono::nanoseconds(delay));
    wait_for(*h, nullptr);
  }
  void run_due(unsigned /*thread*/) { loop_.poll(); }
  void wait() { loop_.run_one(); }

 private:
  static void wait_for(asio::steady_timer& t, appointment* a) {
    t.async_wait([a](const boost::system::error_code& cancelled) {
      if (!cancelled) call(a);
    });
  }

  asio::io_context loop_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
};

}  // namespace

linked_peer boost_asio_peer() {
  return {.version = std::to_string(BOOST_VERSION / 100000) + "." +
                     std::to_string(BOOST_VERSION / 100 % 1000) + "." +
                     std::to_string(BOOST_VERSION % 100),
          .run = &driver<asio_adapter>::run};
}

}  // namespace verge::bench
