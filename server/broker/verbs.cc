// SPDX-License-Identifier: Apache-2.0

// What is true of commands by their verb.

#include "command.h"

namespace verge::server {

bool keeps_reply(verb v) noexcept {
  switch (v) {
    case verb::put:
    case verb::put_many:
    case verb::remove:
    case verb::release:
    case verb::bury:
    case verb::touch:
    case verb::kick:
    case verb::kick_task:
    case verb::pause:
      return true;
    default:
      return false;
  }
}

bool is_repeatable(verb v) noexcept {
  switch (v) {
    case verb::put:
    case verb::put_many:
    case verb::reserve_task:
    case verb::remove:
    case verb::release:
    case verb::bury:
    case verb::kick:
    case verb::kick_task:
    case verb::cancel:
    case verb::reschedule:
    case verb::undelivered:
    case verb::postpone:
    case verb::give_back:
      return false;
    default:
      return true;
  }
}

}  // namespace verge::server
