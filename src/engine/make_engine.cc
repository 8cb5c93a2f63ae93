// SPDX-License-Identifier: Apache-2.0

// The engines by name.

#include <engine/make_engine.h>

#include <array>
#include <stdexcept>
#include <string>

#include <engine/hybrid.h>
#include <engine/processor_heap.h>
#include <engine/threaded_engine.h>

namespace verge {

namespace {

constexpr std::array all_engines{engine::global_heap,  engine::sharded_heap, engine::processor_heap,
                                 engine::simple_wheel, engine::timing_wheel, engine::hybrid};

/// What was asked for, or the default where nothing was.
detail::wheel_shape shape_of(wheel_options asked, detail::wheel_shape standard) noexcept {
  return {.tick = asked.tick.count() == 0 ? standard.tick : asked.tick.count(),
          .size = asked.size == 0 ? standard.size : asked.size};
}

constexpr std::int64_t ms = 1'000'000;

}  // namespace

std::span<const engine> engines() noexcept { return all_engines; }

std::string_view name_of(engine e) noexcept {
  switch (e) {
    case engine::global_heap:
      return "global_heap";
    case engine::sharded_heap:
      return "sharded_heap";
    case engine::processor_heap:
      return "processor_heap";
    case engine::simple_wheel:
      return "simple_wheel";
    case engine::timing_wheel:
      return "timing_wheel";
    case engine::hybrid:
      return "hybrid";
  }
  return "unknown";
}

engine engine_named(std::string_view name) {
  std::string known;
  for (const engine e : all_engines) {
    if (name_of(e) == name) return e;
    known.append(known.empty() ? "" : ", ").append(name_of(e));
  }
  throw std::invalid_argument("verge: there is no engine '" + std::string(name) +
                              "'; there are: " + known);
}

std::unique_ptr<detail::timer_engine> detail::make_engine(verge::engine which, engine_host& host,
                                                          wheel_options wheel) {
  switch (which) {
    case verge::engine::global_heap:
      return std::make_unique<global_heap>(host);
    case verge::engine::sharded_heap:
      return std::make_unique<sharded_heap>(host);
    case verge::engine::processor_heap:
      return std::make_unique<processor_heap>(host);
    case verge::engine::simple_wheel:
      return std::make_unique<simple_wheel_engine>(host,
                                                   shape_of(wheel, {.tick = ms, .size = 65'536}));
    case verge::engine::timing_wheel:
      return std::make_unique<timing_wheel_engine>(host, shape_of(wheel, {.tick = ms, .size = 20}));
    case verge::engine::hybrid:
      return std::make_unique<hybrid>(host);
  }
  throw std::invalid_argument("verge: no such engine; verge::engines() lists those there are");
}

}  // namespace verge
