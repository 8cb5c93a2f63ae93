// SPDX-License-Identifier: Apache-2.0

// Concurrent tasks that communicate through channels: jobs go in, results come out, and a wait that
// takes too long ends.

#include <chrono>
#include <cstdio>
#include <optional>
#include <vector>

#include <verge/chan.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/task.h>
#include <verge/time.h>

using namespace std::chrono_literals;

namespace {

struct result {
  int number;
  long square;
};

// Receives jobs until the channel is closed.
verge::task<> work(verge::receiver<int> jobs, verge::sender<result> results) {
  while (std::optional<int> n = co_await verge::recv(jobs)) {
    co_await verge::sleep(1ms);
    co_await verge::send(results, {*n, long{*n} * *n});
  }
}

verge::task<> collect(verge::receiver<result> results, verge::receiver<int> stop) {
  std::optional<result> r;
  for (;;) {
    switch (co_await verge::select(verge::recv(results, r), verge::recv(stop),
                                   verge::recv(verge::after(5s)))) {
      case 0:
        std::printf("%d squared is %ld\n", r->number, r->square);
        break;
      case 1:
        co_return;
      default:
        std::printf("nothing for five seconds\n");
        co_return;
    }
  }
}

verge::task<> run() {
  verge::chan<int> jobs;
  verge::chan<result> results(8);
  verge::chan<int> stop;

  std::vector<verge::join_handle<>> workers;
  workers.reserve(4);
  for (int i = 0; i < 4; ++i) workers.push_back(verge::go(work, jobs, results));
  auto collector = verge::go(collect, results, stop);

  for (int n = 1; n <= 20; ++n) co_await verge::send(jobs, n);
  jobs.close();
  for (auto& w : workers) co_await w;

  // All results are in the channel by now: receive the rest, and stop.
  while (results.size() != 0) co_await verge::yield();
  stop.close();
  co_await collector;
}

}  // namespace

int main() { verge::default_runtime().run(run()); }
