// SPDX-License-Identifier: Apache-2.0

// What workers do: reserve, and ack, release, bury, touch by the lease.

#include <fmt/format.h>

#include <limits>

#include "../text/time_text.h"
#include "operations.h"
#include "problem.h"

namespace verge::server::web {

namespace {

command on_lease(verb what, const call& c) {
  const auto lease = parse_lease(c.part(0));
  if (!lease) refuse_parameter("lease", "has to be one that a reserve gave, like 17.5f0c");
  command cmd(what, lease->first);
  cmd.token = lease->second;
  return cmd;
}

operation end_lease(command cmd, answer good, const char* outcome) {
  const task_id id = cmd.number;
  return ask(std::move(cmd), [id, good, outcome](reply& r) {
    if (r.what != good) refuse_reply(r);
    return json_text(fmt::format("{{\"id\":{},\"outcome\":\"{}\"}}\n", id, outcome));
  });
}

void read_priority(object_reader& in, command& cmd) {
  const auto priority = in.number("priority", std::numeric_limits<std::uint32_t>::max());
  cmd.keep_priority = !priority;
  cmd.priority = static_cast<std::uint32_t>(priority.value_or(0));
}

}  // namespace

operation reserve(call& c) {
  command cmd(verb::reserve);
  cmd.tube = c.tube();
  cmd.number = c.number("max", 1, 1, c.limits().tasks);
  cmd.limit = 0;
  if (const auto wait = c.parameter("wait")) {
    cmd.limit = parse_duration(*wait, second);
    if (!cmd.limit || *cmd.limit > c.limits().wait) {
      refuse_parameter("wait", fmt::format("has to be a time like 30s, 500ms or 2m, at most {}s",
                                           c.limits().wait / second));
    }
  }
  const bool waits = *cmd.limit > 0;
  operation op = ask(std::move(cmd), [tube = c.tube()](reply& r) {
    std::string text = "{\"tasks\":[";
    if (r.what == answer::reserved) {
      append_handed(text, r.task, tube);
      for (const handed_out& t : r.more) append_handed(text += ',', t, tube);
    } else if (r.what != answer::timed_out) {
      refuse_reply(r);
    }
    return json_text(text += "]}\n");
  });
  op.waits = waits;
  return op;
}

operation ack(call& c) { return end_lease(on_lease(verb::remove, c), answer::deleted, "acked"); }

operation release_lease(call& c) {
  command cmd = on_lease(verb::release, c);
  const json body = c.body_or_nothing();
  object_reader in(body, "");
  cmd.time = in.duration("delay").value_or(0);
  read_priority(in, cmd);
  in.finish();
  return end_lease(std::move(cmd), answer::released, "released");
}

operation bury_lease(call& c) {
  command cmd = on_lease(verb::bury, c);
  const json body = c.body_or_nothing();
  object_reader in(body, "");
  read_priority(in, cmd);
  in.finish();
  return end_lease(std::move(cmd), answer::buried, "buried");
}

operation touch_lease(call& c) {
  return end_lease(on_lease(verb::touch, c), answer::touched, "touched");
}

}  // namespace verge::server::web
