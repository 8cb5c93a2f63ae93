// SPDX-License-Identifier: Apache-2.0
// The ten-state machine: how any number of threads start, stop, reset and run timers that sit on
// the heaps of several processors.
//
// Stopping or resetting a timer must not take the lock of a heap that another processor is busy
// with. So it does not touch the heap: it changes the timer's state, by compare-and-swap, and
// leaves the heap's side to the thread that has that heap's lock next. Ten states (timer_state.h)
// and a small set of operations make that safe:
//
//   by the owner of a handle (timer_operations.h)
//     add_timer                    put a new timer on a heap
//     del_timer                    stop it
//     mod_timer                    give it a new time and purpose
//     reset_timer                  give it a new time
//   on a processor's heap, with its lock (heap_operations.h)
//     clean_timers                 put the head in order
//     adjust_timers                put every modified timer in its place
//     run_timer, run_one_timer     fire the head if it is due
//     clear_deleted_timers         take the stopped ones off
//     move_timers                  hand all to another processor
//
// docs/state-machine.md has the table, state by operation.
//
// == Ground rules ==
//
// Holding a timer. A timer in running, removing, modifying or moving is held by one thread, which
// took it there by a compare-and-swap; no other thread changes its state. A thread that meets a
// held timer and needs it waits by yielding. del and mod take timers from any thread without a lock
// (modifying); the three others are for the thread that has the lock of the timer's heap.
//
// Fields of a timer.
//   state        by the rules of timer_state.h.
//   owner        written by the holder, which has the lock of that heap as well. Read by a
//                holder, and with the lock of its heap. Stale off the heap.
//   when         the heap's key. On a heap: written by a holder with the lock. Off it: by the
//                holder that is about to insert it. Read by a holder.
//   nextwhen, period, f, seq
//                written and read by a holder. The caller of add_timer has a timer that no other
//                thread knows yet.
// So every plain field is only touched by the holder, and each taking of the state acquires what
// the last letting go of it released. The heap's keys are copies, so that looking for a due timer
// touches no plain field of any.
//
// Waiting. A thread that holds a timer on a heap in modifying takes no lock, makes no system call
// and calls no other code before letting go (Go #38023, #38070), so the wait is a handful of
// instructions - unless the kernel preempts the thread, which is what the yield is for. mod_timer
// on a timer that is on no heap does take a lock while in modifying: its own processor's. That
// cannot deadlock: a thread with a heap's lock waits for timers on that heap only, and this timer
// is on none until the lock has been taken.
//
// Locks. One thread holds at most one heap's lock, except in move_timers, where the caller takes
// both in the order of their addresses. Nothing else is locked under a heap's lock by the machine
// (Go #35375), and f is called with none (Go #35532).
//
// Why the races are harmless.
//   del against run       both compare-and-swap from waiting; one wins. If it is run, del sees
//                         running and waits until it is known whether the timer is pending again.
//   mod against a sweep   the sweep has looked at the timer already: then mod's time is in
//                         timer_modified_earliest, cleared before the first look, and the next
//                         sweep comes in time. It has not: then it waits for mod and puts the timer
//                         in its place. On weak memory this rests on a total order: mod takes the
//                         timer, then reads the earliest time; the sweep clears the earliest time,
//                         then reads the state. If mod read a time that the sweep was to clear, the
//                         sweep sees the timer taken. Hence seq_cst on these four and not acquire
//                         and release.
//   del against removal   del counts the stopped timer before it lets go of it, because the heap
//                         may be destroyed with the timer then; the sweep uncounts it when it has
//                         it.
//   mod against mod       the second waits for the first; two inserts cannot happen.
//   sleeping              a thread that goes to sleep says until when and then reads next_when(); a
//                         thread that makes something earlier writes that first and then looks for
//                         sleepers (Policy::wake_net_poller). Both seq_cst: one sees the other.
//
// References. C++ has no collector, and a stopped timer stays on its heap for a while. A heap holds
// a reference on each timer that it has (Policy::acquire, when it comes from no heap), and drops it
// when the timer has left for good (Policy::release): as removed, or after f of a one-shot has
// returned. For the time of a call, f of a periodic timer has a reference of its own, because
// another thread may stop the timer and take it off meanwhile. The last reference, handle's or
// heap's, frees the timer. What an operation of the handle's side touches is alive because its
// caller has a reference. acquire and release are called with a heap's lock held (release after f:
// without): they must not call back into the machine and must not block. A basic_timers, once used,
// must outlive every timer that was on it.
//
// Memory. Only inserting and move_timers allocate, before they change anything: if the heap cannot
// grow, std::bad_alloc comes out and every timer is in the state it had.
//
// Broken rules. A state that the table calls impossible, a time that is not positive or a negative
// period ends in Policy::bad_timer, which does not return.
//
// == The policy ==
//   template <class T> atomic      as std::atomic
//   lock                           with lock() and unlock(), not throwing, held for short times
//   static void yield()            let other threads run
//   static void wake_net_poller(basic_timers&, std::int64_t when)
//                                  there is something to do at `when`: no thread may sleep past it.
//                                  Called with no lock and no timer held; must not throw
//   static void acquire(basic_timer&), release(basic_timer&)
//   static void acquire_new(basic_timers&, basic_timer&)
//                                  optional: acquire, of a timer that only the caller knows
//   static void fire(basic_timer&, std::int64_t now) noexcept
//                                  optional: what every timer does; then they have no f and seq
//   [[noreturn]] static void bad_timer(const char* operation, const basic_timer&, timer_state)
//   static void fired(basic_timers&, basic_timer&, std::int64_t now)
//                                  optional: a timer fires; with the lock held
//   memory, mutation               optional: timers.h, mutation.h
#pragma once

#include <engine/ten_states/heap_operations.h>
#include <engine/ten_states/timer_operations.h>
