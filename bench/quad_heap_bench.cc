// SPDX-License-Identifier: Apache-2.0

// Compares the 4-ary heap with alternative heaps. Prints Markdown tables.
//
//   quad_heap_bench [--largest=TIMERS] [--rounds=ROUNDS]        default: 10000000 and 5
//
// Every contender orders the same kind of timer: a 64-byte node that holds its time, in memory on
// huge pages, the order in memory unrelated to the order in time. The workloads:
//
//   hold    n timers wait; the earliest is taken out and put back a random time later. One step is
//           a pop and a push, and it writes the new time into the timer, as firing one does.
//   drain   n timers are pushed into an empty heap that has no memory yet, and popped until it is
//           empty; each popped timer is read. Per timer, growing included.
//   bare    hold with timers that are never touched: the heap as a mere queue of keys. Not for the
//           heaps of pointers, whose keys are in the timers.
//   remove  n timers wait; a random one is taken out, wherever it is, and put back with another
//           time. For heaps that keep every timer's index in the timer ("tracked").
//   growth  n timers are pushed into an empty heap, latest last, so that nothing moves but the
//           array itself; and how long the slowest thousand pushes in a row took.
//
// Rounds are interleaved: each runs all contenders after a warm-up, and the tables show medians
// over the rounds, so that a slow moment of the machine affects all contenders.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <memory>
#include <queue>
#include <string_view>
#include <vector>

#include <queue/quad_heap.h>

#include "peers/measure.h"
#include "standalone.h"

namespace {

using verge::bench::huge_allocator;
using verge::bench::median;
using verge::bench::option;
using verge::bench::random_numbers;

struct alignas(64) timer {
  std::int64_t when;
  std::size_t index;
  std::uint64_t payload[6];
};
static_assert(sizeof(timer) == 64);

/// Up to about four seconds, never zero.
std::int64_t delay(random_numbers& random) { return static_cast<std::int64_t>(random() >> 32) + 1; }

using timers = std::vector<timer, huge_allocator<timer>>;

// The contenders. push(when, timer) files a timer whose own time is `when` too, and pop() returns
// the earliest.

struct index_in_timer {
  static void set(timer& t, std::size_t i) noexcept { t.index = i; }
};
using no_index = verge::detail::no_index;

struct keyed {
  std::int64_t when;
  timer* node;
};

template <class Index>
class quad_heap_of_entries {
 public:
  void push(std::int64_t when, timer* t) { heap_.push(when, t); }
  keyed pop() {
    const auto first = heap_.front();
    heap_.pop();
    return {first.when, first.node};
  }
  void remove(timer* t) { heap_.remove(t->index); }

 private:
  verge::detail::quad_heap<timer, Index> heap_;
};

template <template <class> class Allocator>
class std_queue_of_pairs {
 public:
  void push(std::int64_t when, timer* t) { heap_.push({when, t}); }
  keyed pop() {
    const keyed first = heap_.top();
    heap_.pop();
    return first;
  }

 private:
  struct later {
    bool operator()(const keyed& a, const keyed& b) const { return a.when > b.when; }
  };
  std::priority_queue<keyed, std::vector<keyed, Allocator<keyed>>, later> heap_;
};

class binary_heap_of_pointers {
 public:
  void push(std::int64_t, timer* t) { heap_.push(t); }
  keyed pop() {
    timer* const first = heap_.top();
    heap_.pop();
    return {first->when, first};
  }

 private:
  struct later {
    bool operator()(const timer* a, const timer* b) const { return a->when > b->when; }
  };
  std::priority_queue<timer*, std::vector<timer*>, later> heap_;
};

/// The arrangement that Go had at first: four children, the key in the timer.
template <class Index>
class quad_heap_of_pointers {
 public:
  void push(std::int64_t, timer* t) {
    heap_.push_back(t);
    sift_up(heap_.size() - 1, t);
  }
  keyed pop() {
    timer* const first = heap_[0];
    remove_at(0);
    return {first->when, first};
  }
  void remove(timer* t) { remove_at(t->index); }

