// SPDX-License-Identifier: Apache-2.0

// Functions and tasks that do not fit where they are passed. mistakes_test.cc compiles this: each
// line with a comment gives one error, with that text in it.
#include <verge/context.h>
#include <verge/group.h>
#include <verge/retry.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/timeout.h>
#include <verge/under.h>

#include <memory>
#include <utility>

using namespace std::chrono_literals;

const auto when = verge::clock::time_point();
const auto wants_int = [](int) {};
verge::task<int> answer();
verge::task<long> other();

verge::task<int> awaits_a_named_task() {
  auto t = answer();
  co_return co_await t;  // error: co_await std::move(t)
}

void takes_arguments_that_nobody_passes(verge::runtime& rt, const verge::context& ctx) {
  verge::after_func(1s, wants_int).detach();        // error: a callback takes no arguments
  verge::after_func(when, [](long) {}).detach();    // error: a callback takes no arguments
  verge::after_func(rt, 1s, [](char) {}).detach();  // error: a callback takes no arguments
  verge::after_func(ctx, [](bool) {}).detach();     // error: a callback takes no arguments
  verge::every(1s, [](double) {}).detach();         // error: a callback takes no arguments
  verge::go(wants_int).detach();                    // error: these do not fit
  verge::go(wants_int, "1").detach();               // error: these do not fit
  verge::go(rt, [](long) {}).detach();              // error: these do not fit
}

void passes_what_cannot_be_copied() {
  auto f = [p = std::make_unique<int>()] {};
  verge::after_func(1s, f).detach();  // error: pass it with std::move
  auto g = [p = std::make_unique<int>()]() -> verge::task<> { co_return; };
  verge::after_func(1s, std::move(g)).detach();  // error: std::shared_ptr
  auto t = answer();
  verge::go(t).detach();            // error: pass it with std::move(t)
  verge::go(answer(), 1).detach();  // error: it has them already
}

void returns_what_must_be_awaited(verge::runtime& rt, const verge::context& ctx) {
  verge::after_func(1s, [] { return verge::sleep(1s); }).detach();  // error: make it a coroutine
  verge::every(1s, &verge::yield).detach();                         // error: make it a coroutine
  verge::after_func(ctx, [] { return verge::yield(); }).detach();   // error: make it a coroutine
  verge::go(rt, [] { return verge::sleep(2s); }).detach();          // error: make it a coroutine
}

void takes_it_in_another_order() {
  verge::after_func(5, [] {}).detach();   // error: a delay has a unit
  verge::every(5, [] {}).detach();        // error: a period has a unit
  verge::after_func([] {}, 5s).detach();  // error: the delay comes first
  verge::every([] {}, 5s).detach();       // error: the period comes first
  verge::sleep(5).wait();                 // error: a sleep has a unit
}

void names_a_task(verge::runtime& rt, const verge::context& ctx) {
  auto t = answer();
  verge::go(verge::timeout(t, 1s)).detach();  // error: timeout(std::move(t), ...)
  verge::go(verge::under(ctx, t)).detach();   // error: under(ctx, std::move(t))
  auto u = other();
  rt.run(u);  // error: pass it with std::move(t)
}

verge::task<> retries_what_does_not_fit(verge::context ctx) {
  co_await verge::retry(ctx, {}, wants_int);          // error: let a lambda capture what it needs
  co_await verge::retry(ctx, {}, [] { return 1; });   // error: returns a task
  co_await verge::retry(ctx, {}, answer, wants_int);  // error: takes a retry_failure
}

void groups_what_does_not_fit() {
  verge::task_group<int> numbers;
  numbers.go([] { return "one"; });  // error: every task of a task_group<T> returns a T
  numbers.go([](short) {});          // error: these do not fit
}

void handles_it_wrongly(verge::chan<int> ch) {
  verge::select(verge::recv(ch, [](const char*) {})).wait();  // error: takes a std::optional<T>
  verge::select(verge::send(ch, 1, [](int) {})).wait();       // error: takes nothing
  verge::select(verge::otherwise([](int) {})).wait();         // error: takes nothing
  verge::select(verge::recv(ch, [] { return answer(); })).wait();  // error: returns nothing
  verge::select([] {}).wait();                                     // error: the cases of a select
}
