// SPDX-License-Identifier: Apache-2.0

// A server of a cluster as a process: cluster_node DATABASE LEASE-IN-MILLISECONDS DURABILITY, which
// is `synced`, or `written` for a database that does not wait for its disk. It prints the port of
// HTTP, and ends with SIGTERM.

#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string_view>

#include "serve/server.h"

int main(int argc, char** argv) {
  using namespace verge::server;
  if (argc != 4) return 2;
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    server_options o;
    o.listen = verge::endpoint::loopback(0);
    o.http.emplace().listen = verge::endpoint::loopback(0);
    o.database = argv[1];
    o.shards = 8;
    o.mode = argv[3] == std::string_view("synced") ? durability::synced : durability::written;
    o.leases.length = std::chrono::milliseconds(std::atoi(argv[2]));
    std::random_device random;
    o.broker.seed = std::uint64_t{random()} << 32 | random();
    task_server server(o);
    std::printf("%u\n", unsigned{server.http_address()->port()});
    std::fflush(stdout);
    int got = 0;
    sigwait(&signals, &got);
    server.stop();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cluster_node: %s\n", e.what());
    return 1;
  }
}
