// SPDX-License-Identifier: Apache-2.0
// mutation: places where a test may put a historic bug back into the state machine.
//
// The tests of the state machine are only worth something if they would have found the bugs that
// the machine is built to avoid. So each such bug can be switched on, one at a time, by a test's
// policy:
//
//   struct bug_policy : explorer_policy { static constexpr auto mutation = mutant::go_47762; };
//
// A policy without that member - the runtime's - has none, and `mutated` is false when the program
// is compiled, so nothing of it is left. The numbers are those of Go's issues.
#pragma once

namespace verge::detail {

enum class mutant {
  none,
  go_21874,       ///< stop on a timer that was never started counts as misuse
  go_35272,       ///< a removed timer is taken with a plain store, not a compare-and-swap
  go_35367,       ///< a timer is shown as waiting while adjust has it off the heap
  go_35532,       ///< f is called with the lock of the heap held
  go_37400,       ///< stop and reset take a timer in modifying for misuse
  go_37779,       ///< one add cleans as many timers off the heap's head as there are
  go_38860,       ///< starting a timer does not wake a thread that sleeps past its time
  go_41699,       ///< every earlier reset makes the next adjust scan the whole heap
  go_42424,       ///< a time of zero is accepted
  go_43712,       ///< a timer that changes heaps stays waiting meanwhile
  go_47329,       ///< the earliest modified time is cleared after the scan, not before
  go_47762,       ///< a scan that removes continues as if no entry had moved behind it
  go_51654,       ///< the earliest modified time outlives the last timer
  late_owner,     ///< del reads which heap it is on after it has let go of the timer
  early_release,  ///< the reference for the call of f is dropped before the call
};

template <class Policy>
constexpr bool mutated(mutant m) noexcept {
  if constexpr (requires { Policy::mutation; }) {
    return Policy::mutation == m;
  } else {
    return m == mutant::none;
  }
}

}  // namespace verge::detail
