// SPDX-License-Identifier: Apache-2.0

// The HTTP interface from outside: the contract, what tasks go through, and bad input.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/web_fixture.h"
#include "support/wire.h"
#include "web/api.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::IsEmpty;

using a_web_server = web_fixture;

// ---- The contract ------------------------------------------------------------------------------

TEST(the_contract, has_the_routes_of_the_server_and_no_others) {
  const contract c(VERGE_OPENAPI);
  std::vector<std::string> told;
  for (const auto& [method, path] : c.operations()) told.push_back(method + " " + path);
  std::vector<std::string> there;
  for (const auto& r : web::all_routes()) {
    there.push_back(std::string(r.method) + " " + std::string(r.pattern));
  }
  EXPECT_THAT(there, testing::UnorderedElementsAreArray(told));
}

TEST(the_contract, judges) {
  contract c(VERGE_OPENAPI);
  const json& outcome = c.document()["components"]["schemas"]["Outcome"];
  EXPECT_EQ(c.mismatch(outcome, {{"id", 1}, {"outcome", "kept"}}, ""), "");
  EXPECT_NE(c.mismatch(outcome, {{"id", 0}, {"outcome", "kept"}}, ""), "");
  EXPECT_NE(c.mismatch(outcome, {{"id", 1}, {"outcome", "lost"}}, ""), "");
  EXPECT_NE(c.mismatch(outcome, {{"id", 1}}, ""), "");
  EXPECT_NE(c.mismatch(outcome, {{"id", 1}, {"outcome", "kept"}, {"more", 1}}, ""), "");
}

