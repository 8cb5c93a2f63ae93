// SPDX-License-Identifier: Apache-2.0

// What the server has besides tasks: metrics, health, events, the page, the log.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/web_fixture.h"
#include "text/event_log.h"
#include "web/events.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;
using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using a_site = web_fixture;

TEST_F(a_site, counts_for_prometheus) {
  start();
  EXPECT_EQ(
      put("a", R"([{"body":"1"},{"body":"2","delay":3600000},{"body":"3","delay":1}])").status,
      201);
  wait_until([&] { return web().ask("GET", "/v1/tubes/a").json()["ready"] == 2; });
  const json got = web().ask("POST", "/v1/tubes/a/reserve").json()["tasks"][0];
  EXPECT_EQ(web().ask("POST", lease_path(got, "ack")).status, 200);
  const http_answer a = web().ask("GET", "/metrics");
  EXPECT_EQ(a.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* const line :
       {"verge_tasks{tube=\"a\",state=\"ready\"} 1\n",
        "verge_tasks{tube=\"a\",state=\"delayed\"} 1\n", "verge_put_total{tube=\"a\"} 3\n",
        "verge_handed_out_total{tube=\"a\"} 1\n", "verge_deleted_total{tube=\"a\"} 1\n",
        "verge_lateness_seconds_count 1\n", "verge_lateness_seconds_bucket{le=\"+Inf\"} 1\n",
        "# TYPE verge_lateness_seconds histogram\n", "verge_draining 0\n"}) {
    EXPECT_THAT(a.body, HasSubstr(line));
  }
  EXPECT_THAT(a.body, HasSubstr("verge_disk_free_bytes "));
  // Every line is a comment or a name with a number, and every name has its type before it.
  std::string typed;
  std::istringstream lines(a.body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) typed = line.substr(7, line.find(' ', 7) - 7);
    if (line.starts_with('#')) continue;
    EXPECT_TRUE(line.starts_with(typed)) << line;
    EXPECT_NO_THROW(static_cast<void>(std::stod(line.substr(line.rfind(' ') + 1)))) << line;
  }
}

TEST_F(a_site, has_every_figure_that_the_dashboard_shows) {
  start();
  const std::string there = web().ask("GET", "/metrics").body;
  std::ifstream file(VERGE_DASHBOARD);
  const json dashboard = json::parse(file);
  std::size_t figures = 0;
  for (const json& panel : dashboard["panels"]) {
    for (const json& target : panel["targets"]) {
      const std::string query = target["expr"];
      const std::regex name("verge_[a-z_]+");
      for (std::sregex_iterator i(query.begin(), query.end(), name), end; i != end; ++i) {
        ++figures;
        EXPECT_THAT(there, HasSubstr(i->str()));
      }
    }
  }
  EXPECT_GT(figures, 15U);
}

TEST_F(a_site, tells_health_from_readiness) {
  start();
  EXPECT_EQ(web().ask("GET", "/health").json()["status"], "ok");
  EXPECT_EQ(web().ask("GET", "/ready").status, 200);
  server_->drain(true);
  wait_until([&] { return web().ask("GET", "/ready").status == 503; });
  EXPECT_EQ(web().ask("GET", "/ready").problem(), "draining");
  EXPECT_EQ(web().ask("GET", "/health").json()["status"], "draining") << "it works, and takes none";
  server_->drain(false);
  wait_until([&] { return web().ask("GET", "/ready").status == 200; });
}

json next_event(http_wire& w, const std::string& name) {
  w.until("event: " + name + "\ndata: ");
  return json::parse(w.until("\n\n"));
}

TEST_F(a_site, tells_its_state_to_all_that_listen) {
  start();
  http_wire one(port());
  http_wire other(port());
  for (http_wire* const w : {&one, &other}) {
    w->send_request("GET", "/v1/events", "", {});
    EXPECT_EQ(w->head().header("content-type"), "text/event-stream");
    next_event(*w, "state");
  }
  EXPECT_EQ(put("a", R"({"body":"x","delay":90000})").status, 201);
  for (http_wire* const w : {&one, &other}) {
    json state;
    do {
      state = next_event(*w, "state");
    } while (state["server"]["delayed"] != 1);
    EXPECT_EQ(state["tubes"][0]["name"], "a");
    EXPECT_EQ(state["tubes"][0]["delayed"], 1);
    EXPECT_THAT(state["alerts"], IsEmpty());
    EXPECT_GT(state["server"]["disk_size"], 0);
    // In ninety seconds: by the clock that is in the next minute, or in the one after it.
    json ahead;
    do {
      ahead = next_event(*w, "forecast")["minutes"];
    } while (ahead[1] != 1 && ahead[2] != 1);
  }
}

TEST_F(a_site, ends_streams_when_it_ends) {
  start();
  http_wire w(port());
  w.send_request("GET", "/v1/events", "", {});
  next_event(w, "state");
  server_.reset();
  EXPECT_TRUE(w.is_closed());
}

