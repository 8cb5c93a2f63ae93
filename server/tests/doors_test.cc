// SPDX-License-Identifier: Apache-2.0

// The doors: tokens and TLS, for both protocols.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "doors/gate.h"
#include "support/certificate.h"
#include "support/tls_wire.h"
#include "support/web_fixture.h"
#include "support/wire.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class a_closed_server : public web_fixture {
 protected:
  void SetUp() override {
    web_fixture::SetUp();
    options_.tokens = dir_ / "tokens.json";
  }
  void change(const std::function<void(token_file&)>& f) { token_file::change(options_.tokens, f); }
  /// A token with these scopes; see the fields of token_record.
  std::string add(token_record r) {
    std::string text;
    change([&](token_file& f) { text = f.add(std::move(r), wall_now()); });
    return text;
  }
  http_answer ask_as(const std::string& token, const std::string& method, const std::string& target,
                     const std::string& body = "") {
    http_wire::header_list headers{{"Authorization", "Bearer " + token}};
    if (!body.empty()) headers.emplace_back("Content-Type", "application/json");
    return web().ask(method, target, body, headers);
  }
};

constexpr const char* put_path = "/v1/tubes/orders/tasks";
constexpr const char* one_task = R"({"body":"x"})";

TEST_F(a_closed_server, lets_no_client_in_without_a_token_but_to_what_is_open) {
  start();
  const http_answer a = web().ask("GET", "/v1/tubes");
  EXPECT_EQ(a.status, 401);
  EXPECT_EQ(a.problem(), "unauthorized");
  EXPECT_EQ(a.header("www-authenticate"), "Bearer");
  for (const char* const path : {"/metrics", "/v1/events", "/v1/server", "/v1/tasks/1"}) {
    EXPECT_EQ(web().ask("GET", path).status, 401) << path;
  }
  for (const char* const path : {"/", "/health", "/ready", "/openapi.json"}) {
    EXPECT_EQ(web().ask("GET", path).status, 200) << path;
  }
}

TEST_F(a_closed_server, knows_a_token_from_what_looks_like_one) {
  const std::string token = add({.scopes = {scope::read}});
  start();
  EXPECT_EQ(ask_as(token, "GET", "/v1/tubes").status, 200);
  std::string other = token;
  other.back() = other.back() == 'A' ? 'B' : 'A';
  const std::string wrong_id = "vt_00000000" + token.substr(11);
  for (const std::string& bad :
       {std::string(), other, wrong_id, token + "A", token.substr(0, token.size() - 1),
        std::string("vt_"), "x" + token}) {
    EXPECT_EQ(ask_as(bad, "GET", "/v1/tubes").status, 401) << bad;
  }
  EXPECT_EQ(web().ask("GET", "/v1/tubes", "", {{"Authorization", "Basic " + token}}).status, 401);
  EXPECT_EQ(web().ask("GET", "/v1/tubes", "", {{"Authorization", "bearer " + token}}).status, 200);
}

TEST_F(a_closed_server, holds_a_token_to_its_scopes) {
  const std::string puts = add({.scopes = {scope::put}});
  const std::string works = add({.scopes = {scope::work}});
  const std::string reads = add({.scopes = {scope::read}});
  start();
  EXPECT_EQ(ask_as(puts, "POST", put_path, one_task).status, 201);
  EXPECT_EQ(ask_as(works, "POST", put_path, one_task).status, 403);
  EXPECT_EQ(ask_as(reads, "POST", put_path, one_task).problem(), "forbidden");
  EXPECT_EQ(ask_as(puts, "POST", "/v1/tubes/orders/reserve").status, 403);
  EXPECT_EQ(ask_as(works, "POST", "/v1/tubes/orders/reserve").status, 200);
  EXPECT_EQ(ask_as(puts, "GET", "/v1/tubes").status, 403);
  EXPECT_EQ(ask_as(reads, "GET", "/v1/tubes").status, 200);
  for (const std::string& token : {puts, works, reads}) {
    EXPECT_EQ(ask_as(token, "POST", "/v1/server/drain", R"({"on":true})").status, 403);
  }
}

