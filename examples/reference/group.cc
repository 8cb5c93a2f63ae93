// SPDX-License-Identifier: Apache-2.0

#include <verge/group.h>
#include <verge/verge.h>

namespace reference_group {

struct reply {};
struct server {};
verge::task<reply> ask(verge::context ctx, server s);

verge::task<> example(verge::context ctx, std::vector<server> shards,
                      std::vector<server> replicas) {
  verge::task_group<reply> calls(ctx);  // under a context, or none
  for (const server& s : shards) calls.go(ask, calls.ctx(), s);
  std::vector<reply> all = co_await calls.all();  // the first failure cancels the rest

  verge::task_group<reply> race(ctx);
  for (const server& s : replicas) race.go(ask, race.ctx(), s);
  reply first = co_await race.first();  // the first success cancels the rest
}

}  // namespace reference_group
