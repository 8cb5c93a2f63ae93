// SPDX-License-Identifier: Apache-2.0
// hybrid_timers: the timers of one processor in the hybrid engine, and what any thread may do to
// them. Half of the file is its rules, which is why it is longer than others: they and the code
// have to be read side by side.
//
// Timers wait in a timer_wheel, under a lock of its own. The engine is fast because most operations
// do not take that lock: a timer's whole state is one word (hybrid_word.h), and to stop it, or to
// put it off, is one compare-and-swap on that word. The entry in the wheel stays where it is, and
// is corrected by the thread that comes upon it.
//
// Armed, a timer has one live entry in some processor's wheel: the one with the timer's token. The
// entry's key is never later than the time at which the timer is due. That is all that firing in
// time needs; if the key is earlier, the thread that finds the entry sees that it is not time yet,
// and puts the entry where it belongs.
//
// Stopped, a timer leaves its entry behind, and the word keeps the time that the entry was good
// for. When the timer - or another one in the same node - is started again, it goes on with that
// entry if that is early enough: then starting is one compare-and-swap, too. A deadline on every
// request, most of them stopped soon, costs the wheel one entry per node and not one per request. A
// word of zero is a timer that is not armed and has no entry.
//
// A timer that could not go on with its entry, because that was too late, may be one whose
// deadlines go up and down. Among many timers its new entry is made for a quarter of the time, so
// that it is early enough for most deadlines to come; if the timer is still armed by then, the
// entry is moved once more. (Among few timers it is not: a sleeping processor would wake for it.)
//
// A precise timer's entry has a key ahead of its time as well, by `early`: how much earlier a
// thread has to aim to be awake when the timer is due. When the entry comes up the first time, it
// is moved to the exact time, and `awake_until` tells the thread not to sleep any more. That a
// timer is precise may be changed at any time by the threads that reset it: it decides where an
// entry is put, and every place up to the due time is right.
//
// == Ground rules ==
//
//  word      changed by compare-and-swap only, from any thread. The exception is start(): its timer
//            is reachable only through its old entry, and threads that come upon that change
//            nothing but the word of a stopped timer, to zero.
//  entering  held by one thread, which has a wheel's lock, for a handful of instructions in which
//            it waits for nothing. The holder may write tag and period, and then lets go (leave()).
//            All others may change the due time meanwhile, and the holder takes over what it finds
//            when it lets go. So no thread ever waits for the holder, except when making the timer
//            periodic: the period does not fit into the word.
//  tag       written by the holder of entering, before it lets go. Read by any thread, after the
//            word.
//  period    written by the holder of entering, for a start or a reset. Read by the holder of
//            entering, and by a thread that resets the timer while no other resets or stops it.
//  wheel     guarded by `lock`. A thread has at most one lock, except around give(), which needs
//            both, taken in the order of their addresses. Nothing is called under it that could
//            wait, or that is user code.
//  next      the wheel's first key, for threads that are about to sleep; written under `lock`.
//            Never later than any timer whose start or reset has returned, unless a thread that
//            holds a lock or entering for it was preempted there.
//  early,    figures: any thread may read them, and all values are right. `early` is written by the
//  awake_    thread that sleeps, `awake_until` under `lock`. A key that depends on `early` is
//  until     computed once, for the entry and for the tag.
//  entries   have no reference. A node's memory stays a node's, and its token goes on from life to
//            life: an entry whose token is not the node's, or whose timer's word is zero, is out of
//            date for good, because every new entry has a token of its own. (Tokens repeat after
//            16,384 entries of one node. An entry that old passes for a second live one: it is
//            carried along and dropped with the timer's own.)
//  dropping  a thread that drops the entry of a stopped timer, with the node's token, first changes
//            the word to zero: so a word that says "stopped, and the entry is there" is right.
//  being     holds a reference on the node: taken by the thread that arms it, dropped by the thread
//  armed     that stops it - or by the holder, if there is one - or handed on to the firing. A stop
//            may leave it with the timer (`kept`, a bit of the word of a stopped timer), so that
//            stopping and starting again is two compare-and-swaps and nothing else. The thread that
//            takes that bit away, with the word, has the reference: one that starts the timer
//            again, one that drops its entry, or the owner of a handle that is about to drop its
//            own reference (give_up).
//
// == Outcomes of races ==
//
//  stop against fire       both swap from the same word. The loser sees the timer disarmed: stop
//                          returns false, or the firing does not take place. A reset in between
//                          makes the firing fail as well: it swaps from the very word whose time
//                          was due.
//  stop against stop       one swaps; the other returns false.
//  stop against reset      the later swap decides. A stop that meets entering clears the time, and
//                          the holder leaves the timer disarmed, with no entry, instead of arming
//                          it.
//  start or reset of a     both swap from the same word: either the entry is used again, and the
//  stopped timer against   thread that came upon it sees an armed timer; or the word is zero, and
//  its entry's end         the start makes a new entry.
//  reset against reset     to later: one after the other. To earlier: the first becomes the holder
//                          of entering; the second finds that and just changes the time; the first
//                          arms the timer with it and makes the entry for it. The later swap
//                          decides.
//  later reset against     the entry comes up, the word says later: the entry is moved there. If
//  slot expiry             the reset comes just after that look, the firing fails and looks again.
//  earlier reset against   the thread that moves the entry is entering: either the reset finds
//  slot expiry             that, and its time is taken over; or it swaps first, and the move does
//                          not take place. A reset that had read the hint before the move and swaps
//                          after it, from the same word, reads the tag once more and sees that it
//                          has changed: then it makes an entry after all.
//  entering against        an entry that comes up while its timer is being entered is out of date:
//  slot expiry             the holder has another wheel's lock and will make a new one, or leave
//                          the timer disarmed.
//  fire against fire       (own processor and thief, or two entries as above) one swaps.
//  periodic                the thread that fires it becomes the holder, and fires only if no other
//                          has stopped or reset it when it lets go.
//  periodic reset against  a new period needs entering, hence a new entry. The same period again
//  all of that             does not, if no other thread can change the period between the look at
//                          it and the swap, which the caller guarantees: reset_alone(). Firing does
//                          not change it, so the swap is one like any other: to earlier or later.
//  give                    moves entries, and keys only to earlier: words and tags stay as they
//                          are, and no other thread can tell.
//  sleeping                a thread that makes an entry that comes first publishes `next`, then
//                          looks for sleepers; one that goes to sleep says so, then reads `next`.
//                          The thread may be preempted in between. So one that makes an entry that
//                          comes later looks whether a sleeper sleeps past that; without a fence,
//                          as the lock orders it after `next` of the first.
//                          So does a thread that moves an entry and takes over an earlier time
//                          from a reset meanwhile, which has left that to it: comes_earlier().
//
// == The policy ==
//   template <class T> atomic, lock            as std::atomic; with lock(), unlock(), not throwing
//   static void yield()
//   node                                       the timer, and its parts:
//   static atomic<std::uint64_t>& word(node&);  atomic<std::uint32_t>& tag(node&)
//   static std::int64_t& period(node&)
//   directory                                  id_of(node&), at(id), prefetch(id)
//   chunks                                     the wheel's memory
//   static void acquire(node&)                 takes a reference
//   static void release(node&)                 drops one; with no lock, and never the last
//   static void release_locked(hybrid_timers&, node&)   with a lock: may be the last
//   static void wake_net_poller(hybrid_timers&, std::int64_t when)   with no lock
//   mutation                                   optional: see hybrid_mutant
//   many_entries                               optional: from which number entries are made early
//   static bool precise(node&)                 optional: whether it is a precise timer
//   static bool sleeps_past(hybrid_timers&, std::int64_t when)   optional: engine_host's
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include <clock/arithmetic.h>
#include <queue/hybrid_word.h>
#include <verge/detail/timer_wheel.h>