TEST_F(a_closed_server, holds_a_token_to_its_tubes_also_by_id_and_lease) {
  const std::vector<scope> all{scope::read, scope::put, scope::work, scope::admin};
  const std::string ours = add({.scopes = all, .tubes = {"ours", "ours-*"}});
  const std::string any = add({.scopes = all});
  start();
  EXPECT_EQ(ask_as(ours, "POST", "/v1/tubes/ours-1/tasks", one_task).status, 201);
  EXPECT_EQ(ask_as(ours, "POST", "/v1/tubes/theirs/tasks", one_task).status, 403);
  EXPECT_EQ(ask_as(ours, "POST", "/v1/tubes/our/tasks", one_task).status, 403);
  EXPECT_EQ(ask_as(ours, "POST", "/v1/tubes/ours/tasks",
                   R"({"body":"x","max_attempts":1,"dead_letter":"theirs"})")
                .status,
            403);
  const int id = ask_as(any, "POST", "/v1/tubes/theirs/tasks", one_task).json()["id"];
  const std::string path = "/v1/tasks/" + std::to_string(id);
  EXPECT_EQ(ask_as(ours, "GET", path).status, 404) << "it does not exist for this caller";
  EXPECT_EQ(ask_as(ours, "DELETE", path).status, 404);
  EXPECT_EQ(ask_as(ours, "PATCH", path, R"({"delay":1})").status, 404);
  EXPECT_EQ(ask_as(ours, "POST", path + "/kick").status, 404);
  const json held = ask_as(any, "POST", "/v1/tubes/theirs/reserve").json()["tasks"][0];
  EXPECT_EQ(ask_as(ours, "POST", lease_path(held, "ack")).status, 404);
  EXPECT_EQ(ask_as(any, "POST", lease_path(held, "ack")).status, 200);
  const json tubes = ask_as(ours, "GET", "/v1/tubes").json()["tubes"];
  ASSERT_EQ(tubes.size(), 1U);
  EXPECT_EQ(tubes[0]["name"], "ours-1");
  for (const char* const of_all : {"/metrics", "/v1/server", "/v1/forecast", "/v1/events"}) {
    EXPECT_EQ(ask_as(ours, "GET", of_all).status, 403) << of_all;
  }
}

TEST_F(a_closed_server, refuses_a_token_that_has_expired_or_is_revoked) {
  const std::string old = add({.scopes = {scope::read}, .expires = wall_now() - 1});
  const std::string young =
      add({.name = "young", .scopes = {scope::read}, .expires = wall_now() + 3'600'000'000'000});
  start();
  EXPECT_EQ(ask_as(old, "GET", "/v1/tubes").status, 401);
  EXPECT_EQ(ask_as(young, "GET", "/v1/tubes").status, 200);
  change([](token_file& f) {
    EXPECT_TRUE(f.revoke("young"));
    EXPECT_FALSE(f.revoke("young"));
  });
  wait_until([&] { return ask_as(young, "GET", "/v1/tubes").status == 401; });
}

TEST_F(a_closed_server, keeps_the_answers_of_one_caller_from_another) {
  const std::string one = add({.scopes = {scope::put}});
  const std::string other = add({.scopes = {scope::put}});
  start();
  const auto put_as = [&](const std::string& token) {
    return web().ask("POST", put_path, one_task,
                     {{"Authorization", "Bearer " + token},
                      {"Content-Type", "application/json"},
                      {"Idempotency-Key", "1"}});
  };
  EXPECT_EQ(put_as(one).json()["id"], 1);
  EXPECT_EQ(put_as(one).json()["id"], 1);
  EXPECT_EQ(put_as(other).json()["id"], 2);
}

TEST_F(a_closed_server, limits_how_often_a_token_is_used) {
  const std::string slow = add({.scopes = {scope::read}, .per_second = 5});
  const std::string other = add({.scopes = {scope::read}});
  start();
  http_answer a;
  wait_until([&] { return (a = ask_as(slow, "GET", "/v1/tubes")).status == 429; });
  EXPECT_EQ(a.header("retry-after"), "1");
  EXPECT_EQ(ask_as(other, "GET", "/v1/tubes").status, 200) << "the limit is each token's own";
  wait_until([&] { return ask_as(slow, "GET", "/v1/tubes").status == 200; });
}

