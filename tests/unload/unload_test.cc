// SPDX-License-Identifier: Apache-2.0

// The code of a task or a callback may be unloaded once the task is joined or the timer's handle
// destroyed: nothing of it is run or read after that.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <verge/runtime.h>

#include <atomic>
#include <string>
#include <thread>

#include <support/scale.h>

namespace verge {
namespace {

class unloading : public testing::TestWithParam<engine> {
 protected:
  /// Repeatedly loads the plugin, lets it run and join one kind of task, and unloads it.
  static void rounds(int kind) {
    runtime rt({.processors = 2, .engine = GetParam()});
    for (int i = 0; i < test::scale(2000, 200); ++i) {
      void* const plugin = ::dlopen(VERGE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
      ASSERT_NE(plugin, nullptr) << ::dlerror();
      auto* const run = reinterpret_cast<void (*)(runtime&, int)>(::dlsym(plugin, "run_in_plugin"));
      ASSERT_NE(run, nullptr);
      run(rt, kind);
      ASSERT_EQ(::dlclose(plugin), 0);
      ASSERT_EQ(::dlopen(VERGE_PLUGIN, RTLD_NOW | RTLD_NOLOAD), nullptr) << "it is still loaded";
    }
  }
};

TEST_P(unloading, after_a_call_is_joined) { rounds(0); }
TEST_P(unloading, after_a_coroutine_is_joined) { rounds(1); }
TEST_P(unloading, after_a_coroutine_that_waited_is_joined) { rounds(2); }
TEST_P(unloading, after_a_coroutine_that_read_is_joined) { rounds(3); }
TEST_P(unloading, after_a_cancelled_task_is_joined) { rounds(4); }
TEST_P(unloading, after_a_task_joined_others) { rounds(5); }
TEST_P(unloading, after_the_handle_of_a_timer_is_destroyed) { rounds(6); }
TEST_P(unloading, after_coroutines_that_yielded_are_joined) { rounds(7); }
TEST_P(unloading, after_a_coroutine_that_was_handed_something_is_joined) { rounds(8); }

INSTANTIATE_TEST_SUITE_P(engines, unloading, testing::ValuesIn(engines().begin(), engines().end()),
                         [](const auto& e) { return std::string(name_of(e.param)); });

}  // namespace
}  // namespace verge
