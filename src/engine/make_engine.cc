// The engines by name.

#include <array>
#include <stdexcept>
#include <string>

#include <engine/hybrid.h>
#include <engine/processor_heap.h>
#include <sched/runtime_core.h>

namespace verge {

namespace {

constexpr std::array all{engine::processor_heap, engine::hybrid};

}  // namespace

std::span<const engine> engines() noexcept { return all; }

std::string_view name_of(engine e) noexcept {
  switch (e) {
    case engine::processor_heap:
      return "processor_heap";
    case engine::hybrid:
      return "hybrid";
  }
  return "unknown";
}

engine engine_named(std::string_view name) {
  std::string known;
  for (const engine e : all) {
    if (name_of(e) == name) return e;
    known.append(known.empty() ? "" : ", ").append(name_of(e));
  }
  throw std::invalid_argument("verge: there is no engine '" + std::string(name) +
                              "'; there are: " + known);
}

std::unique_ptr<detail::engine> detail::make_engine(verge::engine which, engine_host& host) {
  switch (which) {
    case verge::engine::processor_heap:
      return std::make_unique<processor_heap>(host);
    case verge::engine::hybrid:
      return std::make_unique<hybrid>(host);
  }
  throw std::invalid_argument("verge: no such engine; verge::engines() lists those there are");
}

}  // namespace verge
