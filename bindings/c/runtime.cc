// SPDX-License-Identifier: Apache-2.0

// Runtimes and simulations.

#include <verge/runtime.h>
#include <verge/simulation.h>

#include <chrono>

#include "boundary.h"
#include "objects.h"

using verge::c::guarded;
using verge::c::read_options;
using verge::c::require;

extern "C" {

int verge_runtime_new(verge_runtime** runtime, const verge_runtime_options* options) {
  return guarded([&] {
    require(runtime != nullptr);
    const auto given = read_options(options);
    verge::runtime_options o{.processors = given.processors};
    if (given.engine != nullptr) o.engine = verge::engine_named(given.engine);
    *runtime = new verge_runtime(std::move(o));
    return 0;
  });
}

void verge_runtime_free(verge_runtime* runtime) { delete runtime; }

int verge_runtime_get_stats(verge_runtime* runtime, verge_runtime_stats* stats) {
  return guarded([&] {
    require(stats != nullptr && stats->size >= sizeof stats->size);
    auto& rt = runtime != nullptr ? runtime->it : verge::default_runtime();
    const auto s = rt.stats();
    verge_runtime_stats all{};
    all.size = std::min(stats->size, sizeof all);
    all.processors = s.processors.size();
    all.timers_live = s.total.timers_live;
    all.timers_fired = s.total.timers_fired;
    all.timer_bytes = s.timer_bytes;
    all.late_p50 = static_cast<std::uint64_t>(s.total.lateness.percentile(0.5));
    all.late_p99 = static_cast<std::uint64_t>(s.total.lateness.percentile(0.99));
    std::memcpy(stats, &all, all.size);
    return 0;
  });
}

int verge_simulation_new(verge_simulation** simulation, const verge_simulation_options* options) {
  return guarded([&] {
    require(simulation != nullptr);
    const auto given = read_options(options);
    verge::simulation_options o;
    if (given.seed != 0) o.seed = given.seed;
    if (given.start != 0) o.start = verge::c::time_of(given.start);
    *simulation = new verge_simulation(std::move(o));
    return 0;
  });
}

void verge_simulation_free(verge_simulation* simulation) { delete simulation; }

int verge_simulation_run_for(verge_simulation* simulation, int64_t duration) {
  return guarded([&] {
    require(simulation != nullptr);
    simulation->it.run_for(std::chrono::nanoseconds(duration));
    return 0;
  });
}

}  // extern "C"
