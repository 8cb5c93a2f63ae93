// SPDX-License-Identifier: Apache-2.0

// What is shown: lists, tubes, the server; and what operators do to them.

#include <algorithm>
#include <limits>

#include "../text/time_text.h"
#include "operations.h"
#include "problem.h"

namespace verge::server::web {

namespace {

ordered_json survey_json(const survey_view& v) {
  ordered_json j;
  j["tubes"] = ordered_json::array();
  for (const tube_view& t : v.tubes) j["tubes"].push_back(shown(t));
  if (v.more) j["next"] = v.tubes.back().name;
  return j;
}

}  // namespace

http::response json_response(const ordered_json& j, int status) {
  return json_text(written(j), status);
}

http::response json_text(std::string text, int status) {
  return {
      .status = status, .content_type = "application/json", .headers = {}, .body = std::move(text)};
}

void refuse_reply(const reply& r) {
  switch (r.what) {
    case answer::not_found:
      throw refused({.status = 404,
                     .type = "not-found",
                     .detail = "there is no such task, key or tube; it may have been deleted"});
    case answer::taken:
      throw refused({.status = 409,
                     .type = "taken",
                     .detail = "a worker has the task: it cannot be changed until the worker acks "
                               "or releases it"});
    case answer::exists:
      throw refused({.status = 409,
                     .type = "exists",
                     .detail = "task " + std::to_string(r.number) +
                               " has this key: use another one, or if_exists keep or replace"});
    case answer::stale_lease:
      throw refused({.status = 409,
                     .type = "stale-lease",
                     .detail = "the lease has ended, and another worker may have the task: stop "
                               "working on it"});
    case answer::denied:
      throw refused(
          {.status = 403, .type = "forbidden", .detail = "the token is not for that tube"});
    case answer::tube_full:
      throw refused({.status = 429,
                     .type = "tube-full",
                     .detail = "the tube has as many tasks as it may have: put this one later",
                     .headers = "Retry-After: 5\r\n"});
    case answer::other_request:
      throw refused({.status = 422,
                     .type = "idempotency-mismatch",
                     .detail = "this Idempotency-Key belongs to another request: take a new one "
                               "for every request, and the same only to send it again"});
    case answer::no_push:
      throw refused({.status = 409,
                     .type = "no-push",
                     .detail = "a task has a url, but the tube's tasks are not pushed: PUT "
                               "/v1/tubes/{tube}/push first"});
    case answer::draining:
      throw refused({.status = 503,
                     .type = "draining",
                     .detail = "the server takes no more tasks: send them to another one, or later",
                     .headers = "Retry-After: 5\r\n"});
    default:
      throw refused({.status = 503,
                     .type = "store-failed",
                     .detail = r.text.empty()
                                   ? "the server cannot write to its disk, and nothing was "
                                     "done that is not acknowledged; its log says why"
                                   : r.text});
  }
}

operation list_tasks(call& c) {
  command cmd(verb::list_tasks);
  cmd.tube = c.tube();
  const std::string state = c.parameter("state").value_or("ready");
  if (state == "ready") {
    cmd.state = task_state::ready;
  } else if (state == "delayed") {
    cmd.state = task_state::delayed;
  } else if (state == "reserved") {
    cmd.state = task_state::reserved;
  } else if (state == "buried") {
    cmd.state = task_state::buried;
  } else {
    refuse_parameter("state", "has to be ready, delayed, reserved or buried");
  }
  cmd.number = c.number("limit", c.limits().usual_page, 1, c.limits().page);
  cmd.with_body = c.flag("bodies");
  if (const auto after = c.parameter("after")) {
    cmd.from = parse_cursor(*after);
    if (!cmd.from) refuse_parameter("after", "has to be the `next` of the page before");
  }
  return ask(std::move(cmd), [](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    const auto& v = std::get<list_view>(*r.shown);
    ordered_json j;
    j["tasks"] = ordered_json::array();
    for (const task_view& t : v.tasks) j["tasks"].push_back(shown(t));
    if (v.next) j["next"] = cursor_text(*v.next);
    return json_response(j);
  });
}

operation list_tubes(call& c) {
  command cmd(verb::survey, c.number("limit", c.limits().usual_page, 1, c.limits().page));
  cmd.text = c.parameter("after").value_or("");
  return ask(std::move(cmd), [](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    return json_response(survey_json(std::get<survey_view>(*r.shown)));
  });
}

operation show_tube(call& c) {
  command cmd(verb::stats_tube);
  cmd.text = c.tube();
  return ask(std::move(cmd), [](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    return json_response(shown(std::get<tube_view>(*r.shown)));
  });
}

operation pause_tube(call& c) {
  command cmd(verb::pause);
  cmd.text = c.tube();
  const json body = c.body();
  object_reader in(body, "");
  const auto length = in.duration("for");
  if (!length) in.refuse("for", "is missing: for how many milliseconds; 0 ends a pause");
  in.finish();
  cmd.time = *length;
  return ask(std::move(cmd), [name = c.tube(), length = *length](reply& r) {
    if (r.what != answer::paused) refuse_reply(r);
    ordered_json j;
    j["tube"] = name;
    j["paused_for"] = length / 1'000'000;
    return json_response(j);
  });
}

operation kick_tube(call& c) {
  command cmd(verb::kick);
  cmd.tube = c.tube();
  const json body = c.body_or_nothing();
  object_reader in(body, "");
  constexpr std::uint64_t most = 1'000'000;
  cmd.number = in.number("max", most).value_or(1);
  in.finish();
  return ask(std::move(cmd), [](reply& r) {
    if (r.what != answer::kicked) refuse_reply(r);
    ordered_json j;
    j["kicked"] = r.number;
    return json_response(j);
  });
}

operation limit_tube(call& c) {
  command cmd(verb::limit);
  cmd.tube = c.tube();
  json body = c.body();
  // Null lifts the limit: to a reader of numbers it is as if it were not there.
  const bool lifts = body.is_object() && body.contains("max_tasks") && body["max_tasks"].is_null();
  if (lifts) body.erase("max_tasks");
  object_reader in(body, "");
  cmd.most = in.number("max_tasks", std::numeric_limits<std::uint64_t>::max());
  if (!cmd.most && !lifts) {
    in.refuse("max_tasks", "is missing: how many tasks the tube takes, 0 for none, null for any");
  }
  in.finish();
  const auto most = cmd.most;
  return ask(std::move(cmd), [name = c.tube(), most](reply& r) {
    if (r.what != answer::done) refuse_reply(r);
    ordered_json j;
    j["tube"] = name;
    if (most) j["max_tasks"] = *most;
    return json_response(j);
  });
}

operation show_server(call&) {
  operation op = ask(command(verb::stats), [](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    return json_response(shown(std::get<server_view>(*r.shown)));
  });
  op.of_all_tubes = true;
  return op;
}

operation drain_server(call& c) {
  const json body = c.body();
  if (!body.is_object() || body.size() != 1 || !body.contains("on") || !body["on"].is_boolean()) {
    throw refused({.type = "bad-value",
                   .detail = "send {\"on\": true} to take no more tasks, {\"on\": false} to take "
                             "them again",
                   .where = "/on"});
  }
  const bool on = body["on"].get<bool>();
  operation op = ask(command(verb::drain, on ? 1U : 0U), [on](reply& r) {
    if (r.what != answer::done) refuse_reply(r);
    ordered_json j;
    j["draining"] = on;
    return json_response(j);
  });
  op.of_all_tubes = true;
  return op;
}

operation show_cluster(call&) {
  operation op = ask(command(verb::show_cluster), [](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    const auto& v = std::get<cluster_view>(*r.shown);
    constexpr nanoseconds millisecond = 1'000'000;
    ordered_json j;
    if (!v.answers.empty()) j["answers"] = v.answers;
    j["servers"] = ordered_json::array();
    for (const cluster_view::server& s : v.servers) {
      ordered_json& one = j["servers"].emplace_back();
      one["name"] = s.name;
      one["shards"] = s.shards;
      one["up"] = s.up / millisecond;
      one["tasks"] = s.tasks;
      if (!s.http.empty()) one["http"] = s.http;
      one["peer"] = s.peer;
    }
    j["shards"] = ordered_json::array();
    for (const cluster_view::shard& s : v.shards) {
      ordered_json& one = j["shards"].emplace_back();
      one["shard"] = s.number;
      one["epoch"] = s.epoch;
      if (!s.owner.empty()) one["owner"] = s.owner;
      one["lease_left"] = s.lease_left / millisecond;
      one["lag"] = s.lag / millisecond;
    }
    return json_response(j);
  });
  op.of_all_tubes = true;
  return op;
}

operation show_forecast(call& c) {
  const auto minutes = c.number("minutes", 60, 1, 1'440);
  operation op = ask(command(verb::forecast, minutes), [](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    const auto& v = std::get<forecast_view>(*r.shown);
    ordered_json j;
    j["minutes"] = v.minutes;
    if (v.known_until) j["known_until"] = format_rfc3339(*v.known_until);
    return json_response(j);
  });
  op.of_all_tubes = true;
  return op;
}

}  // namespace verge::server::web
