// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

/// A server as a process, and a client of it that does not wait forever.
namespace verge::cluster_test {

class node {
 public:
  /// On the database behind the proxy in that directory. `fault` is put in; empty: none.
  /// `synced` is what the server wants of the database's disk.
  node(std::string database, int lease, std::string fault, bool synced = false);
  node(const node&) = delete;
  node& operator=(const node&) = delete;
  ~node() { kill(); }

  /// Until it serves. False if it has ended before.
  bool start();
  void kill();
  void stop(bool on) const;
  void send(int signal) const;
  /// SIGTERM, until it has ended.
  void end();
  bool is_running() const noexcept { return pid_ > 0; }
  std::uint16_t port() const noexcept { return port_; }

 private:
  const std::string database_;
  const int lease_;
  const std::string fault_;
  const bool synced_;
  pid_t pid_{-1};
  std::uint16_t port_{0};
};

struct http_result {
  int status{0};
  std::string body;
};

/// One request on a connection of its own. Nothing if there was no whole answer in time.
std::optional<http_result> ask(std::uint16_t port, const std::string& method,
                               const std::string& target, const std::string& body = "",
                               std::chrono::seconds patience = std::chrono::seconds(8));

}  // namespace verge::cluster_test
