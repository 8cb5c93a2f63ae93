// SPDX-License-Identifier: Apache-2.0

#include <verge/metrics.h>
#include <verge/verge.h>

#include <sstream>

namespace reference_metrics {

void example() {
  std::ostringstream text;
  verge::write_prometheus(text, verge::default_runtime().stats());
}

}  // namespace reference_metrics