namespace verge::detail {

/// Faults that a test injects, one at a time, to show that it finds them.
enum class hybrid_mutant {
  none,
  blind_hint,              ///< an earlier reset does not look at the tag again after its swap
  stop_ignores_enter,      ///< stop disarms a timer that is being entered, entering and all
  moves_without_entering,  ///< an entry that comes up too soon is moved without entering
  fires_what_it_saw,       ///< firing disarms whatever the word is by now
  no_wake,                 ///< an entry that comes first wakes no sleeper
  leaves_late,             ///< the holder arms the timer with the time that it came for
  ends_what_it_saw,        ///< the end disarms whatever the word is by now
  keeps_period,            ///< a reset alone does not look at the period
  drops_in_silence,        ///< the entry of a stopped timer is dropped and the word not changed
  forgets_what_is_kept,    ///< the same with the word changed, but the reference stays
  takes_another,           ///< a reset of a timer that has kept its reference takes one more
  reuses_any_entry,        ///< a stopped timer goes on with its entry, however late that is
  no_wake_after_move,      ///< an earlier time that was taken over wakes no sleeper
  fires_at_its_key,        ///< a precise timer fires when its entry comes up
  trusts_the_first,        ///< an entry that comes second leaves the sleeper to the first's thread
  tags_ahead_of_key,       ///< the tag of a precise timer that has come up is for the earlier key
};

template <class Policy>
class hybrid_timers {
 public:
  using node = typename Policy::node;
  using wheel_type = timer_wheel<typename Policy::chunks>;
  static_assert(hybrid_tag::token_bits == wheel_type::token_bits);
  static_assert(hybrid_word::latest <= wheel_type::never);

