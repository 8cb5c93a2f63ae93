// SPDX-License-Identifier: Apache-2.0

// The cost of a node from a slab and from malloc: one at a time, many, and from thread to thread.
#include <benchmark/benchmark.h>
#include <memory/slab.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace {

using verge::detail::slab_pool;

constexpr std::size_t contents = 56;  // with its version a cache line

struct from_slab {
  slab_pool pool{contents};
  void* allocate() { return pool.allocate(); }
  void free(void* node) { pool.free(node); }
};

struct from_malloc {
  static void* allocate() { return std::malloc(contents); }
  static void free(void* node) { std::free(node); }
};

// Where a user would write.
void touch(void* node) { *static_cast<std::uint64_t*>(node) = 1; }

template <class Source>
void allocate_and_free(benchmark::State& state) {
  static Source source;
  for (auto _ : state) {
    void* node = source.allocate();
    touch(node);
    benchmark::DoNotOptimize(std::as_const(node));
    source.free(node);
  }
}

// A batch of a thousand, more than a cache holds, in the order it was taken.
template <class Source>
void allocate_and_free_a_thousand(benchmark::State& state) {
  static Source source;
  std::array<void*, 1000> nodes;
  for (auto _ : state) {
    for (auto& node : nodes) touch(node = source.allocate());
    for (auto& node : nodes) source.free(node);
  }
  state.SetItemsProcessed(state.iterations() * 1000);
}

// A random one among a million is replaced: every node is out of cache.
template <class Source>
void replace_one_of_a_million(benchmark::State& state) {
  Source source;
  std::vector<void*> nodes(1'000'000);
  for (auto& node : nodes) touch(node = source.allocate());
  std::mt19937 random(1);
  std::shuffle(nodes.begin(), nodes.end(), random);
  std::minstd_rand pick(1);
  for (auto _ : state) {
    void*& node = nodes[pick() % nodes.size()];
    source.free(node);
    touch(node = source.allocate());
  }
  for (auto& node : nodes) source.free(node);
}

// A million are allocated, shuffled and freed, repeatedly.
template <class Source>
void a_million_come_and_go(benchmark::State& state) {
  Source source;
  std::vector<void*> nodes(1'000'000);
  std::mt19937 random(1);
  for (auto _ : state) {
    for (auto& node : nodes) touch(node = source.allocate());
    state.PauseTiming();
    std::shuffle(nodes.begin(), nodes.end(), random);
    state.ResumeTiming();
    for (auto& node : nodes) source.free(node);
  }
  state.SetItemsProcessed(state.iterations() * 1'000'000);
}

BENCHMARK(allocate_and_free<from_slab>)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(allocate_and_free<from_malloc>)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(allocate_and_free_a_thousand<from_slab>)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(allocate_and_free_a_thousand<from_malloc>)->ThreadRange(1, 2)->UseRealTime();
BENCHMARK(replace_one_of_a_million<from_slab>);
BENCHMARK(replace_one_of_a_million<from_malloc>);
BENCHMARK(a_million_come_and_go<from_slab>);
BENCHMARK(a_million_come_and_go<from_malloc>);

}  // namespace
