// A plain thread that uses a runtime of the test's own, in place of the default one.
//
//   verge::runtime rt{{.engine = ...}};
//   verge::test::as_default here(rt);
//   verge::sleep(1ms).wait();                    // rt's timers, on a thread that is no worker
//
// What a thread that belongs to no runtime starts is the default runtime's, whose engine is fixed.
// This lets every engine be used in the way most programs will: from threads that hold no
// processor.
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
