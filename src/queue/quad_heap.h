// The 4-ary heap lies among the public headers, because verge::timer_queue is made of it too.
#pragma once

#include <verge/detail/quad_heap.h>
