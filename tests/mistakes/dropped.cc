// SPDX-License-Identifier: Apache-2.0

// Results that are dropped by mistake. mistakes_test.cc compiles this: each line with a comment
// gives one warning, with that text in it.
#include <verge/context.h>
#include <verge/group.h>
#include <verge/net.h>
#include <verge/retry.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/timeout.h>
#include <verge/under.h>

using namespace std::chrono_literals;

const auto when = verge::clock::time_point();
const auto nothing = [] {};
verge::task<> work();

verge::task<> forgets_to_wait(verge::runtime& rt, verge::chan<int> ch) {
  verge::sleep(1s);                                    // warning: co_await it, or call wait()
  verge::sleep(rt, 1s);                                // warning: co_await it, or call wait()
  verge::sleep_until(when);                            // warning: co_await it, or call wait()
  verge::sleep_until(rt, when);                        // warning: co_await it, or call wait()
  verge::yield();                                      // warning: co_await it, or call wait()
  verge::recv(ch);                                     // warning: co_await it, or call wait()
  verge::send(ch, 1);                                  // warning: co_await it, or call wait()
  verge::select(verge::recv(ch));                      // warning: co_await it, or call wait()
  verge::timeout(verge::recv(ch), 1s);                 // warning: co_await it, or call wait()
  verge::under(verge::background(), verge::recv(ch));  // warning: co_await it, or call wait()
  verge::timeout(work(), 1s);                          // warning: until it is awaited or spawned
  work();                                              // warning: until it is awaited or spawned
  verge::retry(verge::background(), {}, work);         // warning: until it is awaited or spawned
  verge::task_group<> group;
  group.all();    // warning: until it is awaited or spawned
  group.first();  // warning: until it is awaited or spawned
  co_return;
}

void forgets_to_wait(verge::tcp_conn& conn, verge::tcp_listener& listener,
                     verge::udp_socket& socket, verge::fd& file) {
  char bytes[8] = {};
  conn.read_some(bytes);                            // warning: co_await it, or call wait()
  conn.read_full(bytes);                            // warning: co_await it, or call wait()
  conn.write_some("hello");                         // warning: co_await it, or call wait()
  conn.write_all("hello");                          // warning: co_await it, or call wait()
  listener.accept();                                // warning: co_await it, or call wait()
  verge::tcp_conn::connect(verge::endpoint());      // warning: co_await it, or call wait()
  verge::tcp_conn::connect(verge::endpoint(), 1s);  // warning: co_await it, or call wait()
  socket.receive(bytes);                            // warning: co_await it, or call wait()
  socket.send("hello");                             // warning: co_await it, or call wait()
  file.readable();                                  // warning: co_await it, or call wait()
  verge::tcp_listener::listen(verge::endpoint());   // warning: nodiscard
}

void drops_a_handle(verge::runtime& rt, verge::simulation& sim, const verge::context& ctx) {
  verge::timer(1s);                      // warning: keep it, or detach() it
  verge::timer{when};                    // warning: keep it, or detach() it
  verge::timer(rt, 1s);                  // warning: keep it, or detach() it
  verge::timer(rt, when);                // warning: keep it, or detach() it
  verge::ticker(1s);                     // warning: keep it, or detach() it
  verge::ticker(rt, 1s);                 // warning: keep it, or detach() it
  verge::after_func(1s, nothing);        // warning: keep it, or detach() it
  verge::after_func(when, nothing);      // warning: keep it, or detach() it
  verge::after_func(rt, 1s, nothing);    // warning: keep it, or detach() it
  verge::after_func(rt, when, nothing);  // warning: keep it, or detach() it
  verge::after_func(ctx, nothing);       // warning: keep it, or detach() it
  verge::after_func(rt, ctx, nothing);   // warning: keep it, or detach() it
  verge::every(1s, nothing);             // warning: keep it, or detach() it
  verge::every(rt, 1s, nothing);         // warning: keep it, or detach() it
  verge::every(when, 1s, nothing);       // warning: keep it, or detach() it
  verge::every(rt, when, 1s, nothing);   // warning: keep it, or detach() it
  verge::ticker(when, 1s);               // warning: keep it, or detach() it
  verge::ticker(rt, when, 1s);           // warning: keep it, or detach() it
  verge::after(1s);                      // warning: receive from it
  verge::after(rt, 1s);                  // warning: receive from it
  verge::tick(1s);                       // warning: receive from it
  verge::tick(rt, 1s);                   // warning: receive from it
  verge::go(nothing);                    // warning: or detach() it
  verge::go(rt, nothing);                // warning: or detach() it
  rt.spawn(nothing);                     // warning: or detach() it
  sim.thread(nothing);                   // warning: or detach() it
}

void drops_a_context(verge::runtime& rt, const verge::context& parent) {
  static const verge::context_key<int> key;
  verge::with_cancel(parent);              // warning: keep it, or detach() it
  verge::with_timeout(parent, 1s);         // warning: keep it, or detach() it
  verge::with_timeout(rt, parent, 1s);     // warning: keep it, or detach() it
  verge::with_deadline(parent, when);      // warning: keep it, or detach() it
  verge::with_deadline(rt, parent, when);  // warning: keep it, or detach() it
  verge::with_value(parent, key, 1);       // warning: use the context that this returns
  verge::without_cancel(parent);           // warning: use the context that this returns
}

void drops_a_case(verge::chan<int> ch) {
  verge::recv(ch, nothing);     // warning: pass it to select()
  verge::send(ch, 1, nothing);  // warning: pass it to select()
  verge::otherwise(nothing);    // warning: pass it to select()
}