  hybrid_timers(typename Policy::directory nodes, typename Policy::chunks memory,
                std::int64_t now) noexcept
      : nodes_(nodes), wheel_(memory, now) {}

  // ---- by the owner of a handle, from any thread ----

  /// Arms a timer that no other thread knows yet, with the entry that the node's last timer has
  /// left behind. False if there is none, or it is too late. The caller has taken the reference.
  static bool start_again(node& t, std::int64_t when) noexcept {
    when = hybrid_word::clamp(when);
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_acquire);
    if ((w & hybrid_word::stopped) == 0) return false;
    const std::uint32_t tag = Policy::tag(t).load(std::memory_order_relaxed);
    if (!hybrid_tag::covers(tag, hybrid_word::time(w), when) &&
        !mutated(hybrid_mutant::reuses_any_entry)) {
      return false;
    }
    return swap(word, w, hybrid_word::of(when, 0));
  }

  /// Arms a timer that no other thread knows yet, with a new entry in these timers. Throws
  /// std::bad_alloc.
  void start(node& t, std::int64_t when, std::int64_t period) {
    when = hybrid_word::clamp(when);
    make_entry(t, [&]() noexcept -> place {
      const std::uint32_t token = next_token(t);
      const bool was_late = Policy::word(t).load(std::memory_order_relaxed) != 0;
      std::int64_t key = key_for(t, when, 0);
      if (was_late && period <= 0) key = key_ahead_of(key);
      Policy::tag(t).store(hybrid_tag::of(token, key), std::memory_order_relaxed);
      if (period > 0) Policy::period(t) = period;
      // release: for threads that read the word without the lock.
      Policy::word(t).store(hybrid_word::of(when, period), std::memory_order_release);
      return {key, token};
    });
  }

