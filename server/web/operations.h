// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "api.h"
#include "call.h"

/// What each route of the interface does: a request becomes commands, and their replies a response.
namespace verge::server::web {

// task_operations.cc
operation put_tasks(call& c);
operation show_key(call& c);
operation put_key(call& c);
operation cancel_key(call& c);
operation show_task(call& c);
operation reschedule_task(call& c);
operation cancel_task(call& c);
operation kick_task(call& c);

// work_operations.cc
operation reserve(call& c);
operation ack(call& c);
operation release_lease(call& c);
operation bury_lease(call& c);
operation touch_lease(call& c);

// push_operations.cc
operation show_push(call& c);
operation set_push(call& c);
operation clear_push(call& c);

// schedule_operations.cc
operation list_schedules(call& c);
operation show_schedule(call& c);
operation set_schedule(call& c);
operation remove_schedule(call& c);

// view_operations.cc
operation list_tasks(call& c);
operation list_tubes(call& c);
operation show_tube(call& c);
operation pause_tube(call& c);
operation kick_tube(call& c);
operation limit_tube(call& c);
operation show_server(call& c);
operation drain_server(call& c);
operation show_forecast(call& c);
operation show_cluster(call& c);

// site_operations.cc
operation show_page(call& c);
operation show_contract(call& c);
operation show_metrics(call& c);
operation show_health(call& c);
operation show_readiness(call& c);
operation stream_events(call& c);

/// The operation that gives the broker one command, and answers by its reply.
template <class F>
operation ask(command cmd, F answer) {
  operation op;
  op.commands.push_back(std::move(cmd));
  op.answer = [answer = std::move(answer)](std::vector<reply>& replies) {
    return answer(replies.front());
  };
  return op;
}
http::response json_response(const ordered_json& j, int status = 200);
/// The same for what is written already.
http::response json_text(std::string text, int status = 200);
/// What a reply that is no success means. Always throws.
[[noreturn]] void refuse_reply(const reply& r);

}  // namespace verge::server::web
