// SPDX-License-Identifier: Apache-2.0

/* verge's timers for C, and for languages that call C: libverge-c.
 *
 *   static void remind(void *customer) { ... }
 *
 *   verge_timer *t;
 *   int error = verge_after(&t, 3 * VERGE_MINUTE, remind, customer, NULL, NULL);
 *   ...
 *   if (verge_timer_stop(t) == 1) { ... }          1: it was pending, and will never be called
 *   verge_timer_free(t);                           no call is running after this
 *
 * Times are nanoseconds on the clock of verge_now(), which is CLOCK_MONOTONIC. A delay of zero or
 * less is due at once; one past the end of the clock is never due. No timer fires early.
 *
 * Functions that return int return 0, or a number where they say so, or a negative errno, which
 * verge_strerror() explains. -EINVAL: a pointer is NULL that must not be, a period is not positive,
 * or an option is out of range. -E2BIG: the options have a field that the library does not know,
 * because it is older than the header. -ENOMEM: there is no memory; nothing has changed. -EDEADLK:
 * nothing can happen any more in a simulation. Nothing is thrown.
 *
 * Every function may be called from any thread, except where it says otherwise. Functions with
 * "free" in their name take NULL.
 *
 * A callback gets its argument. `destroy`, if it is not NULL, is called once with the argument when
 * the callback will not be called any more: a timer's when it is freed, or if it was detached when
 * it has fired; that of a timer in a queue when it has been called or stopped, or the queue freed.
 * If a function fails, `destroy` is not called: the argument is still the caller's.
 *
 * Structures of options begin with their size, set by the caller to sizeof, so that a program works
 * with a later library. NULL instead of options, and 0 in any field, are the default.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

#ifdef __cplusplus
extern "C" {
#endif

#define VERGE_MICROSECOND INT64_C(1000)
#define VERGE_MILLISECOND INT64_C(1000000)
#define VERGE_SECOND INT64_C(1000000000)
#define VERGE_MINUTE (60 * VERGE_SECOND)
#define VERGE_HOUR (60 * VERGE_MINUTE)
/* A time that never comes. */
#define VERGE_NEVER INT64_MAX

typedef void (*verge_callback)(void* argument);

typedef struct verge_runtime verge_runtime;
typedef struct verge_timer verge_timer;
typedef struct verge_queue verge_queue;
typedef struct verge_simulation verge_simulation;

/* The version of the library, such as "0.1.0". */
const char* verge_version(void);
/* What an error of these functions means. Takes -EINVAL and EINVAL alike. */
const char* verge_strerror(int error);

/* ---- The clock ------------------------------------------------------------------------------- */

/* The time. On a thread that takes part in a simulation, the simulated time. */
int64_t verge_now(void);
/* A fast reading for deadlines: never behind verge_now(), and ahead of it by at most 1 us. */
int64_t verge_fast_now(void);
/* Waits. */
int verge_sleep(int64_t duration);

/* ---- Runtimes -------------------------------------------------------------------------------- */

/* Most programs need none: the first timer starts a default runtime, which NULL stands for. */

typedef struct verge_runtime_options {
  size_t size;
  unsigned processors; /* how many callbacks run concurrently; 0: one per core */
  const char* engine;  /* NULL: "hybrid"; docs/engines.md has the others */
} verge_runtime_options;

int verge_runtime_new(verge_runtime** runtime, const verge_runtime_options* options);
/* Waits for running callbacks. Pending timers do not fire; free their handles before or after. */
void verge_runtime_free(verge_runtime* runtime);

typedef struct verge_runtime_stats {
  size_t size;
  uint64_t processors;
  uint64_t timers_live;  /* pending */
  uint64_t timers_fired; /* since the runtime was made */
  uint64_t timer_bytes;  /* memory held for timers */
  uint64_t late_p50;     /* how late timers fired, in nanoseconds: half of them no later, */
  uint64_t late_p99;     /* and 99 % */
} verge_runtime_stats;

/* NULL is the default runtime. Fills in what fits into stats->size. */
int verge_runtime_get_stats(verge_runtime* runtime, verge_runtime_stats* stats);

/* ---- Timers ---------------------------------------------------------------------------------- */

enum {
  VERGE_SKIP = 0,  /* ticks that are due while the callback runs are dropped, but for one */
  VERGE_BURST = 1, /* all of them are called, late */
  VERGE_DELAY = 2  /* the next is a period after the late one */
};

