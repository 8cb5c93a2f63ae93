// SPDX-License-Identifier: Apache-2.0
// fiber: a cooperative thread, for the explorer.
//
//   fiber main, other;                       // main: the one that is already running
//   other.start([](void*) { ... }, arg);     // nothing runs yet
//   fiber::switch_to(main, other);           // returns on a switch back to main
//
// A switch costs some nanoseconds on x86-64, where it is written in assembly; elsewhere it uses
// ucontext, which makes a system call. A fiber that is restarted abandons its old stack: no
// destructor runs. The address sanitizer is told of every switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Pushes the callee-saved registers, switches stacks, pops them.
extern "C" void verge_test_switch_stack(void** save, void* load);
asm(R"(
.text
.p2align 4
.type verge_test_switch_stack, @function
verge_test_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size verge_test_switch_stack, .-verge_test_switch_stack
)");
#endif

namespace verge::test {

class fiber {
 public:
  using entry = void (*)(void*);

  fiber() = default;
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// Makes the next switch to this fiber call `f(arg)`, which must not return.
  void start(entry f, void* arg) {
    if (stack_ == nullptr) stack_ = std::make_unique<std::byte[]>(stack_size);
    f_ = f;
    arg_ = arg;
#if defined(__SANITIZE_ADDRESS__)
    // Abandoned frames have left poisoned memory.
    ASAN_UNPOISON_MEMORY_REGION(stack_.get(), stack_size);
    fake_stack_ = nullptr;
    bottom_ = stack_.get();
    size_ = stack_size;
#endif
#if defined(__x86_64__)
    auto top = reinterpret_cast<std::uintptr_t>(stack_.get() + stack_size) & ~std::uintptr_t{15};
    auto* slot = reinterpret_cast<void**>(top);
    *--slot = nullptr;                          // in place of a return address
    *--slot = reinterpret_cast<void*>(&enter);  // popped by ret
    for (int saved = 0; saved < 6; ++saved) *--slot = nullptr;
    sp_ = slot;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = stack_size;
    context_.uc_link = nullptr;
    makecontext(&context_, &enter, 0);
#endif
  }

  static void switch_to(fiber& from, fiber& to) {
    current_ = &to;
#if defined(__SANITIZE_ADDRESS__)
    previous_ = &from;
    __sanitizer_start_switch_fiber(&from.fake_stack_, to.bottom_, to.size_);
#endif
#if defined(__x86_64__)
    verge_test_switch_stack(&from.sp_, to.sp_);
#else
    swapcontext(&from.context_, &to.context_);
#endif
    arrived(from);
  }

 private:
  static constexpr std::size_t stack_size = 128 * 1024;

  static void enter() {
    fiber& me = *current_;
    arrived(me);
    me.f_(me.arg_);
    std::abort();
  }

  static void arrived([[maybe_unused]] fiber& me) {
#if defined(__SANITIZE_ADDRESS__)
    // The sanitizer returns the bounds of the previous stack; those of the first are not known
    // otherwise.
    __sanitizer_finish_switch_fiber(me.fake_stack_, &previous_->bottom_, &previous_->size_);
#endif
  }

  inline static fiber* current_ = nullptr;
  std::unique_ptr<std::byte[]> stack_;
  entry f_ = nullptr;
  void* arg_ = nullptr;
#if defined(__x86_64__)
  void* sp_ = nullptr;
#else
  ucontext_t context_{};
#endif
#if defined(__SANITIZE_ADDRESS__)
  inline static fiber* previous_ = nullptr;
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
#endif
};

}  // namespace verge::test
