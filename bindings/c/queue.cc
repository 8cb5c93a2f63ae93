// SPDX-License-Identifier: Apache-2.0

// The queue for an event loop.

#include <verge/loop.h>

#include <cstdint>

#include "boundary.h"
#include "objects.h"

using verge::c::call;
using verge::c::guarded;
using verge::c::require;
using verge::c::time_of;

namespace {

using timers = verge::basic_loop_timers<call>;

/// A life is never 0, so no id is VERGE_NO_ID.
std::uint64_t number_of(timers::id t) noexcept { return std::uint64_t{t.life} << 32 | t.index; }
timers::id id_of(std::uint64_t number) noexcept {
  timers::id t;
  t.index = static_cast<std::uint32_t>(number);
  t.life = static_cast<std::uint32_t>(number >> 32);
  return t;
}

}  // namespace

extern "C" {

int verge_queue_new(verge_queue** queue) {
  return guarded([&] {
    require(queue != nullptr);
    *queue = new verge_queue();
    return 0;
  });
}

void verge_queue_free(verge_queue* queue) { delete queue; }

int verge_queue_fd(const verge_queue* queue) { return queue != nullptr ? queue->it.fd() : -EINVAL; }

int verge_queue_start(verge_queue* queue, int64_t when, verge_callback callback, void* argument,
                      verge_callback destroy, uint64_t* id) {
  return guarded([&] {
    require(queue != nullptr);
    const auto t = call::start(callback, argument, destroy,
                               [&](const call& c) { return queue->it.start(time_of(when), c); });
    if (id != nullptr) *id = number_of(t);
    return 0;
  });
}

int verge_queue_stop(verge_queue* queue, uint64_t id) {
  return guarded([&] {
    require(queue != nullptr);
    return static_cast<int>(queue->it.stop(id_of(id)));
  });
}

int verge_queue_reset(verge_queue* queue, uint64_t id, int64_t when) {
  return guarded([&] {
    require(queue != nullptr);
    return static_cast<int>(queue->it.reset(id_of(id), time_of(when)));
  });
}

int64_t verge_queue_next(verge_queue* queue) {
  if (queue == nullptr) return -EINVAL;
  const auto next = queue->it.next();
  return next ? next->time_since_epoch().count() : VERGE_NEVER;
}

size_t verge_queue_size(const verge_queue* queue) {
  return queue != nullptr ? queue->it.size() : 0;
}

int64_t verge_queue_run(verge_queue* queue, size_t at_most) {
  return guarded([&]() -> int64_t {
    require(queue != nullptr);
    return static_cast<int64_t>(queue->it.run(at_most));
  });
}

}  // extern "C"
