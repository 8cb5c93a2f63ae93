// SPDX-License-Identifier: Apache-2.0
// The workloads of workloads.md for all linked systems, each of which provides an adapter.
//
// An adapter is one instance of the system, with no timers at first:
//
//   struct adapter {
//     using handle = ...;                        // of a timer; movable; a default one is none
//     static constexpr bool thread_safe;         // start and stop from several threads
//     static constexpr bool has_loop;            // run_due() is what fires timers
//     static constexpr const char* no_lateness;  // why not, or nullptr
//     explicit adapter(const setting&);
//     handle start(std::int64_t delay, appointment*);    // one-shot; call(appointment) when due
//     void stop(handle&);                        // a handle that was started, fired or not
//     void reset(handle&, std::int64_t delay);   // from now, fired or not
//     void run_due(unsigned thread);             // fires what is due and returns, if it has_loop
//     void wait();                               // the same, but sleeps until something is due
//     void enter(f);                             // calls f where users of the system would
//     void in_threads(n, f);                     // calls f(0) ... f(n-1), each on its own thread
//   };
//
// Each operation reads the clock, in the system or in the adapter. A loop, if there is one, runs
// after every thousand operations: what a system defers until then is part of its cost.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "measure.h"
#include "peer.h"

namespace verge::bench {

struct setting {
  /// Whether several threads may use it, and how many; systems with a faster way for a single
  /// thread use that otherwise.
  bool shared = false;
  unsigned threads = 1;
  /// The most precise way that the system documents, where that is not the usual one.
  bool precise = false;
};

template <class Adapter>
class driver {
 public:
  static answer run(const request& r) {
    driver d(r);
    if (r.workload == "start_stop") return d.throughput(&driver::start_stop);
    if (r.workload == "reset_later") return d.throughput(&driver::reset_later);
    if (r.workload == "reset_back_forth") return d.throughput(&driver::reset_back_forth);
    if (r.workload == "idle_connections") return d.idle_connections();
    if (r.workload == "rpc_deadlines") return d.rpc_deadlines();
    if (r.workload == "fill") return d.fill();
    if (r.workload == "fire") return d.fire();
    if (r.workload == "dense_10k" || r.workload == "dense_100k") return d.dense();
    if (r.workload == "memory") return d.memory();
    if (r.workload == "two_threads") return d.two_threads();
    if (r.workload == "lateness_idle" || r.workload == "lateness_busy") return d.lateness(0);
    if (r.workload == "lateness_100k") return d.lateness(r.timers);
    throw std::runtime_error("there is no workload '" + r.workload + "'");
  }

 private:
  using handle = typename Adapter::handle;
  using handles = std::vector<handle, huge_allocator<handle>>;
  static constexpr std::size_t turn = 1024;

  /// The state of one thread: an instance that may be shared, and its own timers.
  struct alignas(128) lane {
    Adapter& system;
    random_numbers random;
    handles timers;

    lane(Adapter& a, std::size_t n, std::uint64_t seed) : system(a), random(seed), timers(n) {}
    handle& any() { return timers[random.below(timers.size())]; }
    void fill() {
      for (handle& h : timers) h = system.start(random.delay(), nullptr);
    }
    void clear() {
      for (handle& h : timers) system.stop(h);
    }
  };

  explicit driver(const request& r) : request_(r) {}

  static void start_stop(lane& l) {
    handle& h = l.any();
    handle fresh = l.system.start(l.random.delay(), nullptr);
    l.system.stop(h);
    h = std::move(fresh);
  }
  static void reset_later(lane& l) { l.system.reset(l.any(), 61 * second); }
  static void reset_back_forth(lane& l) { l.system.reset(l.any(), l.random.delay()); }

  /// At least that many operations, for at least the requested time; returns how many.
  template <class Operation>
  std::size_t work(Operation operation, std::size_t at_least, unsigned thread, Adapter& a) const {
    const std::int64_t end = now() + request_.milliseconds * millisecond;
    std::size_t done = 0;
    do {
      for (std::size_t i = 0; i < turn; ++i) operation();
      done += turn;
      a.run_due(thread);
    } while (done < at_least || now() < end);
    return done;
  }

  /// The longest time between two operations. A separate pass, as it reads the clock for each.
  template <class Operation>
  static double longest_of(Operation operation, std::size_t operations, Adapter& a) {
    std::int64_t longest = 0;
    std::int64_t before = now();
    for (std::size_t i = 1; i <= operations; ++i) {
      operation();
      if (i % turn == 0) a.run_due(0);
      const std::int64_t after = now();
      longest = std::max(longest, after - before);
      before = after;
    }
    return static_cast<double>(longest);
  }

