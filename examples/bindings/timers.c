// SPDX-License-Identifier: Apache-2.0

/* verge's timers from C: a reminder that is stopped, a receipt, a ticker, and a queue in a loop of
 * one's own. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <verge_c.h>

static void print(void* text) { puts(text); }

static void check(int result) {
  if (result >= 0) return;
  fprintf(stderr, "verge: %s\n", verge_strerror(result));
  abort();
}

int main(void) {
  verge_timer *reminder, *receipt, *ticks;
  verge_queue* queue;
  struct pollfd watched;

  check(verge_after(&reminder, 3 * VERGE_MINUTE, print, "Do you still want it?", NULL, NULL));
  check(verge_after(&receipt, 10 * VERGE_MILLISECOND, print, "Your receipt.", NULL, NULL));
  check(verge_every(&ticks, 20 * VERGE_MILLISECOND, print, "tick", NULL, NULL));
  printf("stopped: %d\n", verge_timer_stop(reminder)); /* 1: it will never be called */
  verge_sleep(70 * VERGE_MILLISECOND);
  verge_timer_free(reminder);
  verge_timer_free(receipt);
  verge_timer_free(ticks);

  check(verge_queue_new(&queue));
  check(verge_queue_start(queue, verge_now() + VERGE_MILLISECOND, print, "closed", NULL, NULL));
  watched.fd = verge_queue_fd(queue);
  watched.events = POLLIN;
  while (verge_queue_size(queue) != 0)
    if (poll(&watched, 1, -1) == 1) verge_queue_run(queue, SIZE_MAX);
  verge_queue_free(queue);
  return 0;
}