typedef struct verge_timer_options {
  size_t size;
  verge_runtime* runtime; /* NULL: that of the calling callback, or the default runtime */
  int64_t slack;          /* how late the timer may fire, to fire together with others */
  int missed_ticks;       /* for verge_every: VERGE_SKIP, VERGE_BURST or VERGE_DELAY */
  int precise;            /* not 0: a thread wakes early and waits awake for the time, to be late by
                             about a microsecond; that costs processor time */
} verge_timer_options;

/* Calls callback(argument) once after `delay`, on a thread of the runtime. The callback may block.
 * The calls of one timer do not overlap. The callback may run before this function returns; *timer
 * is set by then, so it may stop, reset or free the timer. */
int verge_after(verge_timer** timer, int64_t delay, verge_callback callback, void* argument,
                verge_callback destroy, const verge_timer_options* options);
/* The same at a time of verge_now(). */
int verge_at(verge_timer** timer, int64_t when, verge_callback callback, void* argument,
             verge_callback destroy, const verge_timer_options* options);
/* Calls it every `period`; the first time a period from now. */
int verge_every(verge_timer** timer, int64_t period, verge_callback callback, void* argument,
                verge_callback destroy, const verge_timer_options* options);

/* Returns 1 if the timer was pending: it will not be called. Returns 0 if it had fired or been
 * stopped; a call may be running. */
int verge_timer_stop(verge_timer* timer);
/* Makes the timer fire once, `delay` from now, or tick every `delay`, whatever its state. It keeps
 * the slack and the precision that it was started with. Returns 1 if it was pending. */
int verge_timer_reset(verge_timer* timer, int64_t delay);
/* The same at a time. Not for timers of verge_every: -EINVAL. */
int verge_timer_reset_at(verge_timer* timer, int64_t when);
/* Frees the handle and keeps the timer running. */
int verge_timer_detach(verge_timer* timer);
/* Stops the timer, waits for a call that is running on another thread, and frees it. It may be
 * called by the timer's own callback, and does not wait then. Not while holding a lock that the
 * callback takes. */
void verge_timer_free(verge_timer* timer);

/* ---- A queue for an event loop --------------------------------------------------------------- */

/* Timers that the program's own loop calls, in verge_queue_run(). They need no runtime and no
 * thread. The loop watches verge_queue_fd(), which is readable when a timer is due; timers may be
 * started, stopped and reset on any thread, and the loop wakes in time. */

/* Not a timer. */
#define VERGE_NO_ID UINT64_C(0)

int verge_queue_new(verge_queue** queue);
/* Timers that are pending are not called. Nothing else may use the queue at the same time. */
void verge_queue_free(verge_queue* queue);
int verge_queue_fd(const verge_queue* queue);

/* `id`, if it is not NULL, gets what identifies the timer until it is called or stopped. */
int verge_queue_start(verge_queue* queue, int64_t when, verge_callback callback, void* argument,
                      verge_callback destroy, uint64_t* id);
/* Returns 1 if the timer was pending: it will not be called; otherwise 0. */
int verge_queue_stop(verge_queue* queue, uint64_t id);
/* Returns 1 if the timer was pending, and has the new time; otherwise 0: start another. */
int verge_queue_reset(verge_queue* queue, uint64_t id, int64_t when);
/* When to call verge_queue_run() next, for a loop without descriptors: VERGE_NEVER if no timer is
 * pending. Never later than the first timer. */
int64_t verge_queue_next(verge_queue* queue);
/* The number of pending timers. */
size_t verge_queue_size(const verge_queue* queue);
/* Calls what is due, at most `at_most` callbacks, SIZE_MAX for all; returns how many were called.
 * On one thread at a time. */
int64_t verge_queue_run(verge_queue* queue, size_t at_most);

/* ---- Simulated time -------------------------------------------------------------------------- */

typedef struct verge_simulation_options {
  size_t size;
  uint64_t seed; /* decides the order of what could happen at the same time; 0 is 1 */
  int64_t start; /* the initial time; 0 is one hour */
} verge_simulation_options;

/* From now on the timers that this thread starts, and verge_now(), are in simulated time, until the
 * simulation is freed. One per thread: -EINVAL otherwise. */
int verge_simulation_new(verge_simulation** simulation, const verge_simulation_options* options);
/* On the thread that made it. Free its timers first. */
void verge_simulation_free(verge_simulation* simulation);
/* Runs everything for that long; it takes no real time. On the thread that made it. */
int verge_simulation_run_for(verge_simulation* simulation, int64_t duration);

#ifdef __cplusplus
}
#endif

#pragma GCC visibility pop