  /// Whether it was armed, and which has the reference for being armed now: the caller, or still
  /// the holder of entering; or with `keep` the timer itself, in place of the caller.
  enum class disarmed : std::uint8_t { no, yes, by_holder };
  static disarmed disarm(node& t, bool keep = false) noexcept {
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_relaxed);
    while (hybrid_word::due(w) != 0) {
      const bool entered = (w & hybrid_word::entering) != 0;
      // The entry stays, unless another thread is about to make or to move it.
      std::uint64_t stopped = hybrid_word::stopped_at(w, keep);
      if (entered) stopped = mutated(hybrid_mutant::stop_ignores_enter) ? 0 : hybrid_word::entering;
      if (!swap(word, w, stopped)) continue;
      return entered ? disarmed::by_holder : disarmed::yes;
    }
    return disarmed::no;
  }

  /// The end of a handle in the usual cases: the timer is armed as a one-shot and no thread is
  /// entering it; or it is stopped and has kept its reference. In both the caller has the reference
  /// for being armed then. `unusual`: nothing is changed.
  enum class ended : std::uint8_t { unusual, was_armed, was_stopped };
  static ended end_one_shot(node& t) noexcept {
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_relaxed);
    constexpr std::uint64_t flags = (std::uint64_t{1} << hybrid_word::flag_bits) - 1;
    const bool armed = (w & flags) == 0 && w != 0;
    if (!armed && !hybrid_word::keeps(w)) return ended::unusual;
    if (!swap(word, w, hybrid_word::stopped_at(w, false))) return ended::unusual;
    return armed ? ended::was_armed : ended::was_stopped;
  }

  /// Returns true if it was armed: it will not fire.
  static bool stop(node& t) noexcept {
    const disarmed was = disarm(t);
    if (was == disarmed::yes) Policy::release(t);
    return was != disarmed::no;
  }
  /// The same, for a timer that may be started again soon: it keeps its reference. The caller has
  /// one as well, and calls give_up() before it drops that.
  static bool stop_keeping(node& t) noexcept { return disarm(t, true) != disarmed::no; }
  /// True if the timer was stopped and had kept its reference: it is the caller's now.
  static bool give_up(node& t) noexcept {
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_relaxed);
    while (hybrid_word::keeps(w)) {
      if (swap(word, w, hybrid_word::stopped_at(w, false))) return true;
    }
    return false;
  }

  /// Arms it for another time, whether it was armed or not; a new entry is made in these timers.
  /// True if it was armed. Throws std::bad_alloc, and has changed nothing then; or if its entry was
  /// being moved at that moment, the timer may fire at the new time, or between that and the old
  /// one.
  bool reset(node& t, std::int64_t when, std::int64_t period) {
    return finish_reset(reset_in_place(t, when, period), t, when, period);
  }
  /// The same, if no other thread stops or resets it meanwhile.
  bool reset_alone(node& t, std::int64_t when, std::int64_t period) {
    return finish_reset(reset_in_place_alone(t, when, period), t, when, period);
  }

  /// The two halves of it: what can be done without these timers, and what is left to do.
  enum class change : std::uint8_t {
    was_armed,
    was_idle,
    needs_entry,
    was_armed_needs_entry,  ///< the time is changed, but the entry is too late for it
    was_idle_needs_entry,
  };

  static change reset_in_place(node& t, std::int64_t when, std::int64_t period) noexcept {
    if (period > 0) return change::needs_entry;
    when = hybrid_word::clamp(when);
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_acquire);
    for (;;) {
      const std::int64_t time = hybrid_word::time(w);
      if ((w & hybrid_word::entering) != 0) [[unlikely]] {
        if (swap(word, w, hybrid_word::of(when, 0) | hybrid_word::entering)) {
          return time != 0 ? change::was_armed : change::was_idle;
        }
        continue;
      }
      if (time == 0) return change::needs_entry;
      const std::uint32_t tag = Policy::tag(t).load(std::memory_order_relaxed);
      const bool idle = (w & hybrid_word::stopped) != 0;
      if (!hybrid_tag::covers(tag, time, when) &&
          !(idle && mutated(hybrid_mutant::reuses_any_entry))) {
        return change::needs_entry;
      }
      const bool needs_reference =
          idle && (!hybrid_word::keeps(w) || mutated(hybrid_mutant::takes_another));
      if (needs_reference) Policy::acquire(t);
      if (!swap(word, w, hybrid_word::of(when, 0))) {
        if (needs_reference) Policy::release(t);
        continue;
      }
      if (may_be_late(t, tag, time, when)) [[unlikely]] {
        return idle ? change::was_idle_needs_entry : change::was_armed_needs_entry;
      }
      return idle ? change::was_idle : change::was_armed;
    }
  }

  /// The first half for a timer that no other thread stops or resets meanwhile: then the period
  /// cannot change, and a timer that gets the same period again may keep its entry.
  static change reset_in_place_alone(node& t, std::int64_t when, std::int64_t period) noexcept {
    if (period <= 0) return reset_in_place(t, when, period);
    when = hybrid_word::clamp(when);
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_acquire);
    for (;;) {
      constexpr std::uint64_t flags = (std::uint64_t{1} << hybrid_word::flag_bits) - 1;
      if ((w & flags) != hybrid_word::periodic) return change::needs_entry;
      if (Policy::period(t) != period && !mutated(hybrid_mutant::keeps_period)) {
        return change::needs_entry;
      }
      const std::int64_t time = hybrid_word::time(w);
      const std::uint32_t tag = Policy::tag(t).load(std::memory_order_relaxed);
      if (!hybrid_tag::covers(tag, time, when)) return change::needs_entry;
      if (!swap(word, w, hybrid_word::of(when, period))) continue;
      return may_be_late(t, tag, time, when) ? change::was_armed_needs_entry : change::was_armed;
    }
  }

  bool finish_reset(change so_far, node& t, std::int64_t when, std::int64_t period) {
    switch (so_far) {
      case change::was_armed:
        return true;
      case change::was_idle:
        return false;
      case change::needs_entry:
        return arm(t, hybrid_word::clamp(when), period);
      case change::was_armed_needs_entry:
      case change::was_idle_needs_entry:
        break;
    }
    renew_entry(t);
    return so_far == change::was_armed_needs_entry;
  }

  // ---- with the lock ----

  /// Disarms and takes out what is due, in order: at most `most` timers, in at most `steps` steps
  /// of the wheel, which are counted down. Periodic ones are armed for their next time. `out` gets
  /// {timer, when} of each, with a reference for its firing.
  template <class Fired>
  std::size_t collect(std::int64_t now, Fired* out, std::size_t most, unsigned& steps) noexcept {
    std::size_t n = 0;
    now = std::min(now, hybrid_word::latest - 1);
    wheel_.advance(now);
    while (n < most && wheel_.ready(now, *this, steps)) {
      const auto head = wheel_.front();
      wheel_.pop();
      node& t = nodes_.at(head.id);
      if (const std::int64_t when = take(t, head, now)) out[n++] = {&t, when};
    }
    publish();
    return n;
  }

  /// When the first timer is due, exactly; 0 if there is none, INT64_MAX if it never is.
  std::int64_t next_exactly() noexcept {
    unsigned steps = std::numeric_limits<unsigned>::max();
    const std::int64_t first = correct_first(hybrid_word::latest - 1, steps);
    publish();
    return first != 0 || wheel_.empty() ? first : std::numeric_limits<std::int64_t>::max();
  }

  /// Drops and moves entries that come first, until `next` is the time of a timer or later than
  /// `until`: so that no thread sleeps until the time of one that was stopped or put off. In at
  /// most `steps` steps of the wheel and entries, which are counted down.
  void look_ahead(std::int64_t until, unsigned& steps) noexcept {
    correct_first(std::min(until, hybrid_word::latest - 1), steps);
    publish();
  }

  /// Sweeps a number of chunks. Returns true at the end of a pass.
  bool sweep(unsigned steps) noexcept {
    const bool through = wheel_.sweep(*this, steps);
    publish();
    return through;
  }

  /// Gives about so many entries to other timers. With both locks. False if these have no memory.
  bool give(hybrid_timers& to, std::size_t about) noexcept {
    const bool done = wheel_.give(to.wheel_, about);
    publish();
    to.publish();
    return done;
  }

  /// Disarms all timers. Returns how many there were.
  std::size_t drain() noexcept {
    std::size_t n = 0;
    wheel_.clear([&](std::uint32_t id, std::uint32_t token) {
      node& t = nodes_.at(id);
      const taken_off was = take_off(t, token);
      if (was == taken_off::nothing) return;
      if (was == taken_off::armed) ++n;
      Policy::release_locked(*this, t);
    });
    publish();
    return n;
  }

  /// Whether an entry was moved to an earlier time than was meant, since the last call, because
  /// that was taken over. Then the caller looks for sleepers, once it has released the lock.
  bool comes_earlier() noexcept {
    return std::exchange(comes_earlier_, false) && !mutated(hybrid_mutant::no_wake_after_move);
  }

  [[nodiscard]] const wheel_type& wheel() const noexcept { return wheel_; }

  typename Policy::lock lock;
  typename Policy::template atomic<std::int64_t> next{0};
  /// The number of entries. Written under the lock; publishes nothing.
  typename Policy::template atomic<std::size_t> entries{0};
  /// How many have fired and were not armed again. Written under the lock; publishes nothing.
  typename Policy::template atomic<std::uint64_t> fired{0};
  /// For precise timers: see above. In nanoseconds, and a time.
  typename Policy::template atomic<std::uint64_t> early{0};
  typename Policy::template atomic<std::uint64_t> awake_until{0};

  // ---- what the wheel asks ----

  void prefetch(std::uint32_t id) const noexcept { nodes_.prefetch(id); }

  bool stale(std::uint32_t id, std::uint32_t token) noexcept {
    node& t = nodes_.at(id);
    // acquire: the tag is at least as new as the word.
    std::uint64_t w = Policy::word(t).load(std::memory_order_acquire);
    for (;;) {
      if (w == 0 || hybrid_tag::token(Policy::tag(t).load(std::memory_order_relaxed)) != token) {
        return true;
      }
      if ((w & hybrid_word::stopped) == 0) return false;
      if (forget_entry(t, w)) return true;
    }
  }

  /// The key that the entry should have; 0 if it is stale. The hint then matches it.
  std::int64_t when(std::uint32_t id, std::uint32_t token) noexcept {
    node& t = nodes_.at(id);
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_acquire);
    for (;;) {
      if (hybrid_word::time(w) == 0 || (w & hybrid_word::entering) != 0) return 0;
      const std::uint32_t tag = Policy::tag(t).load(std::memory_order_relaxed);
      if (hybrid_tag::token(tag) != token) return 0;
      if ((w & hybrid_word::stopped) != 0) {
        if (forget_entry(t, w)) return 0;
        continue;
      }
      const std::int64_t key = key_for(t, hybrid_word::time(w), 0);
      if (hybrid_tag::is_for(tag, key) || mutated(hybrid_mutant::moves_without_entering)) {
        return key;
      }
      if (swap(word, w, w | hybrid_word::entering)) return move(t, token, key, 0);
    }
  }

 private:
  static constexpr bool mutated(hybrid_mutant m) noexcept {
    if constexpr (requires { Policy::mutation; }) {
      return Policy::mutation == m;
    } else {
      return m == hybrid_mutant::none;
    }
  }

  /// acquire: what the last holder of entering wrote. release: what this one wrote.
  template <class Word>
  static bool swap(Word& word, std::uint64_t& from, std::uint64_t to) noexcept {
    return word.compare_exchange_strong(from, to, std::memory_order_acq_rel,
                                        std::memory_order_acquire);
  }

  /// After a swap that took the time from `time` to `when`, before which the tag was `tag`. If the
  /// entry was moved since, while the word was as before, its key may be as late as `time`. (In
  /// this order, because which of two times is later cannot be predicted.)
  static bool may_be_late(node& t, std::uint32_t tag, std::int64_t time,
                          std::int64_t when) noexcept {
    const bool moved = Policy::tag(t).load(std::memory_order_relaxed) != tag;
    return moved && when < time && !mutated(hybrid_mutant::blind_hint);
  }

  /// The entry of a stopped timer is about to be dropped. Returns false if the word has changed.
  bool forget_entry(node& t, std::uint64_t& w) noexcept {
    if (mutated(hybrid_mutant::drops_in_silence)) return true;
    if (!swap(Policy::word(t), w, 0)) return false;
    if (hybrid_word::keeps(w) && !mutated(hybrid_mutant::forgets_what_is_kept)) {
      Policy::release_locked(*this, t);
    }
    return true;
  }

  /// Until the first entry is right: then returns its key. 0 if there is none up to `until`, or the
  /// steps have run out.
  std::int64_t correct_first(std::int64_t until, unsigned& steps) noexcept {
    while (wheel_.ready(until, *this, steps)) {
      const auto head = wheel_.front();
      const std::int64_t key = when(head.id, head.token);
      if (key == head.when) return key;
      if (steps == 0) return 0;
      --steps;
      wheel_.pop();
      if (key != 0) wheel_.insert(key, head.id, head.token);
    }
    return 0;
  }

  /// A reset that needs a new entry.
  bool arm(node& t, std::int64_t when, std::int64_t period) {
    bool was_armed = false;
    make_entry(t, [&]() noexcept -> place {
      auto& word = Policy::word(t);
      std::uint64_t w = word.load(std::memory_order_acquire);
      for (;;) {
        const bool entered = (w & hybrid_word::entering) != 0;
        if (entered && period != 0) {
          Policy::yield();
          w = word.load(std::memory_order_acquire);
        } else if (swap(word, w, hybrid_word::of(when, period) | hybrid_word::entering)) {
          was_armed = hybrid_word::due(w) != 0;
          if (entered) return {};  // the holder makes the entry
          break;
        }
      }
      if (!was_armed && !hybrid_word::keeps(w)) Policy::acquire(t);
      if (period > 0) Policy::period(t) = period;
      const std::uint32_t token = next_token(t);
      const bool was_late = hybrid_word::time(w) != 0 && period <= 0;
      return {leave(t, token, when, was_late), token};
    });
    return was_armed;
  }

  /// Makes a new entry for the time that the timer has, if it is still armed.
  void renew_entry(node& t) {
    make_entry(t, [&]() noexcept -> place {
      auto& word = Policy::word(t);
      std::uint64_t w = word.load(std::memory_order_acquire);
      do {
        if (hybrid_word::due(w) == 0 || (w & hybrid_word::entering) != 0) return {};
      } while (!swap(word, w, w | hybrid_word::entering));
      const std::uint32_t token = next_token(t);
      return {leave(t, token, hybrid_word::due(w), (w & hybrid_word::periodic) == 0), token};
    });
  }

  static std::uint32_t next_token(node& t) noexcept {
    const std::uint32_t before = Policy::tag(t).load(std::memory_order_relaxed);
    return hybrid_tag::token(before + 1);
  }

  /// From how many entries on new ones are made ahead: see above.
  static constexpr std::size_t many() noexcept {
    if constexpr (requires { Policy::many_entries; }) {
      return Policy::many_entries;
    } else {
      return 4096;
    }
  }
  static bool is_precise(node& t) noexcept {
    if constexpr (requires { Policy::precise(t); }) {
      return Policy::precise(t);
    } else {
      return false;
    }
  }
  /// The key for a timer that is due at `when`: that, or if it is precise a time before it, unless
  /// that has passed by `now`.
  std::int64_t key_for(node& t, std::int64_t when, std::int64_t now) const noexcept {
    if (!is_precise(t)) return when;
    const auto ahead = static_cast<std::int64_t>(early.load(std::memory_order_relaxed));
    return when - ahead > now ? when - ahead : when;
  }
  /// The tag for an entry with that key.
  std::uint32_t tag_for(node& t, std::uint32_t token, std::int64_t key) const noexcept {
    if (mutated(hybrid_mutant::tags_ahead_of_key)) key = key_for(t, key, 0);
    return hybrid_tag::of(token, key);
  }
  /// An entry has come up before its timer was due, and got that key.
  void stay_awake_until(node& t, std::int64_t key, std::int64_t now) noexcept {
    if (key <= now || !is_precise(t)) return;
    const auto until = static_cast<std::uint64_t>(key);
    // The last stretch, unless the timer was put off.
    if (until - static_cast<std::uint64_t>(now) > early.load(std::memory_order_relaxed)) return;
    if (until > awake_until.load(std::memory_order_relaxed)) {
      awake_until.store(until, std::memory_order_relaxed);
    }
  }

  std::int64_t key_ahead_of(std::int64_t when) const noexcept {
    return wheel_.size() < many() ? when : wheel_.quarter_way_to(when);
  }

  /// Lets go of a timer that the caller is entering, in the state that others have given it by now.
  /// Returns the key that its entry must have; 0 if it is disarmed. `now` is 0 unless the entry has
  /// come up.
  std::int64_t leave(node& t, std::uint32_t token, [[maybe_unused]] std::int64_t came_for,
                     bool ahead = false, std::int64_t now = 0) noexcept {
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_relaxed);
    for (;;) {
      const std::int64_t when = hybrid_word::due(w);
      std::int64_t key = when != 0 ? key_for(t, when, now) : 0;
      if (when != 0 && ahead) key = key_ahead_of(key);
      if (when != 0) {
        Policy::tag(t).store(tag_for(t, token, key), std::memory_order_relaxed);
      }
      if (swap(word, w, w & ~hybrid_word::entering)) {
        if (when == 0) {
          Policy::release_locked(*this, t);
        } else if (mutated(hybrid_mutant::leaves_late) && came_for != 0) {
          return came_for;
        }
        return key;
      }
    }
  }

  /// Lets go of a timer whose entry is moved, and was to be moved to `meant`. Returns the key.
  std::int64_t move(node& t, std::uint32_t token, std::int64_t meant, std::int64_t now) noexcept {
    const std::int64_t key = leave(t, token, 0, false, now);
    if (key != 0 && key < meant) comes_earlier_ = true;
    return key;
  }

  /// Where an entry belongs; key 0: there is to be none.
  struct place {
    std::int64_t key{0};
    std::uint32_t token{0};
  };
  /// Makes an entry in these timers: under the lock, at the place that arm() says, and wakes a
  /// sleeper if it comes first. Throws std::bad_alloc before arm() is called.
  template <class Arm>
  void make_entry(node& t, Arm&& arm) {
    place at;
    bool first = false;
    {
      std::lock_guard held(lock);
      wheel_.reserve();
      at = arm();
      if (at.key != 0) first = enter(t, at.key, at.token);
    }
    if (first || (at.key != 0 && sleeps_past(at.key))) wake(at.key);
  }

  /// Puts an entry in; reserve() has been called. True if it comes first.
  bool enter(node& t, std::int64_t key, std::uint32_t token) noexcept {
    wheel_.insert(key, nodes_.id_of(t), hybrid_tag::token(token));
    entries.store(wheel_.size(), std::memory_order_relaxed);
    const std::int64_t before = next.load(std::memory_order_relaxed);
    if (before != 0 && before <= key) return false;
    next.store(key, std::memory_order_relaxed);  // wake_net_poller() comes after it, with a fence
    return true;
  }

  bool sleeps_past(std::int64_t when) const noexcept {
    if constexpr (requires { Policy::sleeps_past(*this, when); }) {
      return !mutated(hybrid_mutant::trusts_the_first) && Policy::sleeps_past(*this, when);
    } else {
      return false;
    }
  }

  void wake(std::int64_t when) noexcept {
    if (!mutated(hybrid_mutant::no_wake)) Policy::wake_net_poller(*this, when);
  }

  /// The entry has come up, and is out of the wheel. Returns the time of the timer if it fires;
  /// else 0, and the entry is dropped, or back in the wheel where it belongs.
  std::int64_t take(node& t, const typename wheel_type::head& head, std::int64_t now) noexcept {
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_acquire);
    for (;;) {
      const std::int64_t due = hybrid_word::due(w);
      if (w == 0 || (w & hybrid_word::entering) != 0) return 0;
      const std::uint32_t tag = Policy::tag(t).load(std::memory_order_relaxed);
      if (hybrid_tag::token(tag) != head.token) return 0;
      if ((w & hybrid_word::stopped) != 0) {
        if (forget_entry(t, w)) return 0;
        continue;
      }
      const bool fires_early = mutated(hybrid_mutant::fires_at_its_key) && is_precise(t);
      if ((due <= head.when || fires_early) && (w & hybrid_word::periodic) == 0) {
        if (mutated(hybrid_mutant::fires_what_it_saw)) {
          word.store(0, std::memory_order_release);
          return due;
        }
        if (!swap(word, w, 0)) continue;
        fired.store(fired.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return due;
      }
      if (!swap(word, w, w | hybrid_word::entering)) continue;
      const std::int64_t again = due <= head.when ? advance(t, w, head.token, now) : 0;
      const std::int64_t key = again != 0 ? again : move(t, head.token, key_for(t, due, now), now);
      if (key != 0) wheel_.insert(key, head.id, head.token);
      stay_awake_until(t, key, now);
      return again != 0 ? due : 0;
    }
  }

  /// Gives a periodic timer that the caller is entering its next time, and lets go of it. Returns
  /// the key for that; 0 if another thread has changed the word since it was `w`: then it does not
  /// let go.
  std::int64_t advance(node& t, std::uint64_t w, std::uint32_t token, std::int64_t now) noexcept {
    const std::int64_t period = Policy::period(t);
    const std::int64_t again = hybrid_word::clamp(next_period(hybrid_word::due(w), period, now));
    const std::int64_t key = key_for(t, again, now);
    Policy::tag(t).store(tag_for(t, token, key), std::memory_order_relaxed);
    Policy::acquire(t);  // for the firing
    std::uint64_t expected = w | hybrid_word::entering;
    if (swap(Policy::word(t), expected, hybrid_word::of(again, period))) return key;
    Policy::release_locked(*this, t);
    return 0;
  }

  /// Disarms a timer whose entry is being dropped. The caller has the reference for being armed
  /// then, unless there was nothing to take off: the entry is stale, or the timer was stopped and
  /// has no such reference.
  enum class taken_off : std::uint8_t { nothing, armed, kept };
  static taken_off take_off(node& t, std::uint32_t token) noexcept {
    auto& word = Policy::word(t);
    std::uint64_t w = word.load(std::memory_order_acquire);
    for (;;) {
      if (w == 0 || (w & hybrid_word::entering) != 0) return taken_off::nothing;
      if (hybrid_tag::token(Policy::tag(t).load(std::memory_order_relaxed)) != token) {
        return taken_off::nothing;
      }
      const bool armed = (w & hybrid_word::stopped) == 0;
      const bool kept = hybrid_word::keeps(w);
      if (mutated(hybrid_mutant::ends_what_it_saw)) word.store(0, std::memory_order_release);
      if (!mutated(hybrid_mutant::ends_what_it_saw) && !swap(word, w, 0)) continue;
      return armed ? taken_off::armed : kept ? taken_off::kept : taken_off::nothing;
    }
  }

  void publish() noexcept {
    entries.store(wheel_.size(), std::memory_order_relaxed);
    const std::int64_t first = wheel_.first();
    if (next.load(std::memory_order_relaxed) != first) {
      next.store(first, std::memory_order_relaxed);
    }
  }

  [[no_unique_address]] typename Policy::directory nodes_;
  wheel_type wheel_;
  bool comes_earlier_{false};  ///< guarded by the lock
};

}  // namespace verge::detail