/// Every operation of the contract that needs a token: without one, with one of another scope, and
/// with one that was used too often.
TEST_F(a_closed_server, refuses_each_operation_as_the_contract_says) {
  const std::string none = add({.scopes = {}});
  const std::string slow =
      add({.scopes = {scope::read, scope::put, scope::work, scope::admin}, .per_second = 1});
  start();
  const std::map<std::string, std::string> bodies{
      {"POST /v1/tubes/{tube}/tasks", R"({"body":"x"})"},
      {"PUT /v1/tubes/{tube}/keys/{key}", R"({"body":"x"})"},
      {"PATCH /v1/tasks/{id}", R"({"delay":1})"},
      {"POST /v1/tubes/{tube}/pause", R"({"for":0})"},
      {"PUT /v1/tubes/{tube}/limits", R"({"max_tasks":1})"},
      {"PUT /v1/tubes/{tube}/push", "{}"},
      {"PUT /v1/schedules/{name}", R"({"when":"@daily","tube":"t","task":{"body":"x"}})"},
      {"POST /v1/server/drain", R"({"on":false})"},
  };
  int tried = 0;
  for (const auto& [method, path] : contract_.operations()) {
    std::string lower = method;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!contract_.document()["paths"][path][lower]["responses"].contains("401")) continue;
    ++tried;
    std::string target = path;
    for (const auto& [name, value] : std::map<std::string, std::string>{
             {"{tube}", "t"}, {"{key}", "k"}, {"{id}", "1"}, {"{lease}", "1.1"}, {"{name}", "n"}}) {
      if (const auto at = target.find(name); at != target.npos) {
        target.replace(at, name.size(), value);
      }
    }
    const auto body = bodies.find(method + " " + path);
    const std::string text = body == bodies.end() ? "" : body->second;
    judge(401, method, path, web().ask(method, target, text));
    judge(403, method, path, ask_as(none, method, target, text));
    http_answer a;
    wait_until([&] { return (a = ask_as(slow, "GET", "/v1/tubes")).status == 429; });
    // By another name: clang 14 captures no structured bindings.
    wait_until(
        [&, &verb = method] { return (a = ask_as(slow, verb, target, text)).status == 429; });
    judge(429, method, path, a);
    forget_connection();
  }
  EXPECT_GT(tried, 25);
}

TEST_F(a_closed_server, ends_a_stream_whose_token_is_revoked) {
  const std::string token = add({.name = "page", .scopes = {scope::read}});
  start();
  http_wire w(port());
  w.send_request("GET", "/v1/events", "", {{"Authorization", "Bearer " + token}});
  EXPECT_EQ(w.head().status, 200);
  w.until("event: state");
  change([](token_file& f) { EXPECT_TRUE(f.revoke("page")); });
  EXPECT_TRUE(w.is_closed());
}

TEST(a_caller, may_send_a_second_s_worth_at_once_and_then_as_many_as_time_allows) {
  const caller c({.scopes = {scope::read}, .per_second = 10});
  auto now = verge::clock::time_point(1h);
  int sent = 0;
  while (c.take(now)) ++sent;
  EXPECT_EQ(sent, 10);
  now += 300ms;
  for (sent = 0; c.take(now); ++sent) {
  }
  EXPECT_EQ(sent, 3);
  now += 1h;
  for (sent = 0; c.take(now); ++sent) {
  }
  EXPECT_EQ(sent, 10);
}

