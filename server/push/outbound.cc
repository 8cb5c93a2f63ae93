// SPDX-License-Identifier: Apache-2.0

#include "outbound.h"

#include <algorithm>
#include <array>
#include <utility>

namespace verge::server::push {

namespace {

constexpr std::size_t read_at_once = 16U << 10;

bool is_late(const std::error_code& e) noexcept {
  return e == net_errc::deadline_exceeded || e == net_errc::timed_out;
}

}  // namespace

std::string outbound::name_of(const std::error_code& e) const {
  return is_late(e) ? "the receiver does not answer in time" : e.message();
}

verge::task<std::string> outbound::connect(endpoint at, clock::time_point until) {
  const auto left = std::min(until, deadline_) - clock::now();
  if (left <= left.zero()) co_return "the receiver does not answer in time";
  auto made = co_await tcp_conn::connect(at, left);
  if (made.error) {
    std::string why = "cannot connect to ";
    why.append(at.to_string()).append(": ").append(name_of(made.error));
    co_return why;
  }
  conn_ = std::move(made.value);
  conn_.set_deadline(deadline_);
  co_return "";
}

verge::task<std::string> outbound::secure(ssl_ctx_st& context, std::string host) {
  tls_ = std::make_unique<tls_session>(context, tls_session::side::client);
  if (!tls_->expect(host)) co_return "the name cannot be used for TLS: " + openssl_error();
  std::array<char, read_at_once> bytes;
  for (;;) {
    const auto state = tls_->shake_hands();
    std::string why = co_await flush();
    const std::string refusal = tls_->refusal();
    if (!refusal.empty()) co_return "the certificate is refused: " + refusal;
    if (!why.empty()) co_return why;
    if (state == tls_session::state::done) co_return "";
    if (state == tls_session::state::failed) co_return "the TLS handshake has failed";
    const auto got = co_await conn_.read_some(bytes);
    if (got.error) co_return "the TLS handshake has failed: " + name_of(got.error);
    tls_->feed({bytes.data(), got.bytes});
  }
}

/// Sends what TLS has to send.
verge::task<std::string> outbound::flush() {
  const std::string out = tls_->outgoing();
  if (out.empty()) co_return "";
  const auto sent = co_await conn_.write_all(out);
  co_return sent.error ? "sending has failed: " + name_of(sent.error) : std::string();
}

verge::task<std::string> outbound::write(std::string_view bytes) {
  if (tls_ != nullptr) {
    if (!tls_->write(bytes)) co_return "sending has failed: " + openssl_error();
    std::string why = co_await flush();
    co_return why;
  }
  const auto sent = co_await conn_.write_all(bytes);
  co_return sent.error ? "sending has failed: " + name_of(sent.error) : std::string();
}

verge::task<bool> outbound::read(std::string& to, std::string& why) {
  std::array<char, read_at_once> bytes;
  const std::size_t before = to.size();
  for (;;) {
    if (tls_ != nullptr) {
      const auto state = tls_->read(to);
      if (to.size() > before) co_return true;
      if (state == tls_session::state::failed) co_return false;
    }
    const auto got = co_await conn_.read_some(bytes);
    if (got.error == net_errc::end_of_stream) co_return false;
    if (got.error) {
      why = name_of(got.error);
      co_return false;
    }
    if (tls_ == nullptr) {
      to.append(bytes.data(), got.bytes);
      co_return true;
    }
    tls_->feed({bytes.data(), got.bytes});
  }
}

void outbound::hurry(clock::time_point until) {
  deadline_ = std::min(deadline_, until);
  conn_.set_deadline(deadline_);
}

}  // namespace verge::server::push
