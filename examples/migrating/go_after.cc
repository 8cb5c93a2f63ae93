// SPDX-License-Identifier: Apache-2.0

// The same with verge.

#include <chrono>
#include <cstdio>
#include <optional>
#include <system_error>

#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

// [code]
verge::task<std::error_code> worker(verge::context ctx, verge::receiver<int> jobs) {
  verge::ticker ticker(10ms);
  for (;;) {
    std::optional<int> job;
    switch (co_await verge::select(verge::recv(jobs, job), verge::recv(ticker.c()),
                                   verge::recv(ctx.done()))) {
      case 0:
        if (!job) co_return std::error_code();
        std::printf("job %d\n", *job);
        break;
      case 1:
        // flush
        break;
      case 2:
        co_return ctx.err();
    }
  }
}
// [/code]

}  // namespace

int main() {
  auto [ctx, cancel] = verge::with_timeout(verge::background(), 50ms);
  const verge::chan<int> jobs(1);
  jobs.send(1);
  const auto error = verge::default_runtime().run(worker(ctx, jobs));
  std::printf("%s\n", error.message().c_str());
}
