// SPDX-License-Identifier: Apache-2.0

#include <verge/context.h>
#include <verge/verge.h>

namespace reference_context {

using namespace std::chrono_literals;

struct reply {};
verge::task<reply> fetch(verge::context ctx, std::string url);
void greet(const std::string& name);

verge::task<> example(verge::context parent, std::string url, verge::receiver<reply> replies) {
  std::optional<reply> first;
  auto [ctx, cancel] = verge::with_timeout(parent, 2s);
  reply r = co_await fetch(ctx, url);  // pass it to everything you call

  co_await verge::select(verge::recv(replies, first), verge::recv(ctx.done()));
  co_await verge::under(ctx, verge::recv(replies));  // verge/under.h: throws when ctx is done
  if (ctx.err()) co_return;                          // between two steps of a computation
}

inline const verge::context_key<std::string> user;

void keys(verge::context ctx) {
  verge::context with_user = verge::with_value(ctx, user, "ann");
  if (const std::string* name = with_user.value(user)) greet(*name);
}

}  // namespace reference_context
