// SPDX-License-Identifier: Apache-2.0

// The explorer's model of C++'s memory orders, held to the litmus tests that everyone knows: each
// with the exact set of outcomes that it allows. And the first part of the library under it.

#include <explorer/explored.h>
#include <explorer/weak_memory.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <support/scale.h>
#include <timer/call_count.h>

#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace verge::test {
namespace {

using testing::ElementsAre;

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto acq_rel = std::memory_order_acq_rel;
constexpr auto seq_cst = std::memory_order_seq_cst;

/// A program of a few lines: two atomics, plain memory, and what each thread has read.
class litmus : public program {
 public:
  explicit litmus(std::vector<std::function<void(litmus&)>> threads)
      : threads_(std::move(threads)) {}

  weak_atomic<int> x, y;
  plain<int> data{"data"};
  std::array<int, 4> r{};

  [[nodiscard]] std::size_t threads() const override { return threads_.size(); }
  void prepare() override {
    memory_.begin();
    x.reset(0);
    y.reset(0);
    data.reset(0);
    r = {};
  }
  void run(std::size_t i) override { threads_[i](*this); }
  void inspect() override {}
  void finish() override {
    std::string text;
    for (std::size_t i = 0; i < registers; ++i) text += static_cast<char>('0' + r[i]);
    if (reads_the_end) text = std::to_string(x.peek()) + std::to_string(y.peek());
    outcomes.insert(text);
  }
  void fence(std::memory_order order) { memory_.fence(order); }
  void fence_all() { memory_.fence_all(); }

  std::size_t registers = 2;
  bool reads_the_end = false;  ///< the outcome is what the two hold in the end
  std::set<std::string> outcomes;

 private:
  std::vector<std::function<void(litmus&)>> threads_;
  weak_memory memory_;
};

class weak_memory_model : public explored {
 protected:
  static std::set<std::string> outcomes(std::vector<std::function<void(litmus&)>> threads,
                                        std::size_t registers = 2) {
    litmus l(std::move(threads));
    l.registers = registers;
    explorer e;
    const outcome all = e.explore(l);
    EXPECT_FALSE(all.failed) << all.failed->check << ": " << all.failed->detail;
    return l.outcomes;
  }
  static std::string failure_of(std::vector<std::function<void(litmus&)>> threads) {
    litmus l(std::move(threads));
    explorer e;
    const outcome all = e.explore(l);
    return all.failed ? all.failed->check : "";
  }