/// Every response that the contract has, of every operation. What is told of a lease and of an id
/// comes from the responses before.
TEST_F(a_web_server, gives_every_response_of_the_contract_and_no_other) {
  options_.limits.body = 100;
  options_.http->limits.api.body = 100;
  start();
  const std::string tasks = "/v1/tubes/{tube}/tasks";
  const std::string keys = "/v1/tubes/{tube}/keys/{key}";
  const std::string t = "/v1/tubes/t";
  // Putting.
  expect(201, "POST", tasks, t + "/tasks", R"({"body":"a","key":"k"})");
  expect(200, "POST", tasks, t + "/tasks", R"({"body":"b","key":"k"})");
  expect(409, "POST", tasks, t + "/tasks", R"({"body":"b","key":"k","if_exists":"refuse"})");
  expect(400, "POST", tasks, t + "/tasks", "{}");
  expect(413, "POST", tasks, t + "/tasks", R"({"body":")" + std::string(101, 'x') + "\"}");
  judge(415, "POST", tasks, web().ask("POST", t + "/tasks", "{}", {}));
  const http_wire::header_list once{{"Content-Type", "application/json"}, {"Idempotency-Key", "1"}};
  judge(201, "POST", tasks, web().ask("POST", t + "/tasks", R"([{"body":"c"}])", once));
  judge(422, "POST", tasks, web().ask("POST", t + "/tasks", R"([{"body":"d"}])", once));
  // Keys.
  expect(200, "GET", keys, t + "/keys/k");
  expect(404, "GET", keys, t + "/keys/none");
  expect(400, "GET", keys, t + "/keys/a%20b");
  expect(201, "PUT", keys, t + "/keys/k", R"({"body":"e"})");
  expect(200, "PUT", keys, t + "/keys/k", R"({"delay":60000})");
  expect(404, "PUT", keys, t + "/keys/none", R"({"delay":60000})");
  expect(400, "PUT", keys, t + "/keys/k", "{}");
  expect(409, "PUT", keys, t + "/keys/k", R"({"body":"f","if_exists":"refuse"})");
  expect(413, "PUT", keys, t + "/keys/k", R"({"body":")" + std::string(101, 'x') + "\"}");
  judge(415, "PUT", keys, web().ask("PUT", t + "/keys/k", "{}", {}));
  expect(200, "DELETE", keys, t + "/keys/k");
  expect(404, "DELETE", keys, t + "/keys/k");
  expect(400, "DELETE", keys, t + "/keys/a%20b");
  // Work.
  const std::string reserve = "/v1/tubes/{tube}/reserve";
  expect(201, "POST", tasks, "/v1/tubes/w/tasks",
         R"([{"body":"1","key":"k"},{"body":"2"},{"body":"3"},{"body":"4"}])");
  const json got = expect(200, "POST", reserve, "/v1/tubes/w/reserve?max=4").json()["tasks"];
  ASSERT_EQ(got.size(), 4U);
  expect(400, "POST", reserve, "/v1/tubes/w/reserve?wait=long");
  expect(409, "DELETE", keys, "/v1/tubes/w/keys/k");
  const auto lease = [&](std::size_t i) { return got[i]["lease"].get<std::string>(); };
  const auto stale = [&](std::size_t i) { return std::to_string(got[i]["id"].get<int>()) + ".1"; };
  const std::string one = "/v1/tasks/{id}";
  const std::string held = "/v1/tasks/" + std::to_string(got[0]["id"].get<int>());
  expect(409, "PATCH", one, held, R"({"delay":1})");
  expect(409, "DELETE", one, held);
  const char* const verbs[] = {"touch", "release", "bury", "ack"};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string path = std::string("/v1/leases/{lease}/") + verbs[i];
    const auto at = [&](const std::string& l) { return "/v1/leases/" + l + "/" + verbs[i]; };
    expect(409, "POST", path, at(stale(i)));
    expect(400, "POST", path, at("nonsense"));
    expect(404, "POST", path, at("999.1"));
    if (i == 1 || i == 2) judge(415, "POST", path, web().ask("POST", at(lease(i)), "{}", {}));
    expect(200, "POST", path, at(lease(i)));
  }
  // Tasks by id.
  const std::string buried = "/v1/tasks/" + std::to_string(got[2]["id"].get<int>());
  const std::string kick = "/v1/tasks/{id}/kick";
  expect(200, "GET", one, buried);
  expect(404, "GET", one, "/v1/tasks/999");
  expect(400, "GET", one, "/v1/tasks/0");
  expect(200, "POST", kick, buried + "/kick");
  expect(404, "POST", kick, "/v1/tasks/999/kick");
  expect(400, "POST", kick, "/v1/tasks/x/kick");
  expect(200, "PATCH", one, buried, R"({"due":"2100-01-01T00:00:00Z"})");
  expect(404, "PATCH", one, "/v1/tasks/999", R"({"delay":1})");
  expect(400, "PATCH", one, buried, "{}");
  judge(415, "PATCH", one, web().ask("PATCH", buried, "{}", {}));
  expect(200, "DELETE", one, buried);
  expect(404, "DELETE", one, buried);
  expect(400, "DELETE", one, "/v1/tasks/-1");
  // Lists, tubes, the server.
  expect(200, "GET", tasks, "/v1/tubes/w/tasks?state=ready&bodies=true");
  expect(400, "GET", tasks, "/v1/tubes/w/tasks?state=lost");
  expect(404, "GET", tasks, "/v1/tubes/none/tasks");
  expect(200, "GET", "/v1/tubes", "/v1/tubes?limit=1");
  expect(400, "GET", "/v1/tubes", "/v1/tubes?limit=0");
  expect(200, "GET", "/v1/tubes/{tube}", t);
  expect(404, "GET", "/v1/tubes/{tube}", "/v1/tubes/none");
  expect(400, "GET", "/v1/tubes/{tube}", "/v1/tubes/-x");
  const std::string pause = "/v1/tubes/{tube}/pause";
  expect(200, "POST", pause, t + "/pause", R"({"for":1})");
  expect(400, "POST", pause, t + "/pause", "{}");
  expect(404, "POST", pause, "/v1/tubes/none/pause", R"({"for":1})");
  judge(415, "POST", pause, web().ask("POST", t + "/pause", "{}", {}));
  const std::string kicks = "/v1/tubes/{tube}/kick";
  expect(200, "POST", kicks, t + "/kick", R"({"max":10})");
  expect(400, "POST", kicks, t + "/kick", R"({"max":-1})");
  expect(404, "POST", kicks, "/v1/tubes/none/kick");
  judge(415, "POST", kicks, web().ask("POST", t + "/kick", "{}", {}));
  const std::string limits = "/v1/tubes/{tube}/limits";
  expect(200, "PUT", limits, t + "/limits", R"({"max_tasks":0})");
  expect(429, "POST", tasks, t + "/tasks", R"({"body":"one too many"})");
  expect(200, "PUT", limits, t + "/limits", R"({"max_tasks":null})");
  expect(400, "PUT", limits, t + "/limits", "{}");
  judge(415, "PUT", limits, web().ask("PUT", t + "/limits", "{}", {}));
  // Push.
  const std::string push = "/v1/tubes/{tube}/push";
  expect(404, "GET", push, t + "/push");
  expect(404, "DELETE", push, t + "/push");
  expect(400, "PUT", push, t + "/push", R"({"url":"ftp://x/"})");
  judge(415, "PUT", push, web().ask("PUT", t + "/push", "{}", {}));
  expect(200, "PUT", push, t + "/push", R"({"url":"https://example.invalid/hook"})");
  expect(200, "GET", push, t + "/push");
  expect(400, "GET", push, t + "/push?unknown=1");
  expect(400, "DELETE", push, t + "/push?unknown=1");
  expect(200, "DELETE", push, t + "/push");
  // Schedules.
  const std::string schedule = "/v1/schedules/{name}";
  const std::string daily = R"({"when":"@daily","tube":"t","task":{"body":"x"}})";
  expect(201, "PUT", schedule, "/v1/schedules/s", daily);
  expect(200, "PUT", schedule, "/v1/schedules/s", daily);
  expect(400, "PUT", schedule, "/v1/schedules/s", "{}");
  expect(409, "PUT", schedule, "/v1/schedules/s",
         R"({"when":"@daily","tube":"none","task":{"body":"x","url":"http://x/"}})");
  expect(413, "PUT", schedule, "/v1/schedules/s",
         R"({"when":"@daily","tube":"t","task":{"body":")" + std::string(101, 'x') + "\"}}");
  judge(415, "PUT", schedule, web().ask("PUT", "/v1/schedules/s", "{}", {}));
  expect(200, "GET", schedule, "/v1/schedules/s");
  expect(404, "GET", schedule, "/v1/schedules/none");
  expect(400, "GET", schedule, "/v1/schedules/a%20b");
  expect(200, "GET", "/v1/schedules", "/v1/schedules?limit=1");
  expect(400, "GET", "/v1/schedules", "/v1/schedules?limit=0");
  expect(400, "DELETE", schedule, "/v1/schedules/a%20b");
  expect(200, "DELETE", schedule, "/v1/schedules/s");
  expect(404, "DELETE", schedule, "/v1/schedules/s");
  expect(200, "GET", "/v1/forecast", "/v1/forecast?minutes=2");
  expect(400, "GET", "/v1/forecast", "/v1/forecast?minutes=0");
  for (const char* const plain :
       {"/v1/server", "/v1/cluster", "/metrics", "/health", "/ready", "/openapi.json", "/"}) {
    expect(200, "GET", plain, plain);
    expect(400, "GET", plain, std::string(plain) + "?unknown=1");
  }
  {
    http_wire stream(port());
    stream.send_request("GET", "/v1/events", "", {});
    judge(200, "GET", "/v1/events", stream.head());
  }
  expect(400, "GET", "/v1/events", "/v1/events?unknown=1");
  // The end.
  const std::string drain = "/v1/server/drain";
  expect(400, "POST", drain, drain, "{}");
  judge(415, "POST", drain, web().ask("POST", drain, "{}", {}));
  expect(200, "POST", drain, drain, R"({"on":true})");
  expect(503, "POST", tasks, t + "/tasks", R"({"body":"late"})");
  expect(503, "PUT", keys, t + "/keys/k", R"({"body":"late"})");
  expect(503, "GET", "/ready", "/ready");
  expect(200, "GET", "/health", "/health");
  // A committer that does not answer in time: no time at all is given here.
  options_.http->limits.probe = 0ms;
  restart();
  http_answer sick;
  wait_until([&] { return (sick = web().ask("GET", "/health")).status == 503; });
  judge(503, "GET", "/health", sick);
  // What only a server with tokens says is doors_test's to try.
  std::vector<std::string> unseen = contract_.unseen();
  std::erase_if(unseen, [](const std::string& s) {
    return s.ends_with(" 401") || s.ends_with(" 403") || s.ends_with(" 429");
  });
  EXPECT_THAT(unseen, IsEmpty());
}

TEST_F(a_web_server, that_is_alone_has_no_cluster) {
  start();
  EXPECT_EQ(web().ask("GET", "/v1/cluster").json().dump(), R"({"servers":[],"shards":[]})");
}

// ---- Tasks -------------------------------------------------------------------------------------

TEST_F(a_web_server, hands_out_what_beanstalk_put_and_the_other_way_round) {
  start();
  wire w(server_->address().port());
  EXPECT_EQ(w.ask("use both\r\n"), "USING both\r\n");
  EXPECT_EQ(w.ask("put 7 0 60 5\r\nhello\r\n"), "INSERTED 1\r\n");
  const json got = web().ask("POST", "/v1/tubes/both/reserve").json()["tasks"];
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0]["body"], "hello");
  EXPECT_EQ(got[0]["priority"], 7);
  EXPECT_EQ(w.ask("delete 1\r\n"), "NOT_FOUND\r\n") << "the lease is not this connection's";
  EXPECT_EQ(web().ask("POST", lease_path(got[0], "ack")).status, 200);
  EXPECT_EQ(put("both", R"({"body":"world","priority":3})").status, 201);
  EXPECT_EQ(w.ask("watch both\r\n"), "WATCHING 2\r\n");
  EXPECT_EQ(w.ask("reserve\r\n"), "RESERVED 2 5\r\nworld\r\n");
}

