// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../model/task.h"

/// Tokens: what their holders may do, in which tubes, until when, how often.
///
///   vt_1f2e3d4c_Zm9v...        what its holder has: an id, and a secret of 256 random bits
///   {"id": "1f2e3d4c", "hash": "9f86...", "scopes": ["put"], "tubes": ["orders*"], ...}
///                              what the file has: the SHA-256 of the secret
///
/// A secret that is random needs no slow hash: there is nothing to guess.
namespace verge::server {

/// What a caller may do. `open` needs no token.
enum class scope : std::uint8_t { open, read, put, work, admin };
const char* name_of(scope s) noexcept;
std::optional<scope> scope_named(std::string_view name) noexcept;

struct token_record {
  std::string id{};
  std::string name{};  ///< for people
  std::array<unsigned char, 32> hash{};
  std::vector<scope> scopes{};
  std::vector<std::string> tubes{};  ///< patterns; empty: all
  wall_time created{0};
  wall_time expires{0};         ///< 0: never
  std::uint32_t per_second{0};  ///< requests; 0: no limit
};

/// The two parts of a token's text; nothing if it is none.
struct token_parts {
  std::string_view id;
  std::string_view secret;
};
std::optional<token_parts> parse_token(std::string_view text) noexcept;
std::array<unsigned char, 32> hash_of(std::string_view secret);
/// Takes the same time wherever the two differ.
bool same_hash(const std::array<unsigned char, 32>& a,
               const std::array<unsigned char, 32>& b) noexcept;

/// The tokens of a file. A file that is not there has none.
class token_file {
 public:
  /// Throws std::runtime_error, with what to do, if the file cannot be read or understood.
  static token_file read(const std::string& path);
  /// Reads the file, lets `f` change it, and replaces it as a whole, readable by its owner alone;
  /// it is on disk then. Others that change it wait meanwhile, in other processes too. Throws
  /// std::runtime_error, and what `f` throws: then the file is as it was.
  static void change(const std::string& path, const std::function<void(token_file&)>& f);

  /// Fills in id, hash and time, and returns the token's text, which is nowhere else.
  std::string add(token_record r, wall_time now);
  /// By id or by name. False if there is none.
  bool revoke(std::string_view which);

  const std::vector<token_record>& tokens() const noexcept { return tokens_; }

 private:
  void write(const std::string& path, int directory) const;

  std::vector<token_record> tokens_;
};

}  // namespace verge::server
