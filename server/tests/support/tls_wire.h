// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

/// A TLS client that waits, for tests. It trusts one certificate.
namespace verge::server::test {

class tls_wire {
 public:
  tls_wire(std::uint16_t port, const std::string& trusted, int version = TLS1_3_VERSION) {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets that the server has closed
    context_ = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context_, version);
    SSL_CTX_set_max_proto_version(context_, version);
    SSL_CTX_set_security_level(context_, version < TLS1_2_VERSION ? 0 : 1);
    SSL_CTX_load_verify_locations(context_, trusted.c_str(), nullptr);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
      throw std::runtime_error("cannot connect");
    }
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd_);
    shaken_ = SSL_connect(ssl_) == 1;
  }
  tls_wire(const tls_wire&) = delete;
  tls_wire& operator=(const tls_wire&) = delete;
  ~tls_wire() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ::close(fd_);
  }

  /// Whether the handshake has succeeded.
  explicit operator bool() const { return shaken_; }
  void send(std::string_view bytes) {
    if (SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) <= 0) {
      throw std::runtime_error("SSL_write failed");
    }
  }
  /// Reads until what has come contains `text`, and returns all of it.
  std::string until(const std::string& text) {
    while (in_.find(text) == std::string::npos) {
      char bytes[4096];
      const int n = SSL_read(ssl_, bytes, sizeof bytes);
      if (n <= 0) throw std::runtime_error("the server has closed the connection: " + in_);
      in_.append(bytes, static_cast<std::size_t>(n));
    }
    return std::exchange(in_, {});
  }

 private:
  SSL_CTX* context_{nullptr};
  SSL* ssl_{nullptr};
  int fd_{-1};
  bool shaken_{false};
  std::string in_;
};

}  // namespace verge::server::test