TEST_F(a_web_server, keeps_bytes_that_are_no_text) {
  start();
  EXPECT_EQ(put("t", R"({"body_base64":"/wD+"})").status, 201);
  EXPECT_EQ(put("t", R"({"body":"grüße 😀 \u0000"})").status, 201);
  const json got = web().ask("POST", "/v1/tubes/t/reserve?max=2").json()["tasks"];
  EXPECT_EQ(got[0]["body_base64"], "/wD+");
  EXPECT_FALSE(got[0].contains("body"));
  EXPECT_EQ(got[1]["body"], std::string("grüße 😀 \0", 14));
}

TEST_F(a_web_server, is_exact_about_the_time_that_is_asked_for) {
  start();
  EXPECT_EQ(
      put("t", R"({"body":"x","key":"k","due":"2100-02-28T23:59:59.123456789+01:00"})").status,
      201);
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t/keys/k").json()["due"], "2100-02-28T22:59:59.123456789Z");
  EXPECT_EQ(web().ask("PUT", "/v1/tubes/t/keys/k", R"({"due":"2200-01-01T00:00:00Z"})").status,
            200);
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t/keys/k").json()["due"], "2200-01-01T00:00:00Z");
  EXPECT_EQ(put("t", R"({"body":"past","due":"1999-01-01T00:00:00Z"})").status, 201);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/t/reserve").json()["tasks"][0]["body"], "past");
}

TEST_F(a_web_server, waits_for_a_task_and_never_gives_it_early) {
  start();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(put("t", R"({"body":"later","delay":300})").status, 201);
  const json got = web().ask("POST", "/v1/tubes/t/reserve?wait=60s").json()["tasks"];
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 300ms);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0]["body"], "later");
  EXPECT_EQ(web().ask("POST", "/v1/tubes/t/reserve?wait=10ms").json()["tasks"].size(), 0U);
}

TEST_F(a_web_server, hands_out_every_byte_of_a_body_and_any_key) {
  start();
  std::string text;
  for (char c = 0; c < 127; ++c) text += c;
  text += "\x7f \xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80 \"end\"\\";
  EXPECT_EQ(put("t", json{{"body", text}, {"key", "k\"\\\xc3\xbc"}}.dump()).status, 201);
  json got = web().ask("POST", "/v1/tubes/t/reserve").json()["tasks"][0];
  EXPECT_EQ(got["body"], text);
  EXPECT_EQ(got["key"], "k\"\\\xc3\xbc");
  wire w(server_->address().port());
  EXPECT_EQ(w.ask("use t\r\n"), "USING t\r\n");
  EXPECT_EQ(w.ask("put-key k\xff\" refuse 0 0 1000 2\r\n\xff\xfe\r\n"), "INSERTED 2\r\n");
  got = web().ask("POST", "/v1/tubes/t/reserve").json()["tasks"][0];
  EXPECT_EQ(got["key"], "k\xef\xbf\xbd\"");
  EXPECT_EQ(got["body_base64"], "//4=");
}

