// SPDX-License-Identifier: Apache-2.0

/* libverge-c from C, as C99 with strict prototypes. Each function below is a test; main() runs them
 * all, and ends with 1 if a check has failed. */
#define _POSIX_C_SOURCE 200809L /* NOLINT: for pthread and poll in C99 */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <verge_c.h>

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

/* What callbacks do to their argument. The lock orders them with the test. */
struct counts {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int called;
  int destroyed;
  int early;
  int64_t due;
};

static struct counts* new_counts(void) {
  struct counts* c = calloc(1, sizeof *c);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  return c;
}

static void free_counts(struct counts* c) {
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  free(c);
}

static void count_call(void* argument) {
  struct counts* c = argument;
  pthread_mutex_lock(&c->lock);
  ++c->called;
  if (verge_now() < c->due) ++c->early;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static void count_destroyed(void* argument) {
  struct counts* c = argument;
  pthread_mutex_lock(&c->lock);
  ++c->destroyed;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static void wait_for(struct counts* c, const int* what, int n) {
  pthread_mutex_lock(&c->lock);
  while (*what < n) pthread_cond_wait(&c->changed, &c->lock);
  pthread_mutex_unlock(&c->lock);
}

static void says_its_version(void) {
  int major, minor, patch;
  CHECK(sscanf(verge_version(), "%d.%d.%d", &major, &minor, &patch) == 3);
}

static void explains_every_error(void) {
  CHECK(strstr(verge_strerror(-EINVAL), "invalid") != NULL);
  CHECK(strcmp(verge_strerror(-ENOMEM), verge_strerror(ENOMEM)) == 0);
  CHECK(verge_strerror(-EMFILE) != NULL);
  CHECK(verge_strerror(-123456) != NULL);
  CHECK(verge_strerror(0) != NULL);
}

static void the_clock_goes_on_while_it_sleeps(void) {
  const int64_t start = verge_now();
  CHECK(verge_sleep(2 * VERGE_MILLISECOND) == 0);
  CHECK(verge_now() >= start + 2 * VERGE_MILLISECOND);
  CHECK(verge_fast_now() >= start);
  CHECK(verge_sleep(-1) == 0);
}

static void a_timer_calls_once_and_not_early(void) {
  struct counts* c = new_counts();
  verge_timer* t = NULL;
  c->due = verge_now() + 2 * VERGE_MILLISECOND;
  CHECK(verge_at(&t, c->due, count_call, c, count_destroyed, NULL) == 0);
  wait_for(c, &c->called, 1);
  CHECK(verge_timer_stop(t) == 0);
  CHECK(c->destroyed == 0);
  CHECK(verge_timer_reset(t, VERGE_HOUR) == 0);
  CHECK(verge_timer_reset_at(t, verge_now()) == 1);
  wait_for(c, &c->called, 2);
  verge_timer_free(t);
  CHECK(c->destroyed == 1);
  CHECK(c->called == 2);
  CHECK(c->early == 0);
  free_counts(c);
}

static void a_timer_that_is_stopped_is_not_called(void) {
  struct counts* c = new_counts();
  verge_timer* t = NULL;
  CHECK(verge_after(&t, VERGE_HOUR, count_call, c, count_destroyed, NULL) == 0);
  CHECK(verge_timer_stop(t) == 1);
  CHECK(verge_timer_stop(t) == 0);
  verge_timer_free(t);
  CHECK(c->called == 0);
  CHECK(c->destroyed == 1);
  free_counts(c);
}

static void a_detached_timer_fires_and_destroys_its_argument(void) {
  struct counts* c = new_counts();
  verge_timer* t = NULL;
  CHECK(verge_after(&t, VERGE_MILLISECOND, count_call, c, count_destroyed, NULL) == 0);
  CHECK(verge_timer_detach(t) == 0);
  wait_for(c, &c->destroyed, 1);
  CHECK(c->called == 1);
  /* `destroyed` is set by a call that may still hold the lock. */
  pthread_mutex_lock(&c->lock);
  pthread_mutex_unlock(&c->lock);
  free_counts(c);
}

static void a_ticker_ticks_until_it_is_freed(void) {
  struct counts* c = new_counts();
  verge_timer* t = NULL;
  verge_timer_options options = {sizeof options, NULL, 0, VERGE_BURST, 0};
  CHECK(verge_every(&t, VERGE_MILLISECOND, count_call, c, count_destroyed, &options) == 0);
  wait_for(c, &c->called, 3);
  CHECK(verge_timer_reset_at(t, 0) == -EINVAL);
  CHECK(verge_timer_reset(t, 0) == -EINVAL);
  CHECK(verge_timer_reset(t, 2 * VERGE_MILLISECOND) == 1);
  verge_timer_free(t);
  CHECK(c->destroyed == 1);
  free_counts(c);
}

struct slow {
  struct counts* counts;
  int done;
};

static void call_slowly(void* argument) {
  struct slow* s = argument;
  count_call(s->counts);
  verge_sleep(20 * VERGE_MILLISECOND);
  s->done = 1; /* no lock: verge_timer_free() waits, and is ordered after it */
}

static void freeing_a_timer_waits_for_its_callback(void) {
  struct slow s = {new_counts(), 0};
  verge_timer* t = NULL;
  CHECK(verge_after(&t, 0, call_slowly, &s, NULL, NULL) == 0);
  wait_for(s.counts, &s.counts->called, 1);
  verge_timer_free(t);
  CHECK(s.done == 1);
  free_counts(s.counts);
}

static void misuse_is_refused_and_keeps_the_argument(void) {
  struct counts* c = new_counts();
  verge_timer* t = NULL;
  verge_timer_options options = {sizeof options, NULL, -1, 0, 0};
  CHECK(verge_after(NULL, 0, count_call, c, count_destroyed, NULL) == -EINVAL);
  CHECK(verge_after(&t, 0, NULL, c, count_destroyed, NULL) == -EINVAL);
  CHECK(verge_every(&t, 0, count_call, c, count_destroyed, NULL) == -EINVAL);
  CHECK(verge_after(&t, 0, count_call, c, count_destroyed, &options) == -EINVAL);
  options.slack = 0;
  options.missed_ticks = 7;
  CHECK(verge_every(&t, 1, count_call, c, count_destroyed, &options) == -EINVAL);
  options.size = 1;
  CHECK(verge_after(&t, 0, count_call, c, count_destroyed, &options) == -EINVAL);
  CHECK(verge_timer_stop(NULL) == -EINVAL);
  CHECK(verge_timer_reset(NULL, 0) == -EINVAL);
  CHECK(verge_timer_detach(NULL) == -EINVAL);
  CHECK(verge_queue_start(NULL, 0, count_call, c, count_destroyed, NULL) == -EINVAL);
  CHECK(verge_queue_run(NULL, 1) == -EINVAL);
  CHECK(verge_queue_fd(NULL) == -EINVAL);
  CHECK(verge_simulation_run_for(NULL, 1) == -EINVAL);
  CHECK(t == NULL);
  CHECK(c->destroyed == 0);
  verge_timer_free(NULL);
  verge_queue_free(NULL);
  verge_runtime_free(NULL);
  verge_simulation_free(NULL);
  free_counts(c);
}

/* The callback frees its own timer, which it finds where verge_after() has put it, however soon. */
struct once {
  verge_timer* timer;
  int calls;
  int destroyed;
};
static void free_myself(void* argument) {
  struct once* o = argument;
  verge_timer* mine = __atomic_load_n(&o->timer, __ATOMIC_ACQUIRE);
  CHECK(mine != NULL);
  verge_timer_free(mine);
  __atomic_add_fetch(&o->calls, 1, __ATOMIC_SEQ_CST);
}
static void count_end(void* argument) {
  struct once* o = argument;
  __atomic_add_fetch(&o->destroyed, 1, __ATOMIC_SEQ_CST);
}

static void a_callback_may_free_its_timer_before_the_start_returns(void) {
  for (int i = 0; i < 2000; ++i) {
    struct once o = {NULL, 0, 0};
    CHECK(verge_after(&o.timer, 0, free_myself, &o, count_end, NULL) == 0);
    while (__atomic_load_n(&o.destroyed, __ATOMIC_SEQ_CST) == 0) verge_sleep(VERGE_MICROSECOND);
    CHECK(__atomic_load_n(&o.calls, __ATOMIC_SEQ_CST) == 1);
  }
}

static void a_precise_timer_calls_once_and_not_early(void) {
  struct counts* c = new_counts();
  verge_timer* t;
  verge_timer_options options = {sizeof options, NULL, 0, 0, 1};
  c->due = verge_now() + 2 * VERGE_MILLISECOND;
  CHECK(verge_at(&t, c->due, count_call, c, NULL, &options) == 0);
  wait_for(c, &c->called, 1);
  verge_timer_free(t);
  CHECK(c->called == 1);
  CHECK(c->early == 0);
  free_counts(c);
}

/* Sanitizers have an allocator of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern void* __libc_malloc(size_t); /* NOLINT: glibc's own, behind the one below */
static __thread int no_memory = 0;
void* malloc(size_t size) { return no_memory ? NULL : __libc_malloc(size); }

static void without_memory_nothing_changes(void) {
  struct counts* c = new_counts();
  verge_timer* t = NULL;
  verge_queue* q = NULL;
  verge_runtime* rt = NULL;
  verge_simulation* s = NULL;
  CHECK(verge_after(&t, VERGE_HOUR, count_call, c, NULL, NULL) == 0); /* starts the runtime */
  verge_timer_free(t);
  t = NULL;
  no_memory = 1;
  CHECK(verge_after(&t, 0, count_call, c, count_destroyed, NULL) == -ENOMEM);
  CHECK(verge_at(&t, 0, count_call, c, count_destroyed, NULL) == -ENOMEM);
  CHECK(verge_every(&t, 1, count_call, c, count_destroyed, NULL) == -ENOMEM);
  CHECK(verge_queue_new(&q) == -ENOMEM);
  CHECK(verge_runtime_new(&rt, NULL) == -ENOMEM);
  CHECK(verge_simulation_new(&s, NULL) == -ENOMEM);
  no_memory = 0;
  CHECK(t == NULL && q == NULL && rt == NULL && s == NULL);
  CHECK(c->called == 0 && c->destroyed == 0);
  CHECK(verge_after(&t, 0, count_call, c, NULL, NULL) == 0);
  wait_for(c, &c->called, 1);
  verge_timer_free(t);
  free_counts(c);
}
#else
static void without_memory_nothing_changes(void) {}
#endif

/* A caller with a later header: larger options, whose new fields are 0 or not. */
static void options_of_another_version_are_understood(void) {
  struct {
    verge_timer_options known;
    uint64_t later;
  } options;
  struct counts* c = new_counts();
  verge_timer* t = NULL;
  memset(&options, 0, sizeof options);
  options.known.size = sizeof options;
  CHECK(verge_after(&t, VERGE_HOUR, count_call, c, NULL, &options.known) == 0);
  verge_timer_free(t);
  options.later = 1;
  CHECK(verge_after(&t, VERGE_HOUR, count_call, c, NULL, &options.known) == -E2BIG);
  options.known.size = sizeof(size_t); /* an earlier one, that knows no field */
  CHECK(verge_after(&t, VERGE_HOUR, count_call, c, NULL, &options.known) == 0);
  verge_timer_free(t);
  free_counts(c);
}

static void a_runtime_has_its_own_timers_and_figures(void) {
  struct counts* c = new_counts();
  verge_runtime* rt = NULL;
  verge_timer* t = NULL;
  verge_runtime_options options = {sizeof options, 1, "processor_heap"};
  verge_timer_options on = {sizeof on, NULL, 0, 0, 0};
  verge_runtime_stats stats;
  stats.size = sizeof stats;
  CHECK(verge_runtime_new(&rt, &options) == 0);
  on.runtime = rt;
  CHECK(verge_after(&t, 0, count_call, c, NULL, &on) == 0);
  wait_for(c, &c->called, 1);
  CHECK(verge_runtime_get_stats(rt, &stats) == 0);
  CHECK(stats.processors == 1);
  CHECK(stats.timers_fired == 1);
  CHECK(stats.late_p99 >= stats.late_p50 && stats.late_p50 > 0);
  verge_timer_free(t);
  verge_runtime_free(rt);
  options.engine = "sundial";
  CHECK(verge_runtime_new(&rt, &options) == -EINVAL);
  options.engine = NULL;
  options.processors = 100000;
  CHECK(verge_runtime_new(&rt, &options) == -EINVAL);
  CHECK(verge_runtime_get_stats(NULL, &stats) == 0);
  free_counts(c);
}

static void a_simulation_takes_no_time(void) {
  struct counts* c = new_counts();
  verge_simulation* sim = NULL;
  verge_simulation* second = NULL;
  verge_timer* t = NULL;
  verge_simulation_options options = {sizeof options, 7, VERGE_SECOND};
  CHECK(verge_simulation_new(&sim, &options) == 0);
  CHECK(verge_simulation_new(&second, &options) == -EINVAL);
  CHECK(verge_now() == VERGE_SECOND);
  c->due = verge_now() + 24 * VERGE_HOUR;
  CHECK(verge_after(&t, 24 * VERGE_HOUR, count_call, c, NULL, NULL) == 0);
  CHECK(verge_simulation_run_for(sim, 24 * VERGE_HOUR - 1) == 0);
  CHECK(c->called == 0);
  CHECK(verge_simulation_run_for(sim, 1) == 0);
  CHECK(c->called == 1);
  CHECK(c->early == 0);
  CHECK(verge_simulation_run_for(sim, VERGE_NEVER) == -EDEADLK);
  verge_timer_free(t);
  verge_simulation_free(sim);
  free_counts(c);
}

static void queue_timers_are_called_stopped_or_destroyed(void) {
  struct counts* c = new_counts();
  verge_queue* q = NULL;
  uint64_t due = VERGE_NO_ID, stopped = VERGE_NO_ID, moved = VERGE_NO_ID;
  struct pollfd watched;
  CHECK(verge_queue_new(&q) == 0);
  CHECK(verge_queue_next(q) == VERGE_NEVER);
  CHECK(verge_queue_start(q, 1, count_call, c, count_destroyed, &due) == 0);
  CHECK(verge_queue_start(q, 2, count_call, c, count_destroyed, &stopped) == 0);
  CHECK(verge_queue_start(q, VERGE_NEVER, count_call, c, count_destroyed, &moved) == 0);
  CHECK(verge_queue_start(q, VERGE_NEVER, count_call, c, count_destroyed, NULL) == 0);
  CHECK(verge_queue_next(q) == 1);
  CHECK(due != VERGE_NO_ID && due != stopped);
  CHECK(verge_queue_stop(q, stopped) == 1);
  CHECK(verge_queue_stop(q, stopped) == 0);
  CHECK(verge_queue_stop(q, VERGE_NO_ID) == 0);
  CHECK(verge_queue_reset(q, moved, verge_now() + VERGE_MILLISECOND) == 1);
  CHECK(c->destroyed == 1);
  CHECK(verge_queue_run(q, 1) == 1);
  watched.fd = verge_queue_fd(q);
  watched.events = POLLIN;
  CHECK(poll(&watched, 1, -1) == 1);
  CHECK(verge_queue_run(q, SIZE_MAX) == 1);
  CHECK(verge_queue_reset(q, moved, 1) == 0);
  CHECK(c->called == 2);
  CHECK(c->destroyed == 3);
  CHECK(verge_queue_size(q) == 1);
  verge_queue_free(q);
  CHECK(c->destroyed == 4);
  free_counts(c);
}

/* A hundred thousand timers from three threads, run by this one. */
enum { threads = 3, per_thread = 33334 };

struct shared_queue {
  verge_queue* queue;
  struct due_timer {
    struct shared_queue* of;
    int64_t when;
  } timers[threads][per_thread];
  int called;
  int early;
};

static void call_from_queue(void* argument) {
  const struct due_timer* t = argument;
  ++t->of->called;
  if (verge_now() < t->when) ++t->of->early;
}

struct starter {
  struct shared_queue* of;
  int number;
};

static void* start_timers(void* argument) {
  const struct starter* s = argument;
  int i;
  for (i = 0; i < per_thread; ++i) {
    struct due_timer* t = &s->of->timers[s->number][i];
    t->of = s->of;
    t->when = verge_now() + (i * 7919) % 40 * VERGE_MILLISECOND;
    if (verge_queue_start(s->of->queue, t->when, call_from_queue, t, NULL, NULL) != 0) abort();
  }
  return NULL;
}

static void queue_timers_of_other_threads_wake_the_loop(void) {
  struct shared_queue* all = calloc(1, sizeof *all);
  struct starter starters[threads];
  pthread_t ids[threads];
  int i;
  CHECK(verge_queue_new(&all->queue) == 0);
  for (i = 0; i < threads; ++i) {
    starters[i].of = all;
    starters[i].number = i;
    pthread_create(&ids[i], NULL, start_timers, &starters[i]);
  }
  while (all->called < threads * per_thread) {
    struct pollfd watched;
    watched.fd = verge_queue_fd(all->queue);
    watched.events = POLLIN;
    if (poll(&watched, 1, -1) == 1) verge_queue_run(all->queue, SIZE_MAX);
  }
  for (i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
  CHECK(all->early == 0);
  CHECK(verge_queue_size(all->queue) == 0);
  verge_queue_free(all->queue);
  free(all);
}

int main(void) {
  says_its_version();
  explains_every_error();
  the_clock_goes_on_while_it_sleeps();
  a_timer_calls_once_and_not_early();
  a_timer_that_is_stopped_is_not_called();
  a_detached_timer_fires_and_destroys_its_argument();
  a_ticker_ticks_until_it_is_freed();
  freeing_a_timer_waits_for_its_callback();
  misuse_is_refused_and_keeps_the_argument();
  a_precise_timer_calls_once_and_not_early();
  a_callback_may_free_its_timer_before_the_start_returns();
  without_memory_nothing_changes();
  options_of_another_version_are_understood();
  a_runtime_has_its_own_timers_and_figures();
  a_simulation_takes_no_time();
  queue_timers_are_called_stopped_or_destroyed();
  queue_timers_of_other_threads_wake_the_loop();
  if (failures == 0) puts("all passed");
  return failures != 0;
}
