// SPDX-License-Identifier: Apache-2.0

/// All of verge. Each header can also be included alone.
///
/// What destroying an object does. Only the first two rows and a runtime wait for user code. A
/// moved-from object is empty, and destroying it does nothing.
///
///   | object                   | destroying it                                        | detach() |
///   |--------------------------|------------------------------------------------------|----------|
///   | timer, ticker            | stops it; waits for a callback on another thread     | runs on  |
///   | context_callback         | stops it; waits for a call on another thread         | runs on  |
///   | canceller                | cancels the context; waits for nothing               | keeps it |
///   | context (the last copy)  | cancels the context; waits for nothing               |          |
///   | join_handle              | detaches: the task runs on                           | the same |
///   | task_group               | cancels its tasks; waits for nothing                 |          |
///   | task                     | destroys the coroutine; its waits are abandoned      |          |
///   | chan, receiver, sender   | drops a reference; the channel is not closed         |          |
///   | receiver of after, tick  | the last one stops the timer                         |          |
///   | sockets, listeners, fd   | closes it; operations on it end with net_errc::closed|          |
///   | runtime                  | waits for tasks and callbacks that run; destroys     |          |
///   |                          | suspended tasks; pending timers do not fire          |          |
///   | simulation               | as a runtime; stops the program if a function blocks |          |
///
/// To keep work running without a handle, call detach(). To end a task with its handle, cancel()
/// and join() it.
///
/// What an empty handle does. It can be moved, swapped, assigned to, tested by `if (handle)` and
/// destroyed. Everything else throws std::logic_error: stop(), reset(), detach(), c(), join(),
/// co_await, send(), recv(). The exceptions: cancelling does nothing, as it is allowed at any time
/// and any number of times; join_handle::done() returns false; sockets report net_errc::closed, as
/// all their errors are error codes; a select never chooses a case without a channel. An empty
/// context is the background.
#pragma once

#include <verge/chan.h>
#include <verge/clock.h>
#include <verge/context.h>
#include <verge/dump.h>
#include <verge/duration.h>
#include <verge/endpoint.h>
#include <verge/errors.h>
#include <verge/fd.h>
#include <verge/group.h>
#include <verge/inspect.h>
#include <verge/io.h>
#include <verge/log.h>
#include <verge/loop.h>
#include <verge/metrics.h>
#include <verge/net.h>
#include <verge/queue.h>
#include <verge/retry.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/shared_queue.h>
#include <verge/simulation.h>
#include <verge/stall.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/timeout.h>
#include <verge/timer_options.h>
#include <verge/trace.h>
#include <verge/under.h>
#include <verge/version.h>