TEST_F(a_web_server, gives_nothing_to_a_client_that_has_left) {
  start();
  {
    http_wire leaves(port());
    leaves.send_request("POST", "/v1/tubes/t/reserve?wait=300s", "", {});
    wait_until([&] { return web().ask("GET", "/v1/server").json()["waiting"] == 1; });
  }
  wait_until([&] { return web().ask("GET", "/v1/server").json()["waiting"] == 0; });
  EXPECT_EQ(put("t", R"({"body":"x"})").status, 201);
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t").json()["ready"], 1);
}

/// Whatever it has sent on before it left: a request, or more than is read ahead.
TEST_F(a_web_server, gives_nothing_to_a_client_that_has_sent_more_and_left) {
  start();
  const auto waiting = [&] { return web().ask("GET", "/v1/server").json()["waiting"]; };
  for (const std::size_t times : {1U, 500U}) {
    {
      http_wire leaves(port());
      leaves.send_request("POST", "/v1/tubes/t/reserve?wait=300s", "", {});
      wait_until([&] { return waiting() == 1; });
      for (std::size_t i = 0; i < times; ++i) {
        leaves.send_request("POST", "/v1/tubes/t/reserve", "", {});
      }
    }
    wait_until([&] { return waiting() == 0; });
  }
  EXPECT_EQ(put("t", R"({"body":"x"})").status, 201);
  // What it had sent on is not done for it either.
  wait_until([&] { return web().ask("GET", "/v1/server").json()["connections"] == 1; });
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t").json()["ready"], 1);
}

TEST_F(a_web_server, keeps_requests_that_come_while_others_wait) {
  start();
  http_wire w(port());
  std::string both;
  for (int i = 0; i < 2; ++i) {
    both +=
        "POST /v1/tubes/t/reserve?wait=300s HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Length: 0\r\n\r\n";
  }
  w.send(both);
  wait_until([&] { return web().ask("GET", "/v1/server").json()["waiting"] == 1; });
  w.send_request("GET", "/v1/tubes/t", "", {});
  EXPECT_EQ(put("t", R"({"body":"1"})").status, 201);
  EXPECT_EQ(w.answer().json()["tasks"][0]["body"], "1");
  wait_until([&] { return web().ask("GET", "/v1/server").json()["waiting"] == 1; });
  w.send_request("GET", "/v1/tubes/none", "", {});
  EXPECT_EQ(put("t", R"({"body":"2"})").status, 201);
  EXPECT_EQ(w.answer().json()["tasks"][0]["body"], "2");
  EXPECT_EQ(w.answer().json()["reserved"], 2);
  EXPECT_EQ(w.answer().status, 404);
}

TEST_F(a_web_server, keeps_a_request_that_comes_while_another_one_waits) {
  start();
  http_wire w(port());
  w.send_request("POST", "/v1/tubes/t/reserve?wait=300s", "", {});
  wait_until([&] { return web().ask("GET", "/v1/server").json()["waiting"] == 1; });
  w.send_request("GET", "/v1/tubes/t", "", {});
  EXPECT_EQ(put("t", R"({"body":"x"})").status, 201);
  EXPECT_EQ(w.answer().json()["tasks"].size(), 1U);
  EXPECT_EQ(w.answer().json()["reserved"], 1);
}

TEST_F(a_web_server, lets_a_lease_outlast_its_connection_and_a_restart) {
  start();
  EXPECT_EQ(put("t", R"({"body":"x","ttr":3600000})").status, 201);
  json got;
  {
    http_wire w(port());
    got = w.ask("POST", "/v1/tubes/t/reserve").json()["tasks"][0];
  }
  restart();
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t").json()["reserved"], 1);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/t/reserve").json()["tasks"].size(), 0U)
      << "the lease is still in force";
  EXPECT_EQ(web().ask("POST", lease_path(got, "touch")).status, 200);
  EXPECT_EQ(web().ask("POST", lease_path(got, "ack")).status, 200);
  EXPECT_EQ(web().ask("POST", lease_path(got, "ack")).status, 404);
}

TEST_F(a_web_server, refuses_the_lease_of_a_worker_that_was_too_slow) {
  start();
  EXPECT_EQ(put("t", R"({"body":"x","ttr":50})").status, 201);
  const json slow = web().ask("POST", "/v1/tubes/t/reserve").json()["tasks"][0];
  const json next = web().ask("POST", "/v1/tubes/t/reserve?wait=60s").json()["tasks"][0];
  EXPECT_EQ(next["id"], slow["id"]);
  EXPECT_EQ(next["attempts"], 2);
  for (const char* const verb : {"ack", "touch", "release", "bury"}) {
    const http_answer a = web().ask("POST", lease_path(slow, verb));
    EXPECT_EQ(a.status, 409);
    EXPECT_EQ(a.problem(), "stale-lease");
  }
}

