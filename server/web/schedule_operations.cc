// SPDX-License-Identifier: Apache-2.0

// Recurring tasks.

#include "../broker/schedule.h"
#include "../text/time_text.h"
#include "operations.h"
#include "problem.h"

namespace verge::server::web {

namespace {

std::string name_of(const call& c) {
  const std::string& name = c.part(0);
  if (!is_schedule_name(name)) {
    refuse_parameter("name", "has to be 1 to 100 of A-Z a-z 0-9 - _ .");
  }
  return name;
}

ordered_json json_of(const schedule_view& v) {
  const schedule& s = v.what;
  ordered_json j;
  j["name"] = s.name;
  j["when"] = s.when;
  j["zone"] = s.zone.empty() ? "UTC" : s.zone;
  j["tube"] = s.tube;
  j["if_missed"] = server::name_of(s.missed);
  j["fired"] = s.fired;
  if (s.last != 0) j["last"] = format_rfc3339(s.last);
  j["upcoming"] = ordered_json::array();
  for (const wall_time t : v.upcoming) j["upcoming"].push_back(format_rfc3339(t));
  if (!v.fault.empty()) j["fault"] = v.fault;
  j["task"] = web::shown(s.what);
  return j;
}

const schedule_list& list_of(const reply& r) { return *std::get<shared_schedules>(*r.shown); }

/// What the task of each firing has.
new_task read_what(const json& object, std::uint32_t body_limit) {
  new_task t = read_task(object, body_limit, "/task");
  for (const char* const name : {"key", "if_exists", "delay", "due"}) {
    if (!object.contains(name)) continue;
    throw refused({.type = "bad-value",
                   .detail = std::string(name) + " is the schedule's to say: leave it out",
                   .where = std::string("/task/").append(name)});
  }
  return t;
}

schedule read_schedule(const std::string& name, const json& body, std::uint32_t body_limit) {
  object_reader in(body, "");
  schedule s;
  s.name = name;
  const auto when = in.text("when");
  if (!when) in.refuse("when", "is missing: a cron expression like 30 2 * * *, or every 10m");
  s.when = *when;
  s.zone = in.text("zone").value_or("");
  const auto tube = in.tube("tube");
  if (!tube) in.refuse("tube", "is missing: where the tasks are put");
  s.tube = *tube;
  if (const auto missed = in.text("if_missed")) {
    const auto named = if_missed_named(*missed);
    if (!named) in.refuse("if_missed", "has to be skip, once or all");
    s.missed = *named;
  }
  s.what = read_what(in.object("task"), body_limit);
  in.finish();
  std::string why;
  if (!s.zone.empty() && calendar::zone::load(s.zone, why) == nullptr) {
    throw refused({.type = "bad-value", .detail = why, .where = "/zone"});
  }
  if (!calendar::timetable::parse(s.when, s.zone, why)) {
    throw refused({.type = "bad-value", .detail = why, .where = "/when"});
  }
  return s;
}

}  // namespace

operation set_schedule(call& c) {
  command cmd(verb::set_schedule);
  const json body = c.body();
  cmd.recurs = std::make_shared<const schedule>(read_schedule(name_of(c), body, c.limits().body));
  return ask(std::move(cmd), [](reply& r) {
    if (r.what == answer::failed) {
      throw refused({.status = 409, .type = "too-many", .detail = r.text});
    }
    if (r.what != answer::inserted && r.what != answer::replaced) refuse_reply(r);
    return json_response(json_of(list_of(r).all.front()), r.what == answer::inserted ? 201 : 200);
  });
}

operation show_schedule(call& c) {
  command cmd(verb::show_schedule);
  cmd.text = name_of(c);
  return ask(std::move(cmd), [](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    return json_response(json_of(list_of(r).all.front()));
  });
}

operation list_schedules(call& c) {
  const std::uint64_t limit = c.number("limit", c.limits().usual_page, 1, c.limits().page);
  command cmd(verb::list_schedules, limit);
  cmd.text = c.parameter("after").value_or("");
  return ask(std::move(cmd), [limit](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    ordered_json j;
    j["schedules"] = ordered_json::array();
    for (const schedule_view& v : list_of(r).all) {
      if (j["schedules"].size() == limit) {
        j["next"] = j["schedules"].back()["name"];
        break;
      }
      j["schedules"].push_back(json_of(v));
    }
    return json_response(j);
  });
}

operation remove_schedule(call& c) {
  command cmd(verb::remove_schedule);
  cmd.text = name_of(c);
  return ask(std::move(cmd), [name = name_of(c)](reply& r) {
    if (r.what != answer::done) refuse_reply(r);
    ordered_json j;
    j["name"] = name;
    j["outcome"] = "removed";
    return json_response(j);
  });
}

}  // namespace verge::server::web