  /// Each stores to one and loads the other.
  static std::set<std::string> store_buffering(std::memory_order store, std::memory_order load,
                                               bool fences) {
    return outcomes({[=](litmus& l) {
                       l.x.store(1, store);
                       if (fences) l.fence(seq_cst);
                       l.r[0] = l.y.load(load);
                     },
                     [=](litmus& l) {
                       l.y.store(1, store);
                       if (fences) l.fence(seq_cst);
                       l.r[1] = l.x.load(load);
                     }});
  }
  /// One writes x and then the flag y; the other reads y and then x.
  static std::set<std::string> message_passing(std::memory_order store, std::memory_order load) {
    return outcomes({[=](litmus& l) {
                       l.x.store(1, relaxed);
                       l.y.store(1, store);
                     },
                     [=](litmus& l) {
                       l.r[0] = l.y.load(load);
                       l.r[1] = l.x.load(relaxed);
                     }});
  }
  /// Two write; two others read both, in different orders.
  static std::set<std::string> independent_reads(std::memory_order store, std::memory_order load) {
    return outcomes(
        {[=](litmus& l) { l.x.store(1, store); }, [=](litmus& l) { l.y.store(1, store); },
         [=](litmus& l) {
           l.r[0] = l.x.load(load);
           l.r[1] = l.y.load(load);
         },
         [=](litmus& l) {
           l.r[2] = l.y.load(load);
           l.r[3] = l.x.load(load);
         }},
        4);
  }
};

TEST_F(weak_memory_model, store_buffering_shows_unless_all_are_seq_cst) {
  EXPECT_THAT(store_buffering(relaxed, relaxed, false), ElementsAre("00", "01", "10", "11"));
  EXPECT_THAT(store_buffering(release, acquire, false), ElementsAre("00", "01", "10", "11"));
  EXPECT_THAT(store_buffering(seq_cst, acquire, false), ElementsAre("00", "01", "10", "11"));
  EXPECT_THAT(store_buffering(seq_cst, seq_cst, false), ElementsAre("01", "10", "11"));
  EXPECT_THAT(store_buffering(relaxed, relaxed, true), ElementsAre("01", "10", "11"));
}

TEST_F(weak_memory_model, a_message_is_passed_by_release_and_acquire_only) {
  EXPECT_THAT(message_passing(release, acquire), ElementsAre("00", "01", "11"));
  EXPECT_THAT(message_passing(relaxed, acquire), ElementsAre("00", "01", "10", "11"));
  EXPECT_THAT(message_passing(release, relaxed), ElementsAre("00", "01", "10", "11"));
}

TEST_F(weak_memory_model, fences_pass_a_message_between_relaxed_accesses) {
  const auto passed = [&](std::memory_order before, std::memory_order after) {
    return outcomes({[=](litmus& l) {
                       l.x.store(1, relaxed);
                       l.fence(before);
                       l.y.store(1, relaxed);
                     },
                     [=](litmus& l) {
                       l.r[0] = l.y.load(relaxed);
                       l.fence(after);
                       l.r[1] = l.x.load(relaxed);
                     }});
  };
  EXPECT_THAT(passed(release, acquire), ElementsAre("00", "01", "11"));
  EXPECT_THAT(passed(acquire, release), ElementsAre("00", "01", "10", "11"));
}

TEST_F(weak_memory_model, independent_readers_agree_only_with_seq_cst) {
  EXPECT_TRUE(independent_reads(release, acquire).contains("1010"));
  EXPECT_FALSE(independent_reads(seq_cst, seq_cst).contains("1010"));
  EXPECT_EQ(independent_reads(release, acquire).size(), 16U);
  EXPECT_EQ(independent_reads(seq_cst, seq_cst).size(), 15U);
}

TEST_F(weak_memory_model, happens_before_is_transitive) {
  const auto chain = [&](std::memory_order store, std::memory_order load) {
    return outcomes({[=](litmus& l) { l.x.store(1, store); },
                     [=](litmus& l) {
                       l.r[0] = l.x.load(load);
                       l.y.store(1, store);
                     },
                     [=](litmus& l) {
                       l.r[1] = l.y.load(load);
                       l.r[2] = l.x.load(relaxed);
                     }},
                    3);
  };
  EXPECT_FALSE(chain(release, acquire).contains("110"));
  EXPECT_TRUE(chain(relaxed, relaxed).contains("110"));
}

TEST_F(weak_memory_model, reads_of_one_location_do_not_go_back) {
  EXPECT_THAT(outcomes({[](litmus& l) {
                          l.x.store(1, relaxed);
                          l.x.store(2, relaxed);
                        },
                        [](litmus& l) {
                          l.r[0] = l.x.load(relaxed);
                          l.r[1] = l.x.load(relaxed);
                        }}),
              ElementsAre("00", "01", "02", "11", "12", "22"));
}

/// A read-modify-write between the release and the acquire keeps the sequence, a plain store breaks
/// it.
TEST_F(weak_memory_model, a_release_sequence_goes_through_changes_and_not_through_stores) {
  const auto sequence = [&](bool by_change) {
    return outcomes({[](litmus& l) {
                       l.y.store(1, relaxed);
                       l.x.store(1, release);
                     },
                     [=](litmus& l) {
                       if (by_change) {
                         l.x.fetch_add(1, relaxed);
                       } else if (l.x.load(relaxed) == 1) {
                         l.x.store(2, relaxed);
                       }
                     },
                     [](litmus& l) {
                       l.r[0] = l.x.load(acquire);
                       l.r[1] = l.y.load(relaxed);
                     }});
  };
  EXPECT_FALSE(sequence(true).contains("20"));
  EXPECT_TRUE(sequence(false).contains("20"));
}

/// Both store, then each reads the other's; the fence of one and the accesses of the other are all
/// seq_cst.
TEST_F(weak_memory_model, fences_and_accesses_that_are_seq_cst_have_one_order) {
  const auto mixed = [&](std::memory_order store, std::memory_order load) {
    return outcomes({[=](litmus& l) {
                       l.x.store(1, relaxed);
                       l.fence(seq_cst);
                       l.r[0] = l.y.load(relaxed);
                     },
                     [=](litmus& l) {
                       l.y.store(1, store);
                       l.r[1] = l.x.load(load);
                     }});
  };
  EXPECT_THAT(mixed(seq_cst, seq_cst), ElementsAre("01", "10", "11"));
  EXPECT_THAT(mixed(release, seq_cst), ElementsAre("00", "01", "10", "11"));
  EXPECT_THAT(mixed(seq_cst, acquire), ElementsAre("00", "01", "10", "11"));
}

TEST_F(weak_memory_model, independent_readers_agree_with_a_fence_between_their_reads) {
  const auto read = [&](std::memory_order fence) {
    return outcomes(
        {[](litmus& l) { l.x.store(1, relaxed); }, [](litmus& l) { l.y.store(1, relaxed); },
         [=](litmus& l) {
           l.r[0] = l.x.load(relaxed);
           l.fence(fence);
           l.r[1] = l.y.load(relaxed);
         },
         [=](litmus& l) {
           l.r[2] = l.y.load(relaxed);
           l.fence(fence);
           l.r[3] = l.x.load(relaxed);
         }},
        4);
  };
  EXPECT_EQ(read(seq_cst).size(), 15U);
  EXPECT_FALSE(read(seq_cst).contains("1010"));
  EXPECT_TRUE(read(acq_rel).contains("1010"));
}

/// As store buffering with a fence on one side only, which is one in every thread.
TEST_F(weak_memory_model, a_fence_in_all_threads_serves_both_sides) {
  const auto one_sided = [&](bool all) {
    return outcomes({[](litmus& l) {
                       l.x.store(1, relaxed);
                       l.r[0] = l.y.load(relaxed);
                     },
                     [=](litmus& l) {
                       l.y.store(1, relaxed);
                       if (all) {
                         l.fence_all();
                       } else {
                         l.fence(seq_cst);
                       }
                       l.r[1] = l.x.load(relaxed);
                     }});
  };
  EXPECT_THAT(one_sided(true), ElementsAre("01", "10", "11"));
  EXPECT_THAT(one_sided(false), ElementsAre("00", "01", "10", "11"));
}

/// What makes something happen before is a load that reads, not a fence that comes later.
TEST_F(weak_memory_model, fences_alone_order_no_plain_memory) {
  EXPECT_EQ(failure_of({[](litmus& l) {
                          l.data.write(1);
                          l.fence(seq_cst);
                        },
                        [](litmus& l) {
                          l.fence(seq_cst);
                          l.r[0] = l.data.read();
                        }}),
            "data race");
}

TEST_F(weak_memory_model, changes_of_one_location_lose_nothing) {
  EXPECT_THAT(outcomes({[](litmus& l) { l.r[0] = l.x.fetch_add(1, relaxed); },
                        [](litmus& l) { l.r[1] = l.x.fetch_add(1, relaxed); }}),
              ElementsAre("01", "10"));
}

/// A compare-and-swap that fails may have read an old value; one that succeeds has not.
TEST_F(weak_memory_model, a_failing_compare_and_swap_is_a_load) {
  const auto compared = outcomes({[](litmus& l) {
                                    l.x.store(1, relaxed);
                                    l.x.store(2, relaxed);
                                  },
                                  [](litmus& l) {
                                    int expected = 2;
                                    l.r[0] =
                                        l.x.compare_exchange_strong(expected, 3, relaxed, relaxed);
                                    l.r[1] = expected;
                                  }});
  EXPECT_THAT(compared, ElementsAre("00", "01", "12"));
}

/// Out of scope: with 2+2W C++ allows both locations to end with the first store of a thread.
TEST_F(weak_memory_model, a_store_does_not_come_before_an_earlier_one) {
  litmus l({[](litmus& m) {
              m.x.store(1, relaxed);
              m.y.store(2, relaxed);
            },
            [](litmus& m) {
              m.y.store(1, relaxed);
              m.x.store(2, relaxed);
            }});
  l.reads_the_end = true;
  explorer e;
  EXPECT_FALSE(e.explore(l).failed);
  EXPECT_THAT(l.outcomes, ElementsAre("12", "21", "22"));
}

/// Sleep sets leave schedules out, and no outcome. Programs of two or three threads, drawn at
/// random, are explored with them and without: a bound on preemptions that none reaches switches
/// them off.
TEST_F(weak_memory_model, leaving_out_equal_schedules_loses_no_outcome) {
  std::mt19937 random(7);
  const auto any = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  constexpr std::array orders{relaxed, acquire, release, seq_cst};
  std::uint64_t with = 0;
  std::uint64_t without = 0;
  for (int n = 0; n < scale(150, 40); ++n) {
    std::vector<std::function<void(litmus&)>> threads;
    const int count = 2 + any(2);
    for (int i = 0; i < count; ++i) {
      struct line {
        int what, place;
        std::memory_order order;
      };
      std::vector<line> lines;
      for (int k = 0; k < (count == 2 ? 3 : 2); ++k) {
        lines.push_back({any(6), any(2), orders[static_cast<std::size_t>(any(4))]});
      }
      threads.emplace_back([lines, i](litmus& l) {
        int sum = 0;
        for (const line& k : lines) {
          weak_atomic<int>& at = k.place == 0 ? l.x : l.y;
          const bool acquires_too = k.order == acquire || k.order == seq_cst;
          const bool releases_too = k.order == release || k.order == seq_cst;
          switch (k.what) {
            case 0:
            case 1:
              sum = sum * 3 + at.load(acquires_too ? k.order : relaxed);
              break;
            case 2:
            case 3:
              at.store(i + 1, releases_too ? k.order : relaxed);
              break;
            case 4:
              sum = sum * 3 + at.fetch_add(1, k.order);
              break;
            default:
              l.fence(k.order == relaxed ? seq_cst : k.order);
          }
        }
        l.r[static_cast<std::size_t>(i)] = sum % 10;
      });
    }
    litmus reduced(threads);
    litmus whole(threads);
    reduced.registers = whole.registers = 4;
    explorer e;
    with += e.explore(reduced).schedules;
    without += e.explore(whole, 1000).schedules;
    ASSERT_EQ(reduced.outcomes, whole.outcomes) << "program " << n;
  }
  std::printf("[ explorer ] %llu schedules in place of %llu\n",
              static_cast<unsigned long long>(with), static_cast<unsigned long long>(without));
  EXPECT_LT(with, without);
}

/// Out of scope: C++ allows 11, which needs a value from the future.
TEST_F(weak_memory_model, load_buffering_is_not_explored) {
  EXPECT_THAT(outcomes({[](litmus& l) {
                          l.r[0] = l.x.load(relaxed);
                          l.y.store(1, relaxed);
                        },
                        [](litmus& l) {
                          l.r[1] = l.y.load(relaxed);
                          l.x.store(1, relaxed);
                        }}),
              ElementsAre("00", "01", "10"));
}

TEST_F(weak_memory_model, unordered_accesses_to_plain_memory_are_a_data_race) {
  const auto passed = [&](std::memory_order store, std::memory_order load) {
    return failure_of({[=](litmus& l) {
                         l.data.write(1);
                         l.y.store(1, store);
                       },
                       [=](litmus& l) {
                         if (l.y.load(load) == 1) l.r[0] = l.data.read();
                       }});
  };
  EXPECT_EQ(passed(release, acquire), "");
  EXPECT_EQ(passed(relaxed, acquire), "data race");
  EXPECT_EQ(passed(release, relaxed), "data race");
}

// ---- The calls of one timer (src/timer/call_count.h)

/// Which operations lose their order.
struct weakening {
  bool adds = false;    ///< add()'s compare-and-swap
  bool begins = false;  ///< begin()'s fetch_add
  bool ends = false;    ///< end()'s fetch_sub
};

template <weakening Weak>
class weakened : public weak_atomic<std::uint32_t> {
 public:
  using base = weak_atomic<std::uint32_t>;
  bool compare_exchange_weak(std::uint32_t& expected, std::uint32_t desired, std::memory_order a,
                             std::memory_order b) {
    return base::compare_exchange_weak(expected, desired, Weak.adds ? relaxed : a, b);
  }
  std::uint32_t fetch_add(std::uint32_t n, std::memory_order o) {
    return base::fetch_add(n, Weak.begins ? relaxed : o);
  }
  std::uint32_t fetch_sub(std::uint32_t n, std::memory_order o) {
    return base::fetch_sub(n, Weak.ends ? relaxed : o);
  }
};

/// Two threads fire a timer; the one that queues it makes the calls.
template <weakening Weak>
class calls_of_a_timer : public program {
 public:
  [[nodiscard]] std::size_t threads() const override { return 2; }
  void prepare() override {
    memory_.begin();
    word_.reset(0);
    made_.reset(0);
  }
  void run(std::size_t i) override {
    for (std::size_t n = 0; n <= i; ++n) {
      if (calls(word_).add() != calls::added::queue) continue;
      bool more = true;
      while (more) {
        calls(word_).begin();
        made_.write(made_.read() + 1);
        more = calls(word_).end().queue;
      }
    }
  }
  void inspect() override {}
  void finish() override { EXPECT_EQ(made_.peek(), 3) << "calls for three firings"; }

