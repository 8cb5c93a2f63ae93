// SPDX-License-Identifier: Apache-2.0

#include "door.h"

#include "../broker/committer.h"

namespace verge::server {

namespace {

void deny(command& c) {
  c = command(verb::say);
  c.prepared.what = answer::denied;
}

}  // namespace

void pass(gate& g, shared_caller& who, command& c) {
  const wall_time now = wall_now();
  if (c.what == verb::auth) {
    who = g.admit(c.text, now);
    c.text.clear();
    if (who == nullptr) deny(c);
    return;
  }
  if (c.what == verb::say || c.what == verb::quit) return;
  if (who != nullptr) who = g.again(who, now);
  if (who == nullptr || !who->take(clock::now()) || !may_give(*who, c)) deny(c);
}

}  // namespace verge::server