/// Though no other worker has it: it may be handed out at any moment.
TEST_F(a_web_server, refuses_a_lease_that_has_ended) {
  start();
  EXPECT_EQ(put("t", R"({"body":"x","ttr":50})").status, 201);
  const json slow = web().ask("POST", "/v1/tubes/t/reserve").json()["tasks"][0];
  wait_until([&] { return web().ask("GET", "/v1/tubes/t").json()["ready"] == 1; });
  for (const char* const verb : {"ack", "touch", "release", "bury"}) {
    const http_answer a = web().ask("POST", lease_path(slow, verb));
    EXPECT_EQ(a.status, 409) << verb;
    EXPECT_EQ(a.problem(), "stale-lease");
  }
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t").json()["ready"], 1) << "it is still there";
}

TEST_F(a_web_server, releases_with_a_delay_and_buries_with_a_priority) {
  start();
  EXPECT_EQ(put("t", R"([{"body":"a","priority":5},{"body":"b","priority":6}])").status, 201);
  const json got = web().ask("POST", "/v1/tubes/t/reserve?max=5").json()["tasks"];
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(web().ask("POST", lease_path(got[0], "release"), R"({"delay":3600000})").status, 200);
  EXPECT_EQ(web().ask("POST", lease_path(got[1], "bury"), R"({"priority":9})").status, 200);
  const json a = web().ask("GET", "/v1/tasks/1").json();
  EXPECT_EQ(a["state"], "delayed");
  EXPECT_EQ(a["priority"], 5) << "the one it had";
  const json b = web().ask("GET", "/v1/tasks/2").json();
  EXPECT_EQ(b["state"], "buried");
  EXPECT_EQ(b["priority"], 9);
}

TEST_F(a_web_server, puts_all_of_an_array_or_nothing) {
  start();
  const http_answer bad = put("t", R"([{"body":"a"},{"body":"b","ttr":0}])");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.json()["where"], "/1/ttr");
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t").status, 404) << "nothing was put";
  const http_answer good = put("t", R"([{"body":"a","key":"k"},{"body":"b","key":"k"},
                   {"body":"c","key":"k","if_exists":"refuse"}])");
  EXPECT_EQ(good.json().dump(), R"([{"id":1,"outcome":"inserted"},{"id":1,"outcome":"kept"},)"
                                R"({"id":1,"outcome":"exists"}])");
}

TEST_F(a_web_server, takes_a_thousand_tasks_at_once_and_not_one_more) {
  start();
  json many = json::array();
  for (int i = 0; i < 1000; ++i) many.push_back({{"body", std::to_string(i)}});
  EXPECT_EQ(put("t", many.dump()).json().size(), 1000U);
  many.push_back({{"body", "one more"}});
  EXPECT_EQ(put("t", many.dump()).status, 400);
  const json got = web().ask("POST", "/v1/tubes/t/reserve?max=1000").json()["tasks"];
  ASSERT_EQ(got.size(), 1000U);
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(got[i]["body"], std::to_string(i));
}

TEST_F(a_web_server, lists_every_task_once_page_by_page) {
  options_.broker.most_in_memory = 20;
  options_.broker.chunk = 10;
  start();
  for (int i = 0; i < 100; ++i) {
    const json t{{"body", std::to_string(i)}, {"delay", 1'000'000 + (i * 37) % 100 * 1000}};
    EXPECT_EQ(put("t", t.dump()).status, 201);
  }
  for (const int limit : {1, 7, 100, 1000}) {
    std::vector<std::string> dues;
    std::string after;
    do {
      const json page = web()
                            .ask("GET", "/v1/tubes/t/tasks?state=delayed&bodies=true&limit=" +
                                            std::to_string(limit) + after)
                            .json();
      EXPECT_LE(page["tasks"].size(), static_cast<std::size_t>(limit));
      for (const json& t : page["tasks"]) dues.push_back(t["due"]);
      after = page.contains("next") ? "&after=" + page["next"].get<std::string>() : "";
    } while (!after.empty());
    EXPECT_EQ(dues.size(), 100U) << "pages of " << limit;
    EXPECT_TRUE(std::is_sorted(dues.begin(), dues.end()));
  }
  // The window holds only some of them; they are all counted.
  const json f = web().ask("GET", "/v1/forecast?minutes=1440").json();
  EXPECT_FALSE(f.contains("known_until"));
  std::uint64_t sum = 0;
  for (const json& m : f["minutes"]) sum += m.get<std::uint64_t>();
  EXPECT_EQ(sum, 100U);
}

TEST_F(a_web_server, lists_leases_without_their_tokens) {
  start();
  const json none =
      expect(200, "GET", "/v1/tubes/{tube}/tasks", "/v1/tubes/default/tasks?state=reserved").json();
  EXPECT_TRUE(none["tasks"].empty());
  json many = json::array();
  for (int i = 0; i < 30; ++i) many.push_back({{"body", std::to_string(i)}, {"ttr", 3'600'000}});
  EXPECT_EQ(put("t", many.dump()).status, 201);
  const json got = web().ask("POST", "/v1/tubes/t/reserve?max=20").json()["tasks"];
  wire w(server_->address().port());  // and one over the other protocol
  w.ask("watch t\r\n");
  EXPECT_TRUE(w.ask("reserve-with-timeout 0\r\n").starts_with("RESERVED 21"));
  const auto list = [&](const std::string& more) {
    return expect(200, "GET", "/v1/tubes/{tube}/tasks", "/v1/tubes/t/tasks?state=reserved" + more);
  };
  for (const int limit : {1, 7, 21, 100}) {
    std::vector<int> ids;
    std::string after;
    do {
      const json page = list("&bodies=true&limit=" + std::to_string(limit) + after).json();
      for (const json& t : page["tasks"]) {
        ids.push_back(t["id"]);
        EXPECT_EQ(t["state"], "reserved");
        EXPECT_EQ(t["body"], std::to_string(t["id"].get<int>() - 1));
        EXPECT_GT(t["time_left"], 3'000'000);
        EXPECT_GT(t["lease_ends"], t["due"]);
      }
      after = page.contains("next") ? "&after=" + page["next"].get<std::string>() : "";
    } while (!after.empty());
    EXPECT_EQ(ids.size(), 21U) << "pages of " << limit;
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  }
  for (const json& t : got) {
    const std::string lease = t["lease"];
    EXPECT_EQ(list("&limit=1000").body.find(lease.substr(lease.find('.') + 1)), std::string::npos);
  }
  EXPECT_EQ(web().ask("POST", lease_path(got[0], "ack")).status, 200);
  EXPECT_EQ(list("").json()["tasks"].size(), 20U);
  w.close();
  wait_until([&] { return list("").json()["tasks"].size() == 19; });
  restart();
  EXPECT_EQ(list("").json()["tasks"].size(), 19U) << "leases outlast a restart";
}

