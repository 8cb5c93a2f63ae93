// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include <verge/endpoint.h>

#include "bench/tasks_bench.h"
#include "push/pusher.h"
#include "serve/server.h"

namespace verge::server {

/// `verge serve`, what works on its directory, `verge check`, and what measures it, `verge bench
/// tasks`.
class serve_command {
 public:
  /// `bench` is the tool's command of that name, which gets a part for tasks.
  serve_command(CLI::App& tool, CLI::App& bench);
  bool parsed() const { return serve_->parsed() || check_->parsed() || bench_->parsed(); }
  int run();

 private:
  int serve();
  endpoint address_of(const std::string& text) const;
  void check_reach(const endpoint& at) const;
  void take_over(server_options& options) const;
  int check();

  CLI::App* serve_;
  CLI::App* check_;
  CLI::App* bench_;
  bench::tasks_options bench_options_;
  std::string listen_{"127.0.0.1:11300"};
  std::string http_;
  std::vector<std::string> http_hosts_;
  std::string log_{"off"};
  std::string certificate_;
  std::string key_;
  std::string tokens_;
  bool log_requests_{false};
  std::string directory_{"verge-data"};
  std::string store_;
  std::string peer_{"127.0.0.1:0"};
  std::uint32_t shards_{16};
  std::uint32_t lease_{10'000};
  std::string durability_{"synced"};
  std::string leases_{"durable"};
  std::uint32_t body_limit_{65'535};
  std::size_t connections_{10'000};
  std::size_t in_memory_{150'000};
  std::uint64_t memtable_{32U << 20};
  unsigned processors_{0};
  bool insecure_{false};
  push::push_options push_;
  bool push_private_{false};
  bool activated_{false};
};

}  // namespace verge::server
