// SPDX-License-Identifier: Apache-2.0

// Runs the suite on every engine.

#include <conformance/conformance.h>

#include <string>

namespace verge::test {
namespace {

INSTANTIATE_TEST_SUITE_P(engines, conformance, testing::ValuesIn(engines),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace verge::test
