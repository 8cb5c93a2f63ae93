// SPDX-License-Identifier: Apache-2.0

/* A user's program in C, built against the installed libverge-c: prints its version. */
#include <stdio.h>
#include <verge_c.h>

static void count(void* calls) { ++*(int*)calls; }

int main(void) {
  int calls = 0;
  verge_queue* queue;
  if (verge_queue_new(&queue) != 0) return 1;
  verge_queue_start(queue, 1, count, &calls, NULL, NULL);
  verge_queue_run(queue, SIZE_MAX);
  verge_queue_free(queue);
  if (calls != 1) return 1;
  puts(verge_version());
  return 0;
}
