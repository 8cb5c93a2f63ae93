// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Static probes (USDT), for bpftrace, perf and SystemTap, if <sys/sdt.h> was there when the build
/// was configured (Debian's systemtap-sdt-dev). Each is a nop, and a note in the file that says
/// where it is and where its arguments are; nothing is computed for one. tools/bpftrace/ has a
/// script.
///
///   verge:start   timer, when it is due
///   verge:stop    timer, whether it was pending; also when its handle is destroyed
///   verge:reset   timer, when it is due, whether it was pending
///   verge:fire    timer, when it was due, now, what it does (detail::timer_behaviour)
///   verge:sleep   until when, in ns; 0 for as long as nothing happens
///   verge:wake    now, in ns
///   verge:steal   number of the thief, number of the processor that timers or tasks are taken from
///   verge:stall   thread, for how long, in ns
#if defined(VERGE_PROBES)
#include <sys/sdt.h>
#define VERGE_PROBE1(name, a) STAP_PROBE1(verge, name, a)
#define VERGE_PROBE2(name, a, b) STAP_PROBE2(verge, name, a, b)
#define VERGE_PROBE3(name, a, b, c) STAP_PROBE3(verge, name, a, b, c)
#define VERGE_PROBE4(name, a, b, c, d) STAP_PROBE4(verge, name, a, b, c, d)
#else
// Not computed, but used: no compiler warns of a parameter that only a probe needs.
#define VERGE_UNUSED(a) static_cast<void>(sizeof(a))  // NOLINT(bugprone-sizeof-expression)
#define VERGE_PROBE1(name, a) VERGE_UNUSED(a)
#define VERGE_PROBE2(name, a, b) VERGE_UNUSED(a), VERGE_UNUSED(b)
#define VERGE_PROBE3(name, a, b, c) VERGE_UNUSED(a), VERGE_UNUSED(b), VERGE_UNUSED(c)
#define VERGE_PROBE4(name, a, b, c, d) \
  VERGE_UNUSED(a), VERGE_UNUSED(b), VERGE_UNUSED(c), VERGE_UNUSED(d)
#endif
