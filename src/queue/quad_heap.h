// SPDX-License-Identifier: Apache-2.0
// The 4-ary heap is among the public headers, because verge::timer_queue uses it too.
#pragma once

#include <verge/detail/quad_heap.h>
