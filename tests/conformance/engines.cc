// The engines that the suite runs on.

#include <conformance/conformance.h>

#include <string>

namespace verge::test {
namespace {

constexpr engine_traits engines[] = {
    {.name = "processor_heap", .engine = verge::engine::processor_heap},
};

INSTANTIATE_TEST_SUITE_P(engines, conformance, testing::ValuesIn(engines),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace verge::test