TEST_F(a_closed_server, asks_for_a_token_over_beanstalk_too) {
  const std::string ours = add({.scopes = {scope::put, scope::work}, .tubes = {"ours"}});
  const std::string reads = add({.scopes = {scope::read}});
  start();
  wire w(server_->address().port());
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "DENIED\r\n");
  EXPECT_EQ(w.ask("stats-tube default\r\n"), "DENIED\r\n");
  EXPECT_EQ(w.ask("auth wrong\r\n"), "DENIED\r\n");
  EXPECT_EQ(w.ask("auth " + ours + "\r\n"), "DONE\r\n");
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "DENIED\r\n") << "into default";
  EXPECT_EQ(w.ask("reserve-with-timeout 0\r\n"), "DENIED\r\n") << "from default";
  EXPECT_EQ(w.ask("use theirs\r\n"), "DENIED\r\n");
  EXPECT_EQ(w.ask("use ours\r\n"), "USING ours\r\n");
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "INSERTED 1\r\n");
  EXPECT_EQ(w.ask("watch theirs\r\n"), "DENIED\r\n");
  EXPECT_EQ(w.ask("watch ours\r\n"), "WATCHING 2\r\n");
  EXPECT_EQ(w.ask("reserve-with-timeout 0\r\n"), "RESERVED 1 1\r\nx\r\n");
  EXPECT_EQ(w.ask("stats\r\n"), "DENIED\r\n");
  EXPECT_EQ(w.ask("drain on\r\n"), "DENIED\r\n");
  EXPECT_EQ(w.ask("delete 1\r\n"), "DELETED\r\n");
  wire r(server_->address().port());
  EXPECT_EQ(r.ask("auth " + reads + "\r\n"), "DONE\r\n");
  EXPECT_EQ(r.ask("put 0 0 60 1\r\nx\r\n"), "DENIED\r\n");
  EXPECT_TRUE(r.ask("stats\r\n").starts_with("OK "));
}

TEST_F(a_closed_server, keeps_only_hashes_and_for_its_owner_alone) {
  const std::string token = add({.name = "shop", .scopes = {scope::put}});
  std::ifstream in(options_.tokens);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, HasSubstr("shop"));
  EXPECT_THAT(text, Not(HasSubstr(token.substr(12))));
  struct stat s {};
  ASSERT_EQ(::stat(options_.tokens.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600U);
}

/// As several `verge token add` and `revoke` at once do it.
TEST_F(a_closed_server, loses_no_token_when_several_are_added_and_revoked_at_once) {
  constexpr int threads = 8;
  constexpr int each = 10;
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        const std::string name = std::to_string(t) + "-" + std::to_string(i);
        change([&](token_file& f) { f.add({.name = name, .scopes = {scope::put}}, 0); });
        if (i % 2 != 0) continue;
        change([&](token_file& f) { EXPECT_TRUE(f.revoke(name)); });
      }
    });
  }
  for (std::thread& t : all) t.join();
  EXPECT_EQ(token_file::read(options_.tokens).tokens().size(), threads * each / 2U);
  EXPECT_FALSE(std::filesystem::exists(options_.tokens + ".new"));
}

TEST_F(a_closed_server,
       does_not_start_with_a_file_that_it_cannot_read_and_keeps_the_last_good_one) {
  const std::string token = add({.scopes = {scope::read}});
  start();
  std::ofstream(options_.tokens) << "{";
  EXPECT_THAT(server_->reload(), HasSubstr("cannot be used"));
  EXPECT_EQ(ask_as(token, "GET", "/v1/tubes").status, 200);
  forget_connection();
  server_.reset();
  EXPECT_THROW(start(), std::runtime_error);
}

// ---- TLS ---------------------------------------------------------------------------------------

class a_tls_server : public web_fixture {
 protected:
  void SetUp() override {
    web_fixture::SetUp();
    certificate_ = dir_ / "cert.pem";
    key_ = dir_ / "key.pem";
    make_certificate(certificate_, key_, 1);
    options_.tls = tls_options{.certificate = certificate_, .key = key_};
  }
  std::string certificate_;
  std::string key_;
};

TEST_F(a_tls_server, speaks_both_protocols_encrypted) {
  start();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    tls_wire b(server_->address().port(), certificate_, version);
    ASSERT_TRUE(b);
    b.send("put 0 0 60 5\r\nhello\r\n");
    EXPECT_THAT(b.until("\r\n"), HasSubstr("INSERTED"));
    tls_wire h(port(), certificate_, version);
    ASSERT_TRUE(h);
    h.send(
        "POST /v1/tubes/default/reserve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    EXPECT_THAT(h.until("]}"), HasSubstr("\"body\":\"hello\""));
  }
}

