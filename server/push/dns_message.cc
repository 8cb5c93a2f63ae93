// SPDX-License-Identifier: Apache-2.0

#include "dns_message.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "http1/request_syntax.h"

namespace verge::server::push {

namespace {

constexpr std::size_t header_size = 12;
constexpr std::uint16_t class_in = 1;
constexpr std::uint16_t type_cname = 5;
constexpr std::size_t longest_name = 253;
constexpr std::size_t longest_label = 63;
/// More names in a row that stand for one another than this are a loop, or an attack.
constexpr int most_aliases = 16;

void append16(std::string& to, std::uint16_t n) {
  to += static_cast<char>(n >> 8);
  to += static_cast<char>(n & 0xff);
}

/// Reads a message from its beginning to its end; false when it is over, or malformed.
class reader {
 public:
  explicit reader(std::string_view message) noexcept : all_(message) {}

  bool number16(std::uint16_t& n) noexcept {
    if (all_.size() - at_ < 2) return false;
    n = static_cast<std::uint16_t>(byte(at_) << 8 | byte(at_ + 1));
    at_ += 2;
    return true;
  }
  bool skip(std::size_t bytes) noexcept {
    if (all_.size() - at_ < bytes) return false;
    at_ += bytes;
    return true;
  }
  bool bytes(std::size_t n, std::string_view& to) noexcept {
    to = all_.substr(at_, n);
    return skip(n);
  }
  std::size_t at() const noexcept { return at_; }
  void go_to(std::size_t at) noexcept { at_ = at; }

  /// A name, whose end may stand elsewhere in the message. Each jump goes back, so that there are
  /// few of them.
  bool name(std::string& to) {
    to.clear();
    std::size_t from = at_;
    std::size_t least = at_;
    bool jumped = false;
    for (;;) {
      if (from >= all_.size()) return false;
      const std::size_t length = byte(from);
      if (length >= 0xc0) {
        if (from + 2 > all_.size()) return false;
        const std::size_t target = (length & 0x3f) << 8 | byte(from + 1);
        if (!jumped) at_ = from + 2;
        jumped = true;
        if (target >= least) return false;
        least = from = target;
        continue;
      }
      if (length > longest_label || from + 1 + length > all_.size()) return false;
      if (length == 0) {
        if (!jumped) at_ = from + 1;
        return true;
      }
      if (!to.empty()) to += '.';
      to.append(all_.substr(from + 1, length));
      if (to.size() > longest_name) return false;
      from += 1 + length;
    }
  }

 private:
  unsigned byte(std::size_t i) const noexcept { return static_cast<unsigned char>(all_[i]); }

  const std::string_view all_;
  std::size_t at_{0};
};

struct record {
  std::string name;
  std::uint16_t type{0};
  std::string_view data;
  std::string alias;  ///< of a CNAME
};

bool read_record(reader& in, record& r) {
  std::uint16_t cls = 0;
  std::uint16_t size = 0;
  constexpr std::size_t ttl_size = 4;
  if (!in.name(r.name) || !in.number16(r.type) || !in.number16(cls) || !in.skip(ttl_size) ||
      !in.number16(size)) {
    return false;
  }
  const std::size_t begin = in.at();
  if (!in.bytes(size, r.data)) return false;
  const std::size_t end = in.at();
  if (cls != class_in) r.type = 0;
  if (r.type != type_cname) return true;
  in.go_to(begin);
  const bool good = in.name(r.alias) && in.at() == end;
  in.go_to(end);
  return good;
}

std::optional<endpoint> address_of(const record& r) {
  if (r.type == static_cast<std::uint16_t>(dns_type::a)) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    if (r.data.size() != sizeof a.sin_addr) return std::nullopt;
    std::memcpy(&a.sin_addr, r.data.data(), sizeof a.sin_addr);
    return endpoint::from(reinterpret_cast<const sockaddr*>(&a), sizeof a);
  }
  sockaddr_in6 a{};
  a.sin6_family = AF_INET6;
  if (r.data.size() != sizeof a.sin6_addr) return std::nullopt;
  std::memcpy(&a.sin6_addr, r.data.data(), sizeof a.sin6_addr);
  return endpoint::from(reinterpret_cast<const sockaddr*>(&a), sizeof a);
}

/// The addresses of the name, or of the one that it stands for in the end.
std::vector<endpoint> addresses_in(const std::vector<record>& records, const dns_question& q) {
  std::string_view wanted = q.name;
  for (int hops = 0; hops < most_aliases; ++hops) {
    const auto alias = std::find_if(records.begin(), records.end(), [&](const record& r) {
      return r.type == type_cname && http::same_name(r.name, wanted);
    });
    if (alias == records.end()) break;
    wanted = alias->alias;
  }
  std::vector<endpoint> found;
  for (const record& r : records) {
    if (r.type != static_cast<std::uint16_t>(q.type) || !http::same_name(r.name, wanted)) continue;
    if (const auto at = address_of(r)) found.push_back(*at);
  }
  return found;
}

}  // namespace

bool is_dns_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > longest_name) return false;
  for (;;) {
    const std::size_t end = std::min(name.find('.'), name.size());
    if (end == 0 || end > longest_label) return false;
    if (end == name.size()) return true;
    name.remove_prefix(end + 1);
  }
}

std::string dns_query(const dns_question& q) {
  std::string out;
  append16(out, q.id);
  constexpr std::uint16_t recursion_desired = 0x0100;
  append16(out, recursion_desired);
  append16(out, 1);  // one question
  append16(out, 0);
  append16(out, 0);
  append16(out, 0);
  for (std::string_view rest = q.name; !rest.empty();) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    out += static_cast<char>(end);
    out.append(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  out += '\0';
  append16(out, static_cast<std::uint16_t>(q.type));
  append16(out, class_in);
  return out;
}

std::optional<dns_reply> parse_dns_reply(std::string_view message, const dns_question& q) {
  if (message.size() < header_size) return std::nullopt;
  reader in(message);
  std::uint16_t id = 0;
  std::uint16_t flags = 0;
  std::uint16_t questions = 0;
  std::uint16_t answers = 0;
  static_cast<void>(in.number16(id) && in.number16(flags) && in.number16(questions) &&
                    in.number16(answers) && in.skip(4));
  constexpr std::uint16_t is_reply = 0x8000;
  constexpr std::uint16_t opcode = 0x7800;
  constexpr std::uint16_t is_cut = 0x0200;
  if (id != q.id || (flags & is_reply) == 0 || (flags & opcode) != 0 || questions != 1) {
    return std::nullopt;
  }
  std::string name;
  std::uint16_t type = 0;
  std::uint16_t cls = 0;
  if (!in.name(name) || !in.number16(type) || !in.number16(cls) || cls != class_in ||
      type != static_cast<std::uint16_t>(q.type) || !http::same_name(name, q.name)) {
    return std::nullopt;
  }
  dns_reply r;
  r.code = static_cast<std::uint8_t>(flags & 0x0f);
  r.truncated = (flags & is_cut) != 0;
  if (r.truncated) return r;
  std::vector<record> records;
  for (std::uint16_t i = 0; i < answers; ++i) {
    if (!read_record(in, records.emplace_back())) return std::nullopt;
  }
  r.found = addresses_in(records, q);
  return r;
}

}  // namespace verge::server::push