 private:
  void put(std::size_t i, timer* t) {
    heap_[i] = t;
    Index::set(*t, i);
  }
  void remove_at(std::size_t i) {
    timer* const last = heap_.back();
    heap_.pop_back();
    if (i == heap_.size()) return;
    if (i != 0 && last->when < heap_[(i - 1) / 4]->when) {
      sift_up(i, last);
    } else {
      sift_down(i, last);
    }
  }
  void sift_up(std::size_t i, timer* t) {
    while (i != 0) {
      const std::size_t above = (i - 1) / 4;
      if (heap_[above]->when <= t->when) break;
      put(i, heap_[above]);
      i = above;
    }
    put(i, t);
  }
  void sift_down(std::size_t i, timer* t) {
    const std::size_t size = heap_.size();
    for (std::size_t first = 4 * i + 1; first < size; first = 4 * i + 1) {
      std::size_t least = first;
      const std::size_t end = std::min(first + 4, size);
      for (std::size_t c = first + 1; c < end; ++c) {
        if (heap_[c]->when < heap_[least]->when) least = c;
      }
      if (t->when <= heap_[least]->when) break;
      put(i, heap_[least]);
      i = least;
    }
    put(i, t);
  }

  std::vector<timer*> heap_;
};

using ours = quad_heap_of_entries<no_index>;
using ours_tracked = quad_heap_of_entries<index_in_timer>;
using std_pairs = std_queue_of_pairs<std::allocator>;
using std_pairs_huge = std_queue_of_pairs<huge_allocator>;
using binary_pointers = binary_heap_of_pointers;
using quad_pointers = quad_heap_of_pointers<no_index>;
using quad_pointers_tracked = quad_heap_of_pointers<index_in_timer>;

/// A sum over the work, so that the compiler cannot remove it.
volatile std::uint64_t sink = 0;

/// The processor time of this thread, which excludes other programs on a shared machine.
double nanoseconds() {
  return static_cast<double>(verge::bench::read_clock(CLOCK_THREAD_CPUTIME_ID));
}

/// One measurement of one contender: nanoseconds per step or push, or whatever the table is about.
using measurement = std::function<double()>;

/// Enough for a measurement of some milliseconds at the least.
std::size_t steps_for(std::size_t n) { return std::clamp<std::size_t>(n, 500'000, 2'000'000); }

/// n pending timers, and a step that is repeated on them.
template <class Contender, class Step>
measurement waiting(std::size_t n, Step step) {
  struct state {
    timers nodes;
    Contender heap;
    random_numbers random{1};
  };
  auto s = std::make_shared<state>();
  s->nodes.resize(n);
  for (timer& t : s->nodes) {
    t.when = delay(s->random);
    s->heap.push(t.when, &t);
  }
  return [s, step, steps = steps_for(n)] {
    const double begin = nanoseconds();
    for (std::size_t i = 0; i < steps; ++i) step(*s);
    return (nanoseconds() - begin) / static_cast<double>(steps);
  };
}

template <class Contender>
measurement hold(std::size_t n) {
  return waiting<Contender>(n, [](auto& s) {
    timer* const t = s.heap.pop().node;
    t->when += delay(s.random);
    s.heap.push(t->when, t);
  });
}

template <class Contender>
measurement bare(std::size_t n) {
  return waiting<Contender>(n, [](auto& s) {
    const keyed first = s.heap.pop();
    s.heap.push(first.when + delay(s.random), first.node);
  });
}

template <class Contender>
measurement remove(std::size_t n) {
  return waiting<Contender>(n, [](auto& s) {
    timer* const t = &s.nodes[s.random.below(s.nodes.size())];
    s.heap.remove(t);
    t->when = delay(s.random);
    s.heap.push(t->when, t);
  });
}

template <class Contender>
double drain_once(timers& nodes, random_numbers& random) {
  for (timer& t : nodes) t.when = delay(random);
  std::uint64_t sum = 0;
  const double begin = nanoseconds();
  {
    Contender heap;
    for (timer& t : nodes) heap.push(t.when, &t);
    for (std::size_t i = 0; i < nodes.size(); ++i) sum += heap.pop().node->payload[0];
  }
  const double taken = nanoseconds() - begin;
  sink = sink + sum;
  return taken / static_cast<double>(nodes.size());
}

template <class Contender>
measurement drain(const std::shared_ptr<timers>& nodes) {
  const std::size_t times = std::max<std::size_t>(1, 500'000 / nodes->size());
  return [nodes, times, random = random_numbers(1)]() mutable {
    double sum = 0;
    for (std::size_t i = 0; i < times; ++i) sum += drain_once<Contender>(*nodes, random);
    return sum / static_cast<double>(times);
  };
}

template <class Contender>
measurement growth(std::size_t n) {
  return [n] {
    Contender heap;
    const double begin = nanoseconds();
    for (std::size_t i = 0; i < n; ++i) heap.push(static_cast<std::int64_t>(i), nullptr);
    return (nanoseconds() - begin) / static_cast<double>(n);
  };
}

/// How long the slowest thousand pushes in a row took, in microseconds.
template <class Contender>
measurement slowest_thousand(std::size_t n) {
  return [n] {
    Contender heap;
    double longest = 0;
    for (std::size_t i = 0; i < n;) {
      const double begin = nanoseconds();
      for (const std::size_t end = std::min(i + 1000, n); i < end; ++i) {
        heap.push(static_cast<std::int64_t>(i), nullptr);
      }
      longest = std::max(longest, nanoseconds() - begin);
    }
    return longest / 1000;
  };
}

/// Runs the rounds and prints a line of the table: ours, which is the first, and the others with
/// how many times as long they took.
void compete(const char* workload, std::size_t n, int rounds, std::vector<measurement> contenders) {
  std::vector<std::vector<double>> taken(contenders.size());
  for (int round = 0; round <= rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const double figure = contenders[i]();
      if (round != 0) taken[i].push_back(figure);
    }
  }
  const double first = median(taken[0]);
  std::printf("| %s | %zu | **%.0f** |", workload, n, first);
  for (std::size_t i = 1; i < taken.size(); ++i) {
    std::printf(" %.0f (%.2fx) |", median(taken[i]), median(taken[i]) / first);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void heading(std::initializer_list<const char*> names) {
  std::printf("\n| workload | timers |");
  for (const char* name : names) std::printf(" %s |", name);
  std::printf("\n|---|---:|");
  for (std::size_t i = 0; i < names.size(); ++i) std::printf("---:|");
  std::printf("\n");
}

void run(std::size_t largest, int rounds) {
  std::vector<std::size_t> sizes;
  for (const std::size_t n : {1'000U, 100'000U, 1'000'000U, 10'000'000U}) {
    if (n <= largest) sizes.push_back(n);
  }
  std::printf("Nanoseconds per step, median of %d interleaved rounds.\n", rounds);

  heading({"quad_heap", "std::priority_queue of pairs", "the same, on huge pages",
           "binary heap of pointers", "4-ary heap of pointers"});
  for (const std::size_t n : sizes) {
    compete("hold", n, rounds,
            {hold<ours>(n), hold<std_pairs>(n), hold<std_pairs_huge>(n), hold<binary_pointers>(n),
             hold<quad_pointers>(n)});
  }
  for (const std::size_t n : sizes) {
    const auto nodes = std::make_shared<timers>(n);
    compete("drain", n, rounds,
            {drain<ours>(nodes), drain<std_pairs>(nodes), drain<std_pairs_huge>(nodes),
             drain<binary_pointers>(nodes), drain<quad_pointers>(nodes)});
  }

  heading({"quad_heap", "std::priority_queue of pairs", "the same, on huge pages"});
  for (const std::size_t n : sizes) {
    compete("bare", n, rounds, {bare<ours>(n), bare<std_pairs>(n), bare<std_pairs_huge>(n)});
  }
  for (const std::size_t n : sizes) {
    compete("growth", n, rounds,
            {growth<ours>(n), growth<std_pairs>(n), growth<std_pairs_huge>(n)});
  }
  for (const std::size_t n : sizes) {
    compete("growth, slowest thousand (us)", n, rounds,
            {slowest_thousand<ours>(n), slowest_thousand<std_pairs>(n),
             slowest_thousand<std_pairs_huge>(n)});
  }

  heading({"quad_heap, tracked", "4-ary heap of pointers, tracked"});
  for (const std::size_t n : sizes) {
    compete("hold", n, rounds, {hold<ours_tracked>(n), hold<quad_pointers_tracked>(n)});
  }
  for (const std::size_t n : sizes) {
    compete("remove", n, rounds, {remove<ours_tracked>(n), remove<quad_pointers_tracked>(n)});
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t largest = 10'000'000;
  int rounds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    // ./dev bench passes the same arguments to every program; these are for the others.
    if (argument.starts_with("--benchmark_")) continue;
    if (option(argument, "--largest=", largest) || option(argument, "--rounds=", rounds)) continue;
    std::fprintf(stderr,
                 "quad_heap_bench: cannot use '%s'; give --largest=TIMERS (1000 or more) and "
                 "--rounds=ROUNDS, or nothing\n",
                 argv[i]);
    return 2;
  }
  run(largest, rounds);
  return 0;
}