TEST_F(a_tls_server, passes_much_through_in_both_directions) {
  start();
  tls_wire b(server_->address().port(), certificate_);
  const std::string body(60'000, 'x');
  std::string puts;
  for (int i = 0; i < 50; ++i) puts.append("put 0 0 60 60000\r\n").append(body).append("\r\n");
  b.send(puts);
  b.until("INSERTED 50\r\n");
  std::string peeks;
  for (int i = 1; i <= 50; ++i) peeks.append("peek ").append(std::to_string(i)).append("\r\n");
  b.send(peeks + "list-tube-used\r\n");
  EXPECT_GT(b.until("USING default\r\n").size(), 50U * 60'000);
}

TEST_F(a_tls_server, refuses_old_versions_and_plain_text) {
  start();
  EXPECT_FALSE(tls_wire(port(), certificate_, TLS1_1_VERSION));
  EXPECT_FALSE(tls_wire(port(), certificate_, TLS1_VERSION));
  http_wire plain(port());
  plain.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(plain.is_closed());
}

TEST_F(a_tls_server, takes_a_new_certificate_without_a_restart) {
  start();
  tls_wire before(port(), certificate_);
  ASSERT_TRUE(before);
  const std::string old = (dir_ / "old.pem").string();
  std::filesystem::copy_file(certificate_, old);
  make_certificate(certificate_, key_, 2);
  EXPECT_EQ(server_->reload(), "");
  EXPECT_TRUE(tls_wire(port(), certificate_));
  EXPECT_FALSE(tls_wire(port(), old));
  before.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(before.until("}"), HasSubstr("ok")) << "what is open stays open";
  std::ofstream(key_) << "no key";
  EXPECT_THAT(server_->reload(), HasSubstr("cannot be used"));
  EXPECT_TRUE(tls_wire(port(), certificate_)) << "the last good one";
}

TEST_F(a_tls_server, closes_a_handshake_that_is_too_slow) {
  options_.tls->handshake = 100ms;
  start();
  http_wire silent(port());
  EXPECT_TRUE(silent.is_closed());
  http_wire half(port());
  half.send(std::string("\x16\x03\x01\x02\x00", 5));
  EXPECT_TRUE(half.is_closed());
  EXPECT_TRUE(tls_wire(port(), certificate_));
}

TEST_F(a_tls_server, serves_others_while_thousands_of_handshakes_are_half_open) {
  start();
  std::vector<std::unique_ptr<http_wire>> half_open;
  // As many as the system lets this process have, two descriptors each, at most 10,000.
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  const std::size_t most = std::min<std::size_t>(10'000, (limit.rlim_max - 200) / 2);
  for (std::size_t i = 0; i < most; ++i) {
    half_open.push_back(std::make_unique<http_wire>(port()));
    if (i % 2 == 0) half_open.back()->send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  }
  tls_wire good(port(), certificate_);
  ASSERT_TRUE(good);
  good.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(good.until("}"), HasSubstr("ok"));
}

/// From accept on, and in both protocols: those that have not shaken hands make room, the first to
/// come first; those that have do not.
TEST_F(a_tls_server, has_no_more_connections_than_it_may_also_in_handshakes) {
  options_.limits.connections = 5;
  options_.http->limits.connections = 5;
  options_.tls->handshake = 300s;
  start();
  for (const std::uint16_t at : {server_->address().port(), port()}) {
    std::vector<std::unique_ptr<http_wire>> silent;
    for (int i = 0; i < 12; ++i) silent.push_back(std::make_unique<http_wire>(at));
    for (std::size_t i = 0; i < 7; ++i) EXPECT_TRUE(silent[i]->is_closed()) << i;
    std::vector<std::unique_ptr<tls_wire>> good;
    for (std::size_t i = 0; i < 5; ++i) {
      good.push_back(std::make_unique<tls_wire>(at, certificate_));
      ASSERT_TRUE(*good.back()) << i;
      // With the first answer it is a newcomer no more.
      good.back()->send(at == port() ? "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                     : "list-tube-used\r\n");
      good.back()->until(at == port() ? "ok" : "default");
      EXPECT_TRUE(silent[7 + i]->is_closed()) << i;
    }
    EXPECT_FALSE(tls_wire(at, certificate_)) << "all places are taken";
    good.pop_back();
    wait_until([&] { return static_cast<bool>(tls_wire(at, certificate_)); });
  }
}

TEST_F(a_tls_server, does_not_start_with_a_key_of_another_certificate) {
  make_certificate(dir_ / "other.pem", key_, 3);
  EXPECT_THROW(start(), std::runtime_error);
}

}  // namespace
