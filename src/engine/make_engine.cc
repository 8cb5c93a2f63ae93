#include <stdexcept>

#include <engine/processor_heap.h>
#include <sched/runtime_core.h>

namespace verge::detail {

std::unique_ptr<detail::engine> make_engine(verge::engine which, engine_host& host) {
  switch (which) {
    case verge::engine::processor_heap:
      return std::make_unique<processor_heap>(host);
  }
  throw std::invalid_argument("verge: no such engine; verge::engine names those there are");
}

}  // namespace verge::detail
