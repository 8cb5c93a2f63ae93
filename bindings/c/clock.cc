// SPDX-License-Identifier: Apache-2.0

// The version, errors, the clock.

#include <verge/clock.h>
#include <verge/time.h>
#include <verge/version.h>

#include <climits>
#include <cstring>

#include "boundary.h"

using verge::c::guarded;

extern "C" {

const char* verge_version(void) { return verge::version(); }

const char* verge_strerror(int error) {
  // The least int has no positive counterpart, and means nothing.
  const int code = error < 0 && error != INT_MIN ? -error : error;
  switch (code) {
    case 0:
      return "no error";
    case EINVAL:
      return "invalid argument: a pointer is NULL, a period is not positive, an option is out of "
             "range, or the object does not allow this here";
    case E2BIG:
      return "the options have a field that this libverge-c does not know: it is older than the "
             "header";
    case ENOMEM:
      return "out of memory; nothing has changed";
    case EDEADLK:
      return "everything in the simulation is blocked and no timer is pending: nothing can happen "
             "any more";
    default:
      break;
  }
  const char* text = ::strerrordesc_np(code);
  return text != nullptr ? text : "unknown error";
}

int64_t verge_now(void) { return verge::clock::now().time_since_epoch().count(); }
int64_t verge_fast_now(void) { return verge::clock::fast_now().time_since_epoch().count(); }

int verge_sleep(int64_t duration) {
  return guarded([&] {
    verge::sleep(std::chrono::nanoseconds(duration)).wait();
    return 0;
  });
}

}  // extern "C"
