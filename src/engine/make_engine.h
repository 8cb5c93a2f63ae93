// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <engine/engine.h>
#include <verge/runtime.h>

namespace verge::detail {

/// The engine of that name.
std::unique_ptr<timer_engine> make_engine(verge::engine which, engine_host& host,
                                          wheel_options wheel = {});

}  // namespace verge::detail
