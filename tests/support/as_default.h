// SPDX-License-Identifier: Apache-2.0
// Makes a plain thread use the test's runtime in place of the default one.
//
//   verge::runtime rt{{.engine = ...}};
//   verge::test::as_default here(rt);
//   verge::sleep(1ms).wait();                    // rt's timers, on a thread that is no worker
//
// Plain threads use the default runtime, whose engine is fixed. This allows every engine to be used
// as most programs will: from threads without a processor.
#pragma once

#include <base/this_thread.h>
#include <verge/runtime.h>

namespace verge::test {

class as_default {
 public:
  explicit as_default(runtime& rt) noexcept : before_(detail::this_thread.current) {
    detail::this_thread.current = &detail::scheduler_of(rt);
  }
  ~as_default() { detail::this_thread.current = before_; }
  as_default(const as_default&) = delete;
  as_default& operator=(const as_default&) = delete;

 private:
  detail::scheduler* before_;
};

}  // namespace verge::test
