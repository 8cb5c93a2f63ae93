// SPDX-License-Identifier: Apache-2.0

// One deadline for a whole tree of work: tasks, their tasks, and a thread that knows only
// std::stop_token.

#include <chrono>
#include <cstdio>
#include <stop_token>
#include <thread>

#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/under.h>

using namespace std::chrono_literals;

namespace {

verge::task<> query(verge::context ctx, int shard) {
  auto [mine, cancel] = verge::with_timeout(ctx, 1h);  // never later than the parent
  try {
    co_await verge::under(mine, verge::sleep(24h));
  } catch (const verge::context_error& e) {
    std::printf("shard %d: %s\n", shard, e.code().message().c_str());
  }
}

verge::task<> request(verge::context ctx) {
  auto first = verge::go(query, ctx, 1);
  co_await first;
  std::jthread legacy([stop = ctx.stop_token()] {
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    std::puts("thread: stop requested");
  });
}

}  // namespace

int main() {
  auto [ctx, cancel] = verge::with_timeout(verge::background(), 20ms);
  verge::default_runtime().run(request(ctx));
  std::printf("request: %s\n", ctx.err().message().c_str());
}