TEST(alerts, tell_what_an_operator_should_know) {
  survey_view v;
  v.now = 1'000'000'000'000'000'000;
  web::machine_view m;
  web::signs s;
  const auto kinds = [&] {
    std::vector<std::string> all;
    for (const web::alert& a : web::alerts_of(v, m, &s)) all.emplace_back(a.kind);
    return all;
  };
  EXPECT_THAT(kinds(), IsEmpty());
  s.failed = true;
  EXPECT_THAT(kinds(), ElementsAre("write-stopped"));
  s.failed = false;
  m.disk_size = 100ULL << 30;
  m.disk_free = 999ULL << 20;
  EXPECT_THAT(kinds(), ElementsAre("disk"));
  m.disk_free = 50ULL << 30;
  tube_view slow;
  slow.name = "slow";
  slow.oldest_ready = 61'000'000'000;
  v.tubes.push_back(slow);
  EXPECT_THAT(kinds(), ElementsAre("lag"));
  v.tubes[0].pause_left = 1;
  EXPECT_THAT(kinds(), IsEmpty()) << "a paused tube is meant to wait";
  s.clock_steps = 1;
  s.last_clock_step = v.now - 1'000'000'000;
  v.all.draining = true;
  EXPECT_THAT(kinds(), ElementsAre("clock", "draining"));
}

TEST_F(a_site, lets_nothing_run_in_its_page_but_its_own_script) {
  start();
  const http_answer a = web().ask("GET", "/");
  const std::string policy = a.header("content-security-policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_EQ(a.header("x-frame-options"), "DENY");
  EXPECT_EQ(a.header("x-content-type-options"), "nosniff");
  // One file: nothing is fetched from elsewhere, and nothing is inline that the policy forbids.
  EXPECT_THAT(a.body, Not(HasSubstr("src=")));
  EXPECT_THAT(a.body, Not(HasSubstr("https://")));
  EXPECT_THAT(a.body, Not(HasSubstr("style=")));
  EXPECT_THAT(a.body, Not(HasSubstr("innerHTML")));
  EXPECT_THAT(web().ask("GET", "/openapi.json").json()["openapi"], "3.1.0");
}

TEST_F(a_site, answers_head_without_a_body) {
  start();
  const http_answer a = web().ask("HEAD", "/openapi.json");
  EXPECT_EQ(a.status, 200);
  EXPECT_GT(std::stoul(a.header("content-length")), 1000U);
  EXPECT_EQ(web().ask("GET", "/health").status, 200) << "on the same connection";
}

// ---- The log -----------------------------------------------------------------------------------

TEST(event_log, writes_a_line_for_each_event) {
  using form = event_log::form;
  const std::int64_t at = 1'700'000'000'123'456'789;
  EXPECT_EQ(event_log::line(form::json, at, "request",
                            {{"route", "/v1"}, {"status", std::int64_t{200}}, {"ms", 0.25}}),
            "{\"time\":\"2023-11-14T22:13:20.123Z\",\"event\":\"request\",\"route\":\"/v1\","
            "\"status\":200,\"ms\":0.250}\n");
  EXPECT_EQ(event_log::line(form::text, at, "started", {{"a", "b c"}, {"d", "e"}}),
            "2023-11-14T22:13:20.123Z started a=\"b c\" d=e\n");
  EXPECT_EQ(
      event_log::line(form::json, at, "x", {{"y", "line\nend\"\xff"}}),
      "{\"time\":\"2023-11-14T22:13:20.123Z\",\"event\":\"x\",\"y\":\"line\\nend\\\"\\ufffd\"}\n")
      << "no value ends a line";
}

TEST_F(a_site, logs_requests_without_what_is_secret) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  event_log log(event_log::form::json, ends[1]);
  options_.http->log = &log;
  start();
  EXPECT_EQ(put("a", R"({"body":"secret-body","key":"secret-key"})").status, 201);
  EXPECT_EQ(web().ask("GET", "/v1/tubes/a/keys/secret-key").status, 200);
  const json got = web().ask("POST", "/v1/tubes/a/reserve?wait=0s").json()["tasks"][0];
  EXPECT_EQ(web().ask("POST", lease_path(got, "ack")).status, 200);
  EXPECT_EQ(web().ask("GET", "/secret-path?token=1").status, 404);
  forget_connection();
  server_.reset();
  ::close(ends[1]);
  std::string all;
  for (char c = 0; ::read(ends[0], &c, 1) == 1;) all += c;
  ::close(ends[0]);
  EXPECT_THAT(all, Not(HasSubstr("secret")));
  EXPECT_THAT(all, Not(HasSubstr(got["lease"].get<std::string>())));
  std::istringstream lines(all);
  std::vector<std::string> routes;
  for (std::string line; std::getline(lines, line);) routes.push_back(json::parse(line)["route"]);
  EXPECT_THAT(routes, ElementsAre("/v1/tubes/{tube}/tasks", "/v1/tubes/{tube}/keys/{key}",
                                  "/v1/tubes/{tube}/reserve", "/v1/leases/{lease}/ack", "none"));
}

}  // namespace
