// SPDX-License-Identifier: Apache-2.0

#include <verge/inspect.h>
#include <verge/verge.h>

namespace reference_inspect {

void example(verge::runtime& rt) {
  verge::inspector page(rt);  // http://127.0.0.1:6060/
}

}  // namespace reference_inspect
