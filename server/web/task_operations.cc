// SPDX-License-Identifier: Apache-2.0

// Tasks: put, show, reschedule, cancel, kick.

#include <fmt/format.h>

#include "operations.h"
#include "problem.h"

namespace verge::server::web {

namespace {

const char* outcome_of(answer a) {
  switch (a) {
    case answer::inserted:
      return "inserted";
    case answer::kept:
      return "kept";
    case answer::replaced:
      return "replaced";
    case answer::exists:
      return "exists";
    case answer::taken:
      return "taken";
    case answer::cancelled:
      return "cancelled";
    case answer::rescheduled:
      return "rescheduled";
    default:
      return "done";
  }
}

ordered_json outcome(answer a, task_id id) {
  ordered_json j;
  j["id"] = id;
  j["outcome"] = outcome_of(a);
  return j;
}

/// The most frequent response: written without a document in between.
http::response answer_put(reply& r) {
  const bool kept = r.what == answer::kept;
  if (!kept && r.what != answer::inserted && r.what != answer::replaced) refuse_reply(r);
  return json_text(fmt::format("{{\"id\":{},\"outcome\":\"{}\"}}\n", r.number, outcome_of(r.what)),
                   kept ? 200 : 201);
}

http::response answer_many(reply& r) {
  if (r.what != answer::inserted_many) refuse_reply(r);
  ordered_json list = ordered_json::array();
  for (const auto& [what, id] : r.each) list.push_back(outcome(what, id));
  return json_response(list, 201);
}

http::response answer_change(reply& r) {
  if (r.what != answer::cancelled && r.what != answer::rescheduled) refuse_reply(r);
  return json_response(outcome(r.what, r.number));
}

http::response answer_shown(reply& r) {
  if (r.what != answer::shown) refuse_reply(r);
  return json_response(shown(std::get<task_view>(*r.shown)));
}

/// A new time for a task that is there.
operation reschedule(command cmd, const json& body, const char* otherwise) {
  object_reader in(body, "");
  if (!read_when(in, cmd.time, cmd.due)) in.refuse("delay", otherwise);
  in.finish();
  return ask(std::move(cmd), &answer_change);
}

}  // namespace

operation put_tasks(call& c) {
  const json body = c.body();
  command cmd(verb::put);
  cmd.tube = c.tube();
  if (!body.is_array()) {
    cmd.tasks.push_back(read_task(body, c.limits().body, ""));
    return ask(std::move(cmd), &answer_put);
  }
  if (body.empty() || body.size() > c.limits().tasks) {
    throw refused({.type = "bad-value",
                   .detail = fmt::format("an array has 1 to {} tasks, not {}: send several",
                                         c.limits().tasks, body.size())});
  }
  cmd.what = verb::put_many;
  for (std::size_t i = 0; i < body.size(); ++i) {
    cmd.tasks.push_back(read_task(body[i], c.limits().body, fmt::format("/{}", i)));
  }
  return ask(std::move(cmd), &answer_many);
}

/// With a body it puts a task, in place of one that is there; without one it gives the one that is
/// there another time.
operation put_key(call& c) {
  json body = c.body();
  command cmd(verb::put);
  cmd.tube = c.tube();
  const bool whole = body.is_object() && (body.contains("body") || body.contains("body_base64"));
  if (!whole) {
    cmd.what = verb::reschedule;
    cmd.text = c.key();
    return reschedule(std::move(cmd), body,
                      "or due is missing: give a new time, or a body to put a task");
  }
  if (body.contains("key")) {
    throw refused({.type = "bad-value",
                   .detail = "key is in the path already: leave it out of the body",
                   .where = "/key"});
  }
  body["key"] = c.key();
  if (!body.contains("if_exists")) body["if_exists"] = "replace";
  cmd.tasks.push_back(read_task(body, c.limits().body, ""));
  return ask(std::move(cmd), &answer_put);
}

operation cancel_key(call& c) {
  command cmd(verb::cancel);
  cmd.tube = c.tube();
  cmd.text = c.key();
  return ask(std::move(cmd), &answer_change);
}

operation show_key(call& c) {
  command cmd(verb::stats_task);
  cmd.tube = c.tube();
  cmd.text = c.key();
  cmd.with_body = true;
  return ask(std::move(cmd), &answer_shown);
}

operation show_task(call& c) {
  command cmd(verb::stats_task, c.id());
  cmd.with_body = true;
  return ask(std::move(cmd), &answer_shown);
}

operation reschedule_task(call& c) {
  return reschedule(command(verb::reschedule, c.id()), c.body(),
                    "or due is missing: give a new time");
}

operation cancel_task(call& c) { return ask(command(verb::cancel, c.id()), &answer_change); }

operation kick_task(call& c) {
  const task_id id = c.id();
  return ask(command(verb::kick_task, id), [id](reply& r) {
    if (r.what != answer::kicked_task) refuse_reply(r);
    ordered_json j;
    j["id"] = id;
    j["outcome"] = "kicked";
    return json_response(j);
  });
}

}  // namespace verge::server::web
