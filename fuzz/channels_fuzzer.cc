// SPDX-License-Identifier: Apache-2.0

// Channels and select among tasks, against a model: every value that a send reports as sent is
// received once, those of one channel in order; no task waits beside another that it could be
// served by; and when all channels are closed every task ends.

#include <verge/chan.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/task.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "input.h"

using namespace std::chrono_literals;
using verge::chan;
using verge::task;
using verge::fuzz::expect;

namespace {

constexpr std::size_t channels = 3;

/// What one task does and what has become of it.
struct job {
  std::vector<std::size_t> receives;  ///< from which channels it would
  std::vector<std::size_t> sends;     ///< to which
  int value{0};
  bool waits{true};
};

class world {
 public:
  world(std::uint64_t seed, std::array<std::size_t, channels> capacity)
      : capacity_(capacity), sim_(seed) {
    for (std::size_t i = 0; i < channels; ++i) all_.emplace_back(capacity[i]);
  }

  void receive(std::size_t c) {
    job& j = jobs_.emplace_back(job{{c}, {}, 0});
    verge::go(&world::receive_task, this, c, &j).detach();
  }
  void send(std::size_t c) {
    job& j = jobs_.emplace_back(job{{}, {c}, next_++});
    verge::go(&world::send_task, this, c, &j).detach();
  }
  void select(std::size_t from, std::size_t to, std::size_t other) {
    job& j = jobs_.emplace_back(job{{from, other}, {to}, next_++});
    verge::go(&world::select_task, this, from, to, other, &j).detach();
  }
  void try_one(std::size_t c, bool sends) {
    if (sends) {
      if (closed_[c]) return;
      const int v = next_++;
      if (all_[c].try_send(v)) sent(c, v);
    } else if (const auto got = all_[c].try_recv()) {
      received(c, *got);
    }
  }
  void close(std::size_t c) {
    if (std::exchange(closed_[c], true)) return;
    all_[c].close();
  }
  /// Everything runs until nothing can.
  void settle() {
    sim_.run_for(0s);
    for (std::size_t c = 0; c < channels; ++c) {
      bool receiver = false;
      bool sender = false;
      for (const job& j : jobs_) {
        if (!j.waits) continue;
        for (const std::size_t r : j.receives) receiver = receiver || r == c;
        for (const std::size_t s : j.sends) sender = sender || s == c;
      }
      expect(!closed_[c] || (!receiver && !sender), "no task waits for a closed channel");
      // One that waits for both with one select serves no other, and itself least of all.
      expect(in_flight_[c].size() <= capacity_[c] || closed_[c], "no more than there is room for");
      if (receiver) expect(in_flight_[c].empty(), "no receiver waits beside a value");
      if (sender && !receiver)
        expect(in_flight_[c].size() == capacity_[c], "no sender waits beside room");
      if (sender && receiver) expect(only_selects(c), "no sender waits beside a receiver");
    }
  }
  void end() {
    for (std::size_t c = 0; c < channels; ++c) close(c);
    for (std::size_t c = 0; c < channels; ++c) {
      while (const auto got = all_[c].try_recv()) received(c, *got);
    }
    settle();
    for (const job& j : jobs_) expect(!j.waits, "every task has ended");
    for (const auto& left : in_flight_)
      expect(left.empty(), "every value that was sent is received");
  }

 private:
  /// Whether the tasks that wait to receive and those that wait to send are the same single one.
  bool only_selects(std::size_t c) const {
    int waiting = 0;
    for (const job& j : jobs_) {
      if (!j.waits) continue;
      bool here = false;
      for (const std::size_t r : j.receives) here = here || r == c;
      for (const std::size_t s : j.sends) here = here || s == c;
      waiting += here;
    }
    return waiting == 1;
  }

  static task<> receive_task(world* w, std::size_t c, job* j) {
    const auto got = co_await verge::recv(w->all_[c]);
    j->waits = false;
    if (got) {
      w->received(c, *got);
    } else {
      expect(w->closed_[c], "nothing comes only from a closed channel");
    }
  }
  static task<> send_task(world* w, std::size_t c, job* j) {
    try {
      w->offer(c, j->value);
      co_await verge::send(w->all_[c], j->value);
      w->sent(c, j->value);
    } catch (const verge::chan_closed&) {
      expect(w->closed_[c], "a send fails only if the channel is closed");
      w->withdraw(c, j->value);
    }
    j->waits = false;
  }
  static task<> select_task(world* w, std::size_t from, std::size_t to, std::size_t other, job* j) {
    try {
      w->offer(to, j->value);
      std::optional<int> got;
      bool has_sent = false;
      std::size_t which = channels;
      const auto take = [&](std::size_t c) {
        return [&got, &which, c](std::optional<int> v) {
          got = v;
          which = c;
        };
      };
      co_await verge::select(verge::recv(w->all_[from], take(from)),
                             verge::send(w->all_[to], j->value, [&] { has_sent = true; }),
                             verge::recv(w->all_[other], take(other)));
      expect(has_sent == (which == channels), "one case is run");
      if (has_sent) {
        w->sent(to, j->value);
      } else {
        w->withdraw(to, j->value);
        if (got)
          w->received(which, *got);
        else
          expect(w->closed_[which], "nothing comes only from a closed channel");
      }
    } catch (const verge::chan_closed&) {
      expect(w->closed_[to], "a send fails only if the channel is closed");
      w->withdraw(to, j->value);
    }
    j->waits = false;
  }

  // A value may be received before its sender is told that it was sent.
  void offer(std::size_t c, int v) { offered_[c].insert(v); }
  void withdraw(std::size_t c, int v) {
    expect(offered_[c].erase(v) == 1, "a value that was not sent is not received");
  }
  void sent(std::size_t c, int v) {
    if (early_[c].erase(v) == 1) return;
    offered_[c].erase(v);
    in_flight_[c].insert(v);
  }
  void received(std::size_t c, int v) {
    if (in_flight_[c].erase(v) == 0) {
      expect(offered_[c].erase(v) == 1, "what is received was sent, and only once");
      early_[c].insert(v);
    }
  }

  const std::array<std::size_t, channels> capacity_;
  verge::simulation sim_;
  std::deque<job> jobs_;  // before the channels' tasks end
  std::vector<chan<int>> all_;
  std::array<bool, channels> closed_{};
  std::array<std::set<int>, channels> offered_;
  std::array<std::set<int>, channels> in_flight_;
  std::array<std::set<int>, channels> early_;
  int next_{1};
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verge::fuzz::input in(data, size);
  const std::uint64_t seed = in.byte();
  world w(seed, {in.below(4), in.below(3), in.below(2)});
  for (int steps = 0; !in.empty() && steps < 200; ++steps) {
    const std::uint8_t what = in.byte();
    const std::size_t c = what % channels;
    switch (what / channels % 8) {
      case 0:
      case 1:
        w.receive(c);
        break;
      case 2:
      case 3:
        w.send(c);
        break;
      case 4:
        w.select(c, in.below(channels), in.below(channels));
        break;
      case 5:
        w.try_one(c, in.below(2) != 0);
        break;
      case 6:
        if (in.below(8) == 0) w.close(c);
        break;
      default:
        break;  // what comes next meets what is ready and has not run
    }
    if (what < 128) w.settle();
  }
  w.settle();
  w.end();
  return 0;
}
