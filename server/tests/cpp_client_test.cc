// SPDX-License-Identifier: Apache-2.0

// The C++ client against a server.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <task_client.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <verge/runtime.h>
#include <verge/task.h>

#include "doors/token.h"
#include "support/certificate.h"
#include "support/web_fixture.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;
using kind = tasks::put_result::kind;
using testing::HasSubstr;

class a_cpp_client : public web_fixture {};

verge::task<> put_and_cancel(verge::endpoint at) {
  auto c = co_await tasks::client::connect(at);
  co_await c.use("orders");
  const tasks::put_options o1{.key = "order-7", .delay = 30min};
  const auto first = co_await c.put("cancel order 7", o1);
  EXPECT_EQ(first.what, kind::inserted);
  const tasks::put_options o2{.key = "order-7"};
  const auto again = co_await c.put("other", o2);
  EXPECT_EQ(again.what, kind::kept);
  EXPECT_EQ(again.id, first.id);
  const tasks::put_options o3{.key = "order-7", .mode = tasks::if_exists::refuse};
  const auto refused = co_await c.put("x", o3);
  EXPECT_EQ(refused.what, kind::exists);
  const auto moved = co_await c.reschedule("order-7", 1h);
  EXPECT_EQ(moved, tasks::cancelled::yes);
  const auto gone = co_await c.cancel("order-7");
  EXPECT_EQ(gone, tasks::cancelled::yes);
  const auto twice = co_await c.cancel("order-7");
  EXPECT_EQ(twice, tasks::cancelled::not_found);
}

TEST_F(a_cpp_client, puts_reschedules_and_cancels) {
  start();
  verge::default_runtime().run(put_and_cancel(server_->address()));
}

verge::task<> work(verge::endpoint at) {
  auto c = co_await tasks::client::connect(at);
  co_await c.use("work");
  co_await c.watch("work");
  const std::string bytes("\0\r\n\xff", 4);
  const tasks::put_options o4{.key = "k", .delay = 100ms};
  static_cast<void>(co_await c.put(bytes, o4));
  std::optional<tasks::reserved> t = co_await c.reserve(60s);
  EXPECT_TRUE(t.has_value());
  if (!t) co_return;
  EXPECT_EQ(t->body, bytes);
  const auto taken = co_await c.cancel("k");
  EXPECT_EQ(taken, tasks::cancelled::taken);
  const bool touched = co_await c.touch(t->id);
  EXPECT_TRUE(touched);
  const bool released = co_await c.release(t->id);
  EXPECT_TRUE(released);
  t = co_await c.reserve(60s);
  EXPECT_TRUE(t.has_value());
  const bool acked = co_await c.ack(t->id);
  EXPECT_TRUE(acked);
  const bool twice = co_await c.ack(t->id);
  EXPECT_FALSE(twice);
  const auto none = co_await c.reserve(0s);
  EXPECT_FALSE(none.has_value());
  const tasks::put_options o5{.max_attempts = 1, .dead_letter = "dead"};
  const auto dead = co_await c.put("x", o5);
  t = co_await c.reserve(60s);
  const bool buried = co_await c.bury(dead.id, 7);
  EXPECT_TRUE(buried);
}

TEST_F(a_cpp_client, works_on_tasks) {
  start();
  verge::default_runtime().run(work(server_->address()));
  EXPECT_EQ(web().ask("GET", "/v1/tubes/work").json()["buried"], 1);
}

verge::task<std::string> word_of(verge::endpoint at, std::string token, std::string tube) {
  std::string word;
  try {
    auto c = co_await tasks::client::connect(at, token);
    co_await c.use(tube);
    static_cast<void>(co_await c.put("x"));
  } catch (const tasks::refused& e) {
    word = e.word();
  }
  co_return word;
}

TEST_F(a_cpp_client, says_what_the_server_refuses) {
  options_.tokens = dir_ / "tokens.json";
  std::string token;
  token_file::change(options_.tokens, [&](token_file& f) {
    token = f.add({.scopes = {scope::put}, .tubes = {"ours"}}, 0);
  });
  start();
  auto& rt = verge::default_runtime();
  EXPECT_EQ(rt.run(word_of(server_->address(), token, "ours")), "");
  EXPECT_EQ(rt.run(word_of(server_->address(), token, "theirs")), "DENIED");
  EXPECT_EQ(rt.run(word_of(server_->address(), "wrong", "ours")), "DENIED");
  EXPECT_EQ(rt.run(word_of(server_->address(), "", "ours")), "DENIED");
}

/// What went wrong, or what was reserved.
verge::task<std::string> over_tls(verge::endpoint at, tasks::tls_settings secure,
                                  std::string token) {
  std::string said;
  try {
    auto c = co_await tasks::client::connect(at, secure, token);
    co_await c.use("ours");
    co_await c.watch("ours");
    // More than one record of TLS, in both directions.
    const std::string body(60'000, 'x');
    static_cast<void>(co_await c.put(body));
    const auto t = co_await c.reserve(60s);
    EXPECT_TRUE(t && t->body == body);
    said = "reserved";
    const bool acked = co_await c.ack(t->id);
    EXPECT_TRUE(acked);
  } catch (const std::exception& e) {
    said = e.what();
  }
  co_return said;
}

TEST_F(a_cpp_client, speaks_tls_with_a_token_and_trusts_no_other_server) {
  const std::string cert = dir_ / "cert.pem";
  make_certificate(cert, dir_ / "key.pem", 1);
  options_.tls = tls_options{.certificate = cert, .key = dir_ / "key.pem"};
  options_.tokens = dir_ / "tokens.json";
  std::string token;
  token_file::change(options_.tokens, [&](token_file& f) {
    token = f.add({.scopes = {scope::put, scope::work}, .tubes = {"ours"}}, 0);
  });
  start();
  const auto try_with = [&](const std::string& name, const std::string& trust,
                            const std::string& with) {
    return verge::default_runtime().run(
        over_tls(server_->address(), {.server = name, .trust = trust}, with));
  };
  EXPECT_EQ(try_with("localhost", cert, token), "reserved");
  EXPECT_EQ(try_with("localhost", cert, "wrong"), "the task server says DENIED");
  EXPECT_THAT(try_with("elsewhere.example", cert, token), HasSubstr("certificate is refused"));
  EXPECT_THAT(try_with("127.0.0.1", cert, token), HasSubstr("certificate is refused"));
  EXPECT_THAT(try_with("localhost", "", token), HasSubstr("certificate is refused"));
  EXPECT_THAT(try_with("localhost", dir_ / "none.pem", token), HasSubstr("cannot be used"));
  EXPECT_THAT(try_with("", cert, token), HasSubstr("has to be the name"));
}

verge::task<> end_of(verge::endpoint at) {
  auto c = co_await tasks::client::connect(at);
  static_cast<void>(co_await c.reserve(300s));
  bool ended = false;
  try {
    static_cast<void>(co_await c.reserve(0s));
  } catch (const std::system_error&) {
    ended = true;
  }
  EXPECT_TRUE(ended);
}

TEST_F(a_cpp_client, throws_when_the_connection_has_ended) {
  start();
  auto waiting = verge::go(verge::default_runtime(), end_of, server_->address());
  wait_until([&] { return web().ask("GET", "/v1/server").json()["waiting"] == 1; });
  forget_connection();
  server_.reset();
  waiting.join();
}

}  // namespace