TEST_F(a_web_server, lists_tubes_by_name) {
  start();
  for (const char* const name : {"b", "c", "a"}) EXPECT_EQ(put(name, R"({"body":""})").status, 201);
  const json first = web().ask("GET", "/v1/tubes?limit=2").json();
  EXPECT_EQ(first["tubes"][0]["name"], "a");
  EXPECT_EQ(first["next"], "b");
  const json rest = web().ask("GET", "/v1/tubes?after=b").json();
  EXPECT_EQ(rest["tubes"][0]["name"], "c");
  EXPECT_EQ(rest["tubes"][1]["name"], "default");
  EXPECT_FALSE(rest.contains("next"));
}

TEST_F(a_web_server, pauses_and_kicks_a_tube) {
  start();
  EXPECT_EQ(put("a/b", R"([{"body":"1"},{"body":"2","delay":3600000}])").status, 201);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/a%2Fb/pause", R"({"for":3600000})").status, 200);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/a%2Fb/reserve").json()["tasks"].size(), 0U);
  EXPECT_GT(web().ask("GET", "/v1/tubes/a%2Fb").json()["paused_for"], 3'000'000);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/a%2Fb/kick", R"({"max":5})").json()["kicked"], 1);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/a%2Fb/pause", R"({"for":0})").status, 200);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/a%2Fb/reserve?max=5").json()["tasks"].size(), 2U);
}

TEST_F(a_web_server, answers_a_repeated_request_with_the_first_answer) {
  start();
  const http_wire::header_list with{{"Content-Type", "application/json"},
                                    {"Idempotency-Key", "order-7"}};
  const http_answer first = web().ask("POST", "/v1/tubes/t/tasks", R"({"body":"x"})", with);
  const http_answer again = web().ask("POST", "/v1/tubes/t/tasks", R"({"body":"x"})", with);
  EXPECT_EQ(again.status, 201);
  EXPECT_EQ(again.body, first.body);
  EXPECT_EQ(again.header("idempotency-replayed"), "true");
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t").json()["ready"], 1);
  const http_answer bad =
      web().ask("POST", "/v1/tubes/t/tasks", R"({"ttr":1})",
                {{"Content-Type", "application/json"}, {"Idempotency-Key", "order-8"}});
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(web()
                .ask("POST", "/v1/tubes/t/tasks", R"({"body":"x"})",
                     {{"Content-Type", "application/json"}, {"Idempotency-Key", "order-8"}})
                .status,
            201)
      << "what was refused may be sent again, corrected";
}

TEST_F(a_web_server, answers_a_repeated_request_with_the_first_answer_after_a_restart) {
  start();
  const http_wire::header_list with{{"Content-Type", "application/json"},
                                    {"Idempotency-Key", "order-7"}};
  const auto again = [&](const std::string& body) {
    return web().ask("POST", "/v1/tubes/t/tasks", body, with);
  };
  const std::string many = R"([{"body":"x"},{"body":"y","key":"k"},{"body":"z","key":"k"}])";
  const http_answer first = again(many);
  EXPECT_EQ(first.status, 201);
  for (int i = 0; i < 2; ++i) {
    restart();
    const http_answer replayed = again(many);
    EXPECT_EQ(replayed.status, 201);
    EXPECT_EQ(replayed.body, first.body);
    EXPECT_EQ(replayed.header("idempotency-replayed"), "true");
  }
  EXPECT_EQ(again(R"({"body":"other"})").problem(), "idempotency-mismatch");
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t").json()["ready"], 2);
  // A lease that is acked twice with one key: the second is told what the first was told.
  const json got = web().ask("POST", "/v1/tubes/t/reserve").json()["tasks"][0];
  const http_wire::header_list ack{{"Idempotency-Key", "ack-1"}};
  EXPECT_EQ(web().ask("POST", lease_path(got, "ack"), "", ack).status, 200);
  restart();
  EXPECT_EQ(web().ask("POST", lease_path(got, "ack"), "", ack).status, 200);
  EXPECT_EQ(web().ask("POST", lease_path(got, "ack")).status, 404);
  EXPECT_EQ(again(std::string(1, '{')).status, 400);
  EXPECT_EQ(
      web()
          .ask("POST", "/v1/tubes/t/tasks", R"({"body":"x"})",
               {{"Content-Type", "application/json"}, {"Idempotency-Key", std::string(256, 'k')}})
          .status,
      400);
}

