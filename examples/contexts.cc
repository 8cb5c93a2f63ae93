// SPDX-License-Identifier: Apache-2.0

// One request, handled by several tasks and a thread that does not use verge, with one deadline:
// when the first backend has answered, or the deadline has passed, the rest is cancelled.

#include <chrono>
#include <cstdio>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include <verge/chan.h>
#include <verge/context.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/under.h>

using namespace std::chrono_literals;

namespace {

const verge::context_key<std::string> user;

// Queries one backend. Its wait ends when the context is done.
verge::task<> ask(verge::context ctx, std::string backend, std::chrono::milliseconds takes,
                  verge::sender<std::string> answers) {
  co_await verge::under(ctx, verge::sleep(takes));
  co_await verge::under(ctx, verge::send(answers, backend + " says hello to " + *ctx.value(user)));
}

// Code that has a std::stop_token and does not know contexts.
int count_until(const std::stop_token& stop) {
  int n = 0;
  for (; !stop.stop_requested(); ++n) std::this_thread::sleep_for(1ms);
  return n;
}

verge::task<> serve(verge::context parent, std::chrono::milliseconds limit) {
  auto [ctx, cancel] = verge::with_timeout(verge::with_value(parent, user, "ann"), limit);
  verge::chan<std::string> answers;
  for (const int n : {1, 2, 3})
    verge::go(ask, ctx, "backend " + std::to_string(n), n * 20ms, answers).detach();
  std::jthread counting([token = ctx.stop_token()] { count_until(token); });

  try {
    const std::optional<std::string> first = co_await verge::under(ctx, verge::recv(answers));
    std::printf("%s\n", first->c_str());
  } catch (const verge::context_error& e) {
    std::printf("no backend has answered: %s\n", e.code().message().c_str());
  }
}  // the canceller is destroyed, which cancels what still runs

}  // namespace

int main() {
  verge::default_runtime().run(serve(verge::background(), 1s));
  verge::default_runtime().run(serve(verge::background(), 5ms));
}
