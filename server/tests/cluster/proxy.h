// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

/// Stands between a server and its database, on a socket in a directory of its own. It can hold
/// everything back, as a network does that is slow, and cut all connections.
namespace verge::cluster_test {

class proxy {
 public:
  /// To the database whose socket is in the directory `to`.
  explicit proxy(std::string to);
  proxy(const proxy&) = delete;
  proxy& operator=(const proxy&) = delete;
  ~proxy();

  const std::string& directory() const noexcept { return path_; }
  /// While it holds, bytes stay in the proxy; afterwards they go on, late.
  void hold(bool on) noexcept { holding_.store(on); }
  void cut() noexcept { cut_.fetch_add(1); }

 private:
  void accept();
  void carry(int client);

  const std::string to_;
  std::string path_;
  int listener_{-1};
  std::atomic<bool> holding_{false};
  std::atomic<int> cut_{0};
  std::atomic<bool> ending_{false};
  std::mutex lock_;
  std::vector<std::thread> carrying_;
  std::thread accepting_;
};

}  // namespace verge::cluster_test