  template <class Operation>
  answer measured(Operation operation, Adapter& a, std::size_t at_least) const {
    answer result;
    const std::int64_t begin = processor_time();
    const std::size_t done = work(operation, at_least, 0, a);
    result.metrics["ns_per_op"] =
        static_cast<double>(processor_time() - begin) / static_cast<double>(done);
    result.metrics["longest_ns"] =
        longest_of(operation, std::max<std::size_t>(at_least, 100'000), a);
    return result;
  }

  /// One operation repeatedly. First as many as there are timers: they warm up, and bring the
  /// system to a steady state of deferred work.
  answer throughput(void (*operation)(lane&)) const {
    Adapter a(setting{});
    answer result;
    a.enter([&] {
      lane l(a, request_.timers, request_.seed);
      l.fill();
      const auto one = [&] { operation(l); };
      for (std::size_t i = 0; i < l.timers.size(); ++i) {
        one();
        if (i % turn == 0) a.run_due(0);
      }
      result = measured(one, a, request_.timers);
      l.clear();
    });
    return result;
  }

  answer idle_connections() const {
    constexpr std::int64_t idle = 500 * millisecond;
    Adapter a(setting{});
    answer result;
    a.enter([&] {
      lane l(a, request_.timers, request_.seed);
      for (handle& h : l.timers) h = a.start(idle, nullptr);
      result = measured([&] { a.reset(l.any(), idle); }, a, request_.timers);
      l.clear();
    });
    return result;
  }

  /// The pending calls are in a ring: the oldest has its answer when the next one is made. One in a
  /// hundred never gets one: its deadline passes before its place in the ring is needed again.
  answer rpc_deadlines() const {
    constexpr std::int64_t deadline = 50 * millisecond;
    constexpr std::size_t lost = 100;
    Adapter a(setting{});
    answer result;
    a.enter([&] {
      lane l(a, request_.timers, request_.seed);
      handles unanswered(1 << 16);
      std::size_t calls = 0;
      std::size_t losses = 0;
      for (handle& h : l.timers) h = a.start(deadline, nullptr);
      result = measured(
          [&] {
            handle& oldest = l.timers[calls % l.timers.size()];
            if (++calls % lost == 0) {
              handle& place = unanswered[losses++ % unanswered.size()];
              a.stop(place);  // long fired: frees its memory
              place = std::move(oldest);
              oldest = handle{};
            }
            a.stop(oldest);
            oldest = a.start(deadline, nullptr);
          },
          a, request_.timers);
      l.clear();
      for (handle& h : unanswered) a.stop(h);
    });
    return result;
  }

  answer fill() const {
    Adapter a(setting{});
    answer result;
    a.enter([&] {
      lane l(a, request_.timers, request_.seed);
      const std::size_t before = resident_bytes();
      const std::int64_t begin = processor_time();
      l.fill();
      const std::int64_t took = processor_time() - begin;
      result.metrics["ns_per_op"] =
          static_cast<double>(took) / static_cast<double>(request_.timers);
      result.metrics["bytes_per_timer"] = grown_since(before);
      l.clear();
    });
    return result;
  }

  double grown_since(std::size_t before) const {
    const std::size_t after = resident_bytes();
    return static_cast<double>(after - std::min(before, after)) /
           static_cast<double>(request_.timers);
  }

  /// After many timers were started and stopped: includes what is kept for stopped timers.
  answer memory() const {
    Adapter a(setting{});
    answer result;
    a.enter([&] {
      lane l(a, request_.timers, request_.seed);
      const std::size_t before = resident_bytes();
      l.fill();
      for (std::size_t i = 0; i < 4 * request_.timers; ++i) {
        start_stop(l);
        if (i % turn == 0) a.run_due(0);
      }
      result.metrics["bytes_per_timer"] = grown_since(before);
      l.clear();
    });
    return result;
  }

  static void refuse_if_early(std::uint64_t before) {
    if (fired.total() != before) {
      throw std::runtime_error("starting the timers took so long that some have fired already");
    }
  }

  /// The timers are set for one second that begins when all are started; during that second the
  /// process is stopped.
  answer fire() const {
    Adapter a(setting{});
    const std::size_t n = request_.timers;
    const std::uint64_t until = fired.total() + n;
    const auto fill_time = static_cast<std::int64_t>(n) * 3 * microsecond + 100 * millisecond;
    const std::int64_t first = now() + fill_time;
    lane l(a, n, request_.seed);
    a.enter([&] {
      for (handle& h : l.timers) {
        h = a.start(first + l.random.within(second) - now(), nullptr);
      }
    });
    refuse_if_early(until - n);
    const std::int64_t begin = processor_time();
    stand_still(first + second + 5 * millisecond - now());
    while (fired.total() < until) {
      if constexpr (Adapter::has_loop) {
        a.run_due(0);
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    answer result;
    result.metrics["ns_per_op"] =
        static_cast<double>(processor_time() - begin) / static_cast<double>(n);
    a.enter([&] { l.clear(); });
    return result;
  }

  /// Until so many have fired.
  static void wait_for(Adapter& a, std::uint64_t until) {
    while (fired.total() < until) {
      if constexpr (Adapter::has_loop) {
        a.wait();
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
  }

  /// So many timers a second, due one by one. The processor time of all from the first to the last.
  answer dense() const {
    if (Adapter::no_lateness != nullptr) throw unsupported(Adapter::no_lateness);
    Adapter a(setting{.precise = true});
    const auto per_second = static_cast<std::int64_t>(request_.timers);
    const std::size_t n = request_.timers * request_.milliseconds / 1000;
    const std::int64_t apart = second / per_second;
    const std::uint64_t until = fired.total() + n;
    const auto fill_time = static_cast<std::int64_t>(n) * 3 * microsecond + 100 * millisecond;
    const std::int64_t first = now() + fill_time;
    lane l(a, n, request_.seed);
    a.enter([&] {
      for (std::size_t i = 0; i < n; ++i) {
        const std::int64_t due =
            first + static_cast<std::int64_t>(i) * apart + l.random.within(apart);
        l.timers[i] = a.start(due - now(), nullptr);
      }
    });
    refuse_if_early(until - n);
    std::this_thread::sleep_for(std::chrono::nanoseconds(first - millisecond - now()));
    const std::int64_t begin = processor_time();
    wait_for(a, until);
    answer result;
    result.metrics["ns_per_op"] =
        static_cast<double>(processor_time() - begin) / static_cast<double>(n);
    a.enter([&] { l.clear(); });
    return result;
  }

  answer two_threads() const {
    if (!Adapter::thread_safe && request_.threads > 1) {
      throw unsupported("for one thread only");
    }
    Adapter a(setting{.shared = true, .threads = request_.threads});
    std::vector<std::unique_ptr<lane>> lanes;
    for (unsigned i = 0; i < request_.threads; ++i) {
      lanes.push_back(std::make_unique<lane>(a, request_.timers, request_.seed + i));
    }
    std::vector<double> rates(request_.threads);
    std::atomic<unsigned> ready{0};
    a.in_threads(request_.threads, [&](unsigned i) {
      lane& l = *lanes[i];
      l.fill();
      ready.fetch_add(1);
      while (ready.load() != request_.threads) std::this_thread::yield();
      for (std::size_t k = 0; k < l.timers.size(); ++k) {
        start_stop(l);
        if (k % turn == 0) a.run_due(i);
      }
      const std::int64_t begin = now();
      const std::size_t done = work([&] { start_stop(l); }, l.timers.size(), i, a);
      rates[i] = static_cast<double>(done) * 1e9 / static_cast<double>(now() - begin);
      l.clear();
    });
    answer result;
    for (const double rate : rates) result.metrics["ops_per_s"] += rate;
    return result;
  }

  /// A thousand timers a second, at random times; all are started before the first is due.
  answer lateness(std::size_t others) const {
    if (Adapter::no_lateness != nullptr) throw unsupported(Adapter::no_lateness);
    Adapter a(setting{.precise = true});
    const std::size_t n = request_.milliseconds;
    const std::uint64_t until = fired.total() + n;
    std::vector<appointment> appointments(n);
    lane live(a, others, request_.seed);
    lane l(a, n, request_.seed + 1);
    a.enter([&] {
      // Beyond the window, and within the span of any wheel.
      for (handle& h : live.timers)
        h = a.start(30 * second + live.random.within(31 * second), nullptr);
      const std::int64_t first = now() + 100 * millisecond;
      for (std::size_t i = 0; i < n; ++i) {
        appointment& at = appointments[i];
        at.due = first + static_cast<std::int64_t>(i) * millisecond + l.random.within(millisecond);
        l.timers[i] = a.start(at.due - now(), &at);
      }
    });
    wait_for(a, until);
    a.enter([&] {
      l.clear();
      live.clear();
    });
    answer result;
    for (const appointment& at : appointments) result.late_ns.push_back(at.late);
    return result;
  }

  const request& request_;
};

/// For adapters that are used from whatever thread calls.
struct on_plain_threads {
  template <class F>
  void enter(F f) {
    f();
  }
  template <class F>
  void in_threads(unsigned n, F f) {
    std::vector<std::thread> others;
    for (unsigned i = 1; i < n; ++i) others.emplace_back(f, i);
    f(0);
    for (std::thread& t : others) t.join();
  }
};

}  // namespace verge::bench
