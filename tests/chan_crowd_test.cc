// SPDX-License-Identifier: Apache-2.0

// Channels with many concurrent tasks and threads at both ends.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/task.h>
#include "support/scale.h"

namespace {

using namespace verge;
using test::scale;

struct crowd {
  int sending_tasks;
  int receiving_tasks;
  int sending_threads;
  int receiving_threads;
  std::size_t capacity;
};

class chan_in_a_crowd : public testing::TestWithParam<crowd> {};

TEST_P(chan_in_a_crowd, delivers_every_value_exactly_once) {
  const crowd c = GetParam();
  const int each = scale(20'000, 2'000);
  const int total = each * (c.sending_tasks + c.sending_threads);
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(total));
  chan<int> ch(c.capacity);
  {
    runtime rt({.processors = 3});
    const auto note = [&](int v) { seen[static_cast<std::size_t>(v)].fetch_add(1); };
    const auto receive = [&]() -> task<void> {
      while (auto v = co_await verge::recv(ch)) note(*v);
    };
    std::vector<join_handle<void>> senders;
    std::vector<join_handle<void>> receivers;
    std::vector<std::thread> sending;
    std::vector<std::thread> receiving;
    int from = 0;
    for (int i = 0; i < c.sending_tasks; ++i, from += each)
      senders.push_back(rt.spawn([&, from]() -> task<void> {
        for (int v = from; v < from + each; ++v) co_await verge::send(ch, v);
      }));
    for (int i = 0; i < c.receiving_tasks; ++i) receivers.push_back(rt.spawn(receive));
    for (int i = 0; i < c.sending_threads; ++i, from += each)
      sending.emplace_back([&, from] {
        for (int v = from; v < from + each; ++v) ch.send(v);
      });
    for (int i = 0; i < c.receiving_threads; ++i)
      receiving.emplace_back([&] {
        for (int v : ch) note(v);
      });
    for (auto& h : senders) h.join();
    for (auto& t : sending) t.join();
    ch.close();
    for (auto& h : receivers) h.join();
    for (auto& t : receiving) t.join();
  }
  const auto wrong = std::count_if(seen.begin(), seen.end(), [](auto& n) { return n != 1; });
  EXPECT_EQ(wrong, 0) << "of " << total << " values were lost or came twice";
}

INSTANTIATE_TEST_SUITE_P(of, chan_in_a_crowd,
                         testing::Values(crowd{1, 1, 0, 0, 0}, crowd{3, 3, 0, 0, 0},
                                         crowd{3, 3, 0, 0, 5}, crowd{0, 0, 2, 2, 0},
                                         crowd{2, 2, 2, 2, 0}, crowd{2, 2, 2, 2, 3},
                                         crowd{4, 1, 0, 1, 1}, crowd{1, 4, 1, 0, 1}),
                         [](const auto& test) {
                           const crowd& c = test.param;
                           return std::to_string(c.sending_tasks) + "_tasks_and_" +
                                  std::to_string(c.sending_threads) + "_threads_to_" +
                                  std::to_string(c.receiving_tasks) + "_and_" +
                                  std::to_string(c.receiving_threads) + "_by_" +
                                  std::to_string(c.capacity);
                         });

TEST(chan, keeps_each_senders_order) {
  runtime rt({.processors = 2});
  chan<std::pair<int, int>> ch(3);
  const int each = scale(20'000, 2'000);
  std::vector<join_handle<void>> senders;
  for (int who = 0; who < 4; ++who)
    senders.push_back(rt.spawn([&, who]() -> task<void> {
      for (int i = 0; i < each; ++i) co_await verge::send(ch, {who, i});
    }));
  std::vector<int> next(4, 0);
  for (int i = 0; i < 4 * each; ++i) {
    const auto [who, number] = *ch.recv();
    ASSERT_EQ(number, next[static_cast<std::size_t>(who)]++) << "of sender " << who;
  }
  for (auto& h : senders) h.join();
}

}  // namespace
