#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace verge::server {

/// `verge serve`, and what works on its directory: `verge check`.
class serve_command {
 public:
  explicit serve_command(CLI::App& tool);
  bool parsed() const { return serve_->parsed() || check_->parsed(); }
  int run();

 private:
  int serve();
  int check();

  CLI::App* serve_;
  CLI::App* check_;
  std::string listen_{"127.0.0.1:11300"};
  std::string directory_{"verge-data"};
  std::string durability_{"synced"};
  std::string leases_{"durable"};
  std::uint32_t body_limit_{65'535};
  std::size_t connections_{10'000};
  std::size_t in_memory_{400'000};
  std::uint64_t memtable_{32U << 20};
  unsigned processors_{0};
  bool insecure_{false};
};

}  // namespace verge::server
