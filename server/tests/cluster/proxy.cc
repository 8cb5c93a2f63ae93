// SPDX-License-Identifier: Apache-2.0

#include "proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace verge::cluster_test {

namespace {

using namespace std::chrono_literals;

constexpr const char* name = "/.s.PGSQL.5432";

sockaddr_un address_in(const std::string& directory) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const std::string path = directory + name;
  std::memcpy(at.sun_path, path.c_str(), path.size() + 1);
  return at;
}

/// Everything, or false.
bool pass(int to, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(to, bytes, size, MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

proxy::proxy(std::string to) : to_(std::move(to)) {
  std::string made = (std::filesystem::temp_directory_path() / "verge-proxy-XXXXXX").string();
  if (::mkdtemp(made.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = made;
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un at = address_in(path_);
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(listener_, 64) != 0) {
    throw std::runtime_error("a proxy cannot listen");
  }
  // A standby connects as another user.
  if (::chmod(path_.c_str(), 0711) != 0 || ::chmod(at.sun_path, 0777) != 0) {
    throw std::runtime_error("a proxy cannot be reached");
  }
  accepting_ = std::thread([this] { accept(); });
}

proxy::~proxy() {
  ending_.store(true);
  accepting_.join();
  for (std::thread& t : carrying_) t.join();
  ::close(listener_);
  std::filesystem::remove_all(path_);
}

void proxy::accept() {
  while (!ending_.load()) {
    pollfd p{listener_, POLLIN, 0};
    if (::poll(&p, 1, 20) <= 0) continue;
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    std::lock_guard held(lock_);
    carrying_.emplace_back([this, client] { carry(client); });
  }
}

void proxy::carry(int client) {
  const int base = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un at = address_in(to_);
  const int cut_before = cut_.load();
  bool open = ::connect(base, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  std::vector<char> bytes(65536);
  while (open && !ending_.load() && cut_.load() == cut_before) {
    pollfd both[2]{{client, POLLIN, 0}, {base, POLLIN, 0}};
    if (::poll(both, 2, 20) <= 0) continue;
    for (int i = 0; open && i < 2; ++i) {
      if (both[i].revents == 0) continue;
      const ssize_t n = ::recv(i == 0 ? client : base, bytes.data(), bytes.size(), 0);
      // What has come is passed on after the hold, though the sender may have ended since.
      while (holding_.load() && !ending_.load()) std::this_thread::sleep_for(5ms);
      open = n > 0 && pass(i == 0 ? base : client, bytes.data(), static_cast<std::size_t>(n));
    }
  }
  ::close(base);
  ::close(client);
}

}  // namespace verge::cluster_test