 private:
  using calls = detail::call_count<weakened<Weak>>;
  weak_memory memory_;
  weakened<Weak> word_;
  plain<int> made_{"what a call has written"};
};

template <weakening Weak>
outcome explore_calls() {
  calls_of_a_timer<Weak> p;
  explorer e;
  return e.explore(p);
}

class weak_calls : public explored {};

TEST_F(weak_calls, happen_one_before_the_next) {
  const outcome all = explore_calls<weakening{}>();
  EXPECT_FALSE(all.failed) << all.failed->detail << "\n" << all.failed->story;
  std::printf("[ explorer ] calls in weak memory: %llu schedules\n",
              static_cast<unsigned long long>(all.schedules));
  EXPECT_GT(all.schedules, 100U);
}
TEST_F(weak_calls, race_if_their_end_does_not_release) {
  const outcome all = explore_calls<weakening{.ends = true}>();
  ASSERT_TRUE(all.failed);
  EXPECT_EQ(all.failed->check, "data race");
}
/// Each of the two would be enough here: a thread that has fired makes the calls itself.
TEST_F(weak_calls, race_if_neither_the_firing_nor_their_beginning_acquires) {
  EXPECT_FALSE(explore_calls<weakening{.adds = true}>().failed);
  EXPECT_FALSE(explore_calls<weakening{.begins = true}>().failed);
  const outcome all = explore_calls<weakening{.adds = true, .begins = true}>();
  ASSERT_TRUE(all.failed);
  EXPECT_EQ(all.failed->check, "data race");
}

}  // namespace
}  // namespace verge::test
