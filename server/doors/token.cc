// SPDX-License-Identifier: Apache-2.0

#include "token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "../text/time_text.h"

namespace verge::server {

namespace {

constexpr std::string_view prefix = "vt_";
constexpr std::size_t id_size = 8;
constexpr std::size_t secret_size = 43;  // 256 bits, six in each letter

std::string random_letters(std::size_t size) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::vector<unsigned char> bytes(size);
  if (RAND_bytes(bytes.data(), static_cast<int>(size)) != 1) {
    throw std::runtime_error("the system gives no random numbers, so no token can be made");
  }
  std::string text;
  for (const unsigned char b : bytes) text += letters[b & 63];
  return text;
}

std::string hex(const unsigned char* bytes, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    fmt::format_to(std::back_inserter(text), "{:02x}", bytes[i]);
  }
  return text;
}

std::string random_id() {
  std::array<unsigned char, id_size / 2> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    throw std::runtime_error("the system gives no random numbers, so no token can be made");
  }
  return hex(bytes.data(), bytes.size());
}

void parse_hash(const std::string& text, std::array<unsigned char, 32>& to) {
  if (text.size() != 64 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw std::runtime_error("a hash has to have 64 hexadecimal digits");
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
}

wall_time parse_time(const nlohmann::json& j, const char* name) {
  if (!j.contains(name)) return 0;
  const auto t = parse_rfc3339(j.at(name).get<std::string>());
  if (!t) throw std::runtime_error(std::string(name) + " has to be a time of RFC 3339");
  return *t;
}

token_record parse_record(const nlohmann::json& j) {
  token_record r;
  r.id = j.at("id").get<std::string>();
  r.name = j.value("name", "");
  parse_hash(j.at("hash").get<std::string>(), r.hash);
  for (const auto& s : j.at("scopes")) {
    const auto known = scope_named(s.get<std::string>());
    if (!known) throw std::runtime_error("there is no scope '" + s.get<std::string>() + "'");
    r.scopes.push_back(*known);
  }
  if (j.contains("tubes")) r.tubes = j.at("tubes").get<std::vector<std::string>>();
  r.created = parse_time(j, "created");
  r.expires = parse_time(j, "expires");
  r.per_second = j.value("per_second", std::uint32_t{0});
  return r;
}

nlohmann::ordered_json record_json(const token_record& r) {
  nlohmann::ordered_json j;
  j["id"] = r.id;
  j["name"] = r.name;
  j["hash"] = hex(r.hash.data(), r.hash.size());
  j["scopes"] = nlohmann::ordered_json::array();
  for (const scope s : r.scopes) j["scopes"].push_back(name_of(s));
  if (!r.tubes.empty()) j["tubes"] = r.tubes;
  j["created"] = format_rfc3339(r.created);
  if (r.expires != 0) j["expires"] = format_rfc3339(r.expires);
  if (r.per_second != 0) j["per_second"] = r.per_second;
  return j;
}

[[noreturn]] void cannot_write(const std::string& path, int error) {
  throw std::runtime_error("the tokens cannot be written to " + path + ": " +
                           std::generic_category().message(error));
}

struct descriptor_owner {
  explicit descriptor_owner(int n) noexcept : number(n) {}
  descriptor_owner(const descriptor_owner&) = delete;
  descriptor_owner& operator=(const descriptor_owner&) = delete;
  ~descriptor_owner() {
    if (number >= 0) ::close(number);
  }
  const int number;
};

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error("the tokens in " + path + " cannot be used: " + why +
                           "; `verge token add` writes such a file");
}

}  // namespace

const char* name_of(scope s) noexcept {
  switch (s) {
    case scope::open:
      return "open";
    case scope::read:
      return "read";
    case scope::put:
      return "put";
    case scope::work:
      return "work";
    case scope::admin:
      return "admin";
  }
  return "none";
}

std::optional<scope> scope_named(std::string_view name) noexcept {
  for (const scope s : {scope::read, scope::put, scope::work, scope::admin}) {
    if (name == name_of(s)) return s;
  }
  return std::nullopt;
}

std::optional<token_parts> parse_token(std::string_view text) noexcept {
  if (text.size() != prefix.size() + id_size + 1 + secret_size || !text.starts_with(prefix) ||
      text[prefix.size() + id_size] != '_') {
    return std::nullopt;
  }
  return token_parts{text.substr(prefix.size(), id_size), text.substr(prefix.size() + id_size + 1)};
}

std::array<unsigned char, 32> hash_of(std::string_view secret) {
  std::array<unsigned char, 32> h{};
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), h.data());
  return h;
}

bool same_hash(const std::array<unsigned char, 32>& a,
               const std::array<unsigned char, 32>& b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

token_file token_file::read(const std::string& path) {
  token_file f;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return f;
  std::ifstream in(path);
  if (!in) fail(path, std::generic_category().message(errno));
  try {
    const auto document = nlohmann::json::parse(in);
    for (const auto& j : document.at("tokens")) f.tokens_.push_back(parse_record(j));
  } catch (const std::exception& e) {
    fail(path, e.what());
  }
  return f;
}

void token_file::change(const std::string& path, const std::function<void(token_file&)>& f) {
  // The directory is locked, as the file is replaced by another one.
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  const descriptor_owner directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.number < 0) cannot_write(path, errno);
  while (::flock(directory.number, LOCK_EX) != 0) {
    if (errno != EINTR) cannot_write(path, errno);
  }
  token_file file = read(path);
  f(file);
  file.write(path, directory.number);
}

void token_file::write(const std::string& path, int directory) const {
  nlohmann::ordered_json document;
  document["tokens"] = nlohmann::ordered_json::array();
  for (const token_record& r : tokens_) document["tokens"].push_back(record_json(r));
  const std::string text = document.dump(1) + "\n";
  const std::string next = path + ".new";
  const descriptor_owner fd(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const bool written =
      fd.number >= 0 &&
      ::write(fd.number, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(fd.number) == 0;
  // The directory last: the new name is on disk, too.
  if (!written || std::rename(next.c_str(), path.c_str()) != 0 || ::fsync(directory) != 0) {
    cannot_write(path, errno);
  }
}

std::string token_file::add(token_record r, wall_time now) {
  r.id = random_id();
  const std::string secret = random_letters(secret_size);
  r.hash = hash_of(secret);
  r.created = now / 1'000'000'000 * 1'000'000'000;
  tokens_.push_back(r);
  std::string text(prefix);
  return text.append(r.id).append("_").append(secret);
}

bool token_file::revoke(std::string_view which) {
  return std::erase_if(
             tokens_, [&](const token_record& r) { return r.id == which || r.name == which; }) != 0;
}

}  // namespace verge::server