TEST_F(a_web_server, takes_as_many_tasks_as_a_tube_may_have) {
  start();
  EXPECT_EQ(web().ask("PUT", "/v1/tubes/t/limits", R"({"max_tasks":3})").status, 200);
  EXPECT_EQ(put("t", R"([{"body":"1","key":"k"},{"body":"2"}])").status, 201);
  const http_answer full = put("t", R"([{"body":"3"},{"body":"4"}])");
  EXPECT_EQ(full.status, 429) << "all or none";
  EXPECT_EQ(full.problem(), "tube-full");
  EXPECT_EQ(put("t", R"({"body":"3"})").status, 201);
  restart();
  EXPECT_EQ(put("t", R"({"body":"4"})").status, 429) << "the limit is on disk";
  EXPECT_EQ(web().ask("GET", "/v1/tubes/t").json()["max_tasks"], 3);
  EXPECT_EQ(put("t", R"({"body":"1","key":"k"})").status, 200) << "one that is kept needs no room";
  EXPECT_EQ(web().ask("PUT", "/v1/tubes/t/keys/k", R"({"body":"new"})").status, 201);
  wire w(server_->address().port());
  EXPECT_EQ(w.ask("use t\r\n"), "USING t\r\n");
  EXPECT_EQ(w.ask("put 0 0 60 1\r\nx\r\n"), "OUT_OF_MEMORY\r\n");
  const json got = web().ask("POST", "/v1/tubes/t/reserve").json()["tasks"][0];
  EXPECT_EQ(put("t", R"({"body":"4"})").status, 429) << "a task that is reserved is there";
  EXPECT_EQ(web().ask("POST", lease_path(got, "ack")).status, 200);
  EXPECT_EQ(put("t", R"({"body":"4"})").status, 201);
  EXPECT_EQ(web().ask("PUT", "/v1/tubes/t/limits", R"({"max_tasks":null})").status, 200);
  EXPECT_EQ(put("t", R"({"body":"5"})").status, 201);
  for (const char* const bad : {R"({"max_tasks":-1})", R"({"max_tasks":"x"})", R"({"more":1})"}) {
    EXPECT_EQ(web().ask("PUT", "/v1/tubes/t/limits", bad).status, 400) << bad;
  }
}

TEST_F(a_web_server, answers_a_waiting_client_when_it_ends) {
  start();
  http_wire w(port());
  w.send_request("POST", "/v1/tubes/t/reserve?wait=300s", "", {});
  wait_until([&] { return web().ask("GET", "/v1/server").json()["waiting"] == 1; });
  forget_connection();
  server_.reset();
  const http_answer a = w.answer();
  EXPECT_EQ(a.json()["tasks"].size(), 0U);
  EXPECT_EQ(a.header("connection"), "close");
}

// ---- Bad input ---------------------------------------------------------------------------------

struct bad_input {
  const char* method;
  const char* target;
  const char* body;
  int status;
  const char* problem;
  const char* where;
};

TEST_F(a_web_server, says_what_is_wrong_with_a_request) {
  start();
  const std::string t = "/v1/tubes/t/tasks";
  const std::vector<bad_input> table{
      {"POST", "/v1/tubes/t/tasks", "", 415, "media-type", ""},
      {"POST", "/v1/tubes/t/tasks", "{", 400, "bad-json", ""},
      {"POST", "/v1/tubes/t/tasks", "{\"body\":\"\xff\"}", 400, "bad-json", ""},
      {"POST", "/v1/tubes/t/tasks", "1", 400, "bad-value", ""},
      {"POST", "/v1/tubes/t/tasks", "[]", 400, "bad-value", ""},
      {"POST", "/v1/tubes/t/tasks", "[1]", 400, "bad-value", "/0"},
      {"POST", "/v1/tubes/t/tasks", "{}", 400, "bad-value", "/body"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":1})", 400, "bad-value", "/body"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","body_base64":""})", 400, "bad-value",
       "/body_base64"},
      {"POST", "/v1/tubes/t/tasks", R"({"body_base64":"a"})", 400, "bad-value", "/body_base64"},
      {"POST", "/v1/tubes/t/tasks", R"({"body_base64":"ab=="})", 400, "bad-value", "/body_base64"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","priority":-1})", 400, "bad-value", "/priority"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","priority":4294967296})", 400, "bad-value",
       "/priority"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","priority":1.5})", 400, "bad-value", "/priority"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","priority":"1"})", 400, "bad-value", "/priority"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","delay":-1})", 400, "bad-value", "/delay"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","delay":4294967296000})", 400, "bad-value",
       "/delay"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","delay":1e30})", 400, "bad-value", "/delay"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","delay":1,"due":"2100-01-01T00:00:00Z"})", 400,
       "bad-value", "/due"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","due":"tomorrow"})", 400, "bad-value", "/due"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","due":"2100-02-29T00:00:00Z"})", 400, "bad-value",
       "/due"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","due":"2100-01-01T00:00:00"})", 400, "bad-value",
       "/due"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","ttr":0})", 400, "bad-value", "/ttr"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","key":""})", 400, "bad-value", "/key"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","key":"a b"})", 400, "bad-value", "/key"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","if_exists":"maybe"})", 400, "bad-value",
       "/if_exists"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","dead_letter":"a b"})", 400, "bad-value",
       "/dead_letter"},
      {"POST", "/v1/tubes/t/tasks", R"({"body":"","urgency":1})", 400, "unknown-field", "/urgency"},
      {"POST", "/v1/tubes/t/tasks?now=1", R"({"body":""})", 400, "unknown-parameter", "now"},
      {"POST", "/v1/tubes/a%20b/tasks", R"({"body":""})", 400, "bad-value", "tube"},
      {"PUT", "/v1/tubes/t/keys/k", R"({"body":"","key":"k"})", 400, "bad-value", "/key"},
      {"PUT", "/v1/tubes/t/keys/k", R"({"priority":1})", 400, "bad-value", "/delay"},
      {"POST", "/v1/tubes/t/reserve?wait=301s", "", 400, "bad-value", "wait"},
      {"POST", "/v1/tubes/t/reserve?wait=-1", "", 400, "bad-value", "wait"},
      {"POST", "/v1/tubes/t/reserve?wait=1&wait=2", "", 400, "bad-value", "wait"},
      {"POST", "/v1/tubes/t/reserve?max=0", "", 400, "bad-value", "max"},
      {"POST", "/v1/tubes/t/reserve?max=1001", "", 400, "bad-value", "max"},
      {"POST", "/v1/leases/1/ack", "", 400, "bad-value", "lease"},
      {"POST", "/v1/leases/1.0/ack", "", 400, "bad-value", "lease"},
      {"POST", "/v1/leases/1.x/ack", "", 400, "bad-value", "lease"},
      {"GET", "/v1/tubes/default/tasks?after=here", "", 400, "bad-value", "after"},
      {"GET", "/v1/tubes/default/tasks?bodies=yes", "", 400, "bad-value", "bodies"},
      {"GET", "/v1/tubes/default/tasks?limit=%zz", "", 400, "bad-value", ""},
      {"POST", "/v1/tubes/default/pause", R"({"for":"1s"})", 400, "bad-value", "/for"},
      {"POST", "/v1/server/drain", R"({"on":1})", 400, "bad-value", "/on"},
      {"GET", "/v1", "", 404, "no-such-path", ""},
      {"GET", "/v1/tubes//tasks", "", 404, "no-such-path", ""},
      {"GET", "/v1/tubes/t/tasks/", "", 404, "no-such-path", ""},
      {"PUT", "/v1/tubes", "{}", 405, "method-not-allowed", ""},
      {"DELETE", "/v1/tubes/t/tasks", "", 405, "method-not-allowed", ""},
  };
  for (const bad_input& b : table) {
    SCOPED_TRACE(std::string(b.method) + " " + b.target + " " + b.body);
    const http_answer a = web().ask(b.method, b.target, b.body);
    EXPECT_EQ(a.status, b.status) << a.body;
    EXPECT_EQ(a.problem(), b.problem);
    EXPECT_EQ(a.json().value("where", ""), b.where) << a.body;
    EXPECT_EQ(a.json()["status"], b.status);
    EXPECT_FALSE(a.json()["detail"].get<std::string>().empty());
    if (b.status == 405) {
      EXPECT_NE(a.header("allow"), "");
    }
  }
}

