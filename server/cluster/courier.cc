// SPDX-License-Identifier: Apache-2.0

#include "courier.h"

#include <chrono>
#include <deque>
#include <utility>

#include <verge/time.h>

#include "../broker/broker.h"

namespace verge::server::cluster {

namespace {

using namespace std::chrono_literals;

constexpr auto pause_after_failure = 1s;

}  // namespace

courier::courier(runtime& rt, command_sink& from, command_sink& to) : from_(from), to_(to) {
  running_ = rt.spawn([this] { return run(); });
}

verge::task<> courier::stop() {
  stopping_.store(true);
  from_.submit({here_, command(verb::give_up)});
  here_->wake();
  there_->wake();
  co_await running_;
}

verge::task<> courier::run() {
  bool asked = false;
  while (!stopping_.load()) {
    if (!asked) {
      command c(verb::reserve);
      c.tube = outbox;
      from_.submit({here_, std::move(c)});
      asked = true;
    }
    co_await here_->wait();
    std::deque<reply> taken = here_->take();
    for (reply& r : taken) {
      asked = false;
      if (r.what == answer::moved || r.what == answer::internal_error) stopping_.store(true);
      if (r.what != answer::reserved) continue;
      const bool carried = co_await carry(r.task);
      command done(carried ? verb::remove : verb::postpone, r.task.id);
      done.token = r.task.token;
      done.time = std::chrono::nanoseconds(pause_after_failure).count();
      from_.submit({clerk_, std::move(done)});
    }
  }
  from_.submit({here_, command(verb::leave)});
  from_.submit({clerk_, command(verb::leave)});
  to_.submit({there_, command(verb::leave)});
}

verge::task<bool> courier::carry(const handed_out& t) {
  command c(verb::put);
  c.tube = t.fields->dead_letter;
  new_task& n = c.tasks.emplace_back();
  n.priority = t.fields->priority;
  n.ttr = t.fields->ttr;
  n.body = *t.body;
  auto once = std::make_shared<once_key>();
  once->key = "dead/" + std::to_string(t.id);
  once->print = "dead";
  c.once = std::move(once);
  to_.submit({there_, std::move(c)});
  for (;;) {
    std::deque<reply> replies = there_->take();
    if (!replies.empty()) co_return replies.front().what == answer::inserted;
    if (stopping_.load()) co_return false;
    co_await there_->wait();
  }
}

}  // namespace verge::server::cluster
