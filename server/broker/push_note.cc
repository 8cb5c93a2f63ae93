// SPDX-License-Identifier: Apache-2.0

#include "push_note.h"

#include <nlohmann/json.hpp>

#include "../store/store.h"

namespace verge::server {

namespace {

/// Secrets are bytes, and JSON has text.
std::string hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

std::string bytes_of(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    out += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return out;
}

}  // namespace

std::string push_note(const push_settings& s) {
  nlohmann::json j;
  j["url"] = s.url;
  j["secrets"] = nlohmann::json::array();
  for (const std::string& secret : s.secrets) j["secrets"].push_back(hex(secret));
  j["timeout"] = s.timeout;
  j["max_attempts"] = s.max_attempts;
  j["backoff"] = s.backoff;
  j["longest_backoff"] = s.longest_backoff;
  j["concurrency"] = s.concurrency;
  j["rate"] = s.rate;
  j["disabled"] = s.disabled;
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

push_settings parse_push_note(std::string_view text) {
  try {
    const nlohmann::json j = nlohmann::json::parse(text);
    push_settings s;
    s.url = j.at("url");
    for (const std::string secret : j.at("secrets")) s.secrets.push_back(bytes_of(secret));
    s.timeout = j.at("timeout");
    s.max_attempts = j.at("max_attempts");
    s.backoff = j.at("backoff");
    s.longest_backoff = j.at("longest_backoff");
    s.concurrency = j.at("concurrency");
    s.rate = j.at("rate");
    s.disabled = j.at("disabled");
    return s;
  } catch (const std::exception&) {
    throw store_error("the push settings of a tube cannot be read: restore a backup");
  }
}

}  // namespace verge::server