TEST_F(a_web_server, refuses_what_is_not_http_and_closes) {
  start();
  for (const char* const bytes :
       {"hello\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET /v1/tubes HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST /v1/tubes/t/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"}) {
    http_wire w(port());
    w.send(bytes);
    const http_answer a = w.answer();
    EXPECT_EQ(a.status, 400) << bytes;
    EXPECT_EQ(a.problem(), "bad-http");
    EXPECT_EQ(a.header("connection"), "close");
  }
  EXPECT_EQ(web().ask("GET", "/v1/tubes").status, 200);
}

TEST_F(a_web_server, refuses_a_request_that_is_too_large_or_too_slow) {
  options_.http->limits.http.body_bytes = 1000;
  options_.http->limits.request = 100ms;
  start();
  http_wire large(port());
  const http_answer a = large.ask("POST", "/v1/tubes/t/tasks", std::string(1001, ' '));
  EXPECT_EQ(a.status, 413);
  http_wire slow(port());
  slow.send("GET /v1/tubes HTTP/1.1\r\nHo");
  EXPECT_EQ(slow.answer().status, 408);
}

TEST_F(a_web_server, refuses_pages_of_other_sites) {
  start();
  const std::string body = R"({"body":"x"})";
  const auto status = [&](const http_wire::header_list& extra) {
    http_wire::header_list headers{{"Content-Type", "application/json"}};
    headers.insert(headers.end(), extra.begin(), extra.end());
    return web().ask("POST", "/v1/tubes/t/tasks", body, headers).status;
  };
  EXPECT_EQ(status({{"Sec-Fetch-Site", "cross-site"}}), 403);
  EXPECT_EQ(status({{"Sec-Fetch-Site", "same-site"}}), 403);
  EXPECT_EQ(status({{"Origin", "http://evil.example"}}), 403);
  EXPECT_EQ(status({{"Origin", "null"}}), 403);
  EXPECT_EQ(status({{"Origin", "http://localhost"}, {"Sec-Fetch-Site", "same-origin"}}), 201);
  EXPECT_EQ(status({{"Host", "rebound.example"}}), 421) << "a name that resolves to loopback";
  EXPECT_EQ(status({{"Host", "127.0.0.1:80"}}), 201);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/t/tasks", body, {{"Content-Type", "text/plain"}}).status,
            415)
      << "what a form of another site can send";
}

TEST_F(a_web_server, takes_no_more_connections_than_it_may) {
  options_.http->limits.connections = 2;
  start();
  EXPECT_EQ(web().ask("GET", "/v1/tubes").status, 200);
  http_wire second(port());
  EXPECT_EQ(second.ask("GET", "/v1/tubes").status, 200);
  http_wire third(port());
  EXPECT_TRUE(third.is_closed());
  EXPECT_EQ(second.ask("GET", "/v1/tubes").status, 200);
}

}  // namespace
