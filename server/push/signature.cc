// SPDX-License-Identifier: Apache-2.0

#include "signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <stdexcept>

#include "../text/coding.h"

namespace verge::server::push {

namespace {

constexpr std::string_view secret_prefix = "whsec_";
constexpr std::size_t shortest_secret = 24;
constexpr std::size_t longest_secret = 64;

std::string hmac(std::string_view secret, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(),
           &size) == nullptr) {
    throw std::runtime_error("verge: OpenSSL cannot compute HMAC-SHA256");
  }
  return {reinterpret_cast<const char*>(digest.data()), size};
}

}  // namespace

std::string sign(const std::vector<std::string>& secrets, std::string_view id,
                 std::int64_t timestamp, std::string_view body) {
  std::string content(id);
  content.append(".").append(std::to_string(timestamp)).append(".").append(body);
  std::string all;
  for (const std::string& secret : secrets) {
    all.append(all.empty() ? "v1," : " v1,").append(base64(hmac(secret, content)));
  }
  return all;
}

std::optional<std::string> parse_secret(std::string_view text) {
  if (!text.starts_with(secret_prefix)) return std::nullopt;
  auto bytes = parse_base64(text.substr(secret_prefix.size()));
  if (!bytes || bytes->size() < shortest_secret || bytes->size() > longest_secret) {
    return std::nullopt;
  }
  return bytes;
}

std::string secret_text(std::string_view secret) {
  return std::string(secret_prefix).append(base64(secret));
}

std::string new_secret() {
  std::array<unsigned char, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw std::runtime_error("verge: OpenSSL has no random bytes");
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace verge::server::push
