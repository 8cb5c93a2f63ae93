// SPDX-License-Identifier: Apache-2.0

#include "dns_client.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include <verge/net.h>

#include "dns_message.h"

namespace verge::server::push {

namespace {

using namespace std::chrono_literals;

/// When one kind of addresses has come, the other is waited for no longer than this.
constexpr auto patience_for_other = 1s;

std::uint16_t random_id() {
  std::uint16_t id = 0;
  static_cast<void>(::getrandom(&id, sizeof id, 0));
  return id;
}

/// What is known of a name while it is asked for: a question for each kind of address.
struct inquiry {
  struct part {
    dns_question q;
    bool done{false};
    bool truncated{false};  ///< by UDP: it has to be asked for by TCP
    bool refused{false};    ///< by the server that is asked
    std::vector<endpoint> found;

    bool wants_more() const { return !done && !truncated && !refused; }
  };
  std::vector<part> parts;
  bool no_such_name{false};
  std::string fault;  ///< of a server, in words

  inquiry(const std::string& name, bool with_v6) {
    if (with_v6) add(name, dns_type::aaaa);
    add(name, dns_type::a);
  }
  void add(const std::string& name, dns_type type) {
    part& p = parts.emplace_back();
    p.q.name = name;
    p.q.type = type;
  }
  bool done() const {
    return no_such_name ||
           std::all_of(parts.begin(), parts.end(), [](const part& p) { return p.done; });
  }
  bool has_some() const {
    return std::any_of(parts.begin(), parts.end(), [](const part& p) { return !p.found.empty(); });
  }
  bool wants_more() const {
    return !no_such_name &&
           std::any_of(parts.begin(), parts.end(), [](const part& p) { return p.wants_more(); });
  }
  bool is_truncated() const {
    return !no_such_name &&
           std::any_of(parts.begin(), parts.end(), [](const part& p) { return p.truncated; });
  }
  /// For another server: new ids, which no old reply has.
  void renew() {
    fault.clear();
    for (part& p : parts) {
      p.q.id = random_id();
      p.truncated = p.refused = false;
    }
    if (parts.size() == 2 && parts[0].q.id == parts[1].q.id) parts[1].q.id ^= 1U;
  }
  /// Takes a message, which may be no reply to any of the questions: then it is as if it had not
  /// come.
  void take(std::string_view message) {
    for (part& p : parts) {
      if (p.done || p.refused) continue;
      auto r = parse_dns_reply(message, p.q);
      if (!r) continue;
      no_such_name |= r->code == dns_no_such_name;
      p.refused = r->code != dns_good;
      if (p.refused) fault = "the name server refuses with code " + std::to_string(r->code);
      p.truncated = r->truncated && !p.refused;
      p.done = !p.refused && !p.truncated;
      p.found = std::move(r->found);
      return;
    }
  }
};

verge::task<> ask_by_udp(inquiry& what, endpoint server, clock::time_point until) {
  const bool is_v6 = server.kind() == endpoint::family::ipv6;
  auto [socket, error] = udp_socket::bind(is_v6 ? endpoint::any_v6(0) : endpoint::any(0));
  if (!error) error = socket.connect(server);
  if (error) {
    what.fault = error.message();
    co_return;
  }
  socket.set_deadline(until);
  for (const inquiry::part& p : what.parts) {
    if (p.done) continue;
    const std::string query = dns_query(p.q);
    const auto sent = co_await socket.send(query);
    if (sent.error) {
      what.fault = sent.error.message();
      co_return;
    }
  }
  std::array<char, 4096> bytes;
  while (what.wants_more()) {
    const auto got = co_await socket.receive(bytes);
    if (got.error) {
      const bool late = got.error == net_errc::deadline_exceeded;
      what.fault = late ? "the name server does not answer in time" : got.error.message();
      co_return;
    }
    what.take({bytes.data(), got.bytes});
    if (what.has_some()) socket.set_deadline(std::min(until, clock::now() + patience_for_other));
  }
}

verge::task<> ask_by_tcp(inquiry& what, endpoint server, clock::time_point until) {
  const auto left = until - clock::now();
  if (left <= left.zero()) co_return;
  auto [conn, error] = co_await tcp_conn::connect(server, left);
  if (error) {
    what.fault = error.message();
    co_return;
  }
  conn.set_deadline(until);
  for (inquiry::part& p : what.parts) {
    if (p.done || p.refused) continue;
    p.truncated = false;
    const std::string query = dns_query(p.q);
    std::string framed{static_cast<char>(query.size() >> 8),
                       static_cast<char>(query.size() & 0xff)};
    const auto sent = co_await conn.write_all(framed.append(query));
    std::array<unsigned char, 2> size{};
    auto got = sent.error ? sent : co_await conn.read_full(size);
    std::string message(std::size_t{size[0]} << 8 | size[1], '\0');
    if (!got.error) got = co_await conn.read_full(message);
    if (got.error) {
      what.fault = got.error.message();
      co_return;
    }
    what.take(message);
  }
}

/// Asks the servers, as often as the settings say.
verge::task<> inquire(inquiry& what, const dns_settings& s, clock::time_point deadline) {
  static std::atomic<unsigned> turn{0};
  const std::size_t first = s.rotate ? turn.fetch_add(1, std::memory_order_relaxed) : 0;
  for (unsigned attempt = 0; attempt < s.attempts; ++attempt) {
    for (std::size_t i = 0; i < s.servers.size(); ++i) {
      const endpoint& server = s.servers[(first + i) % s.servers.size()];
      const auto until = std::min(deadline, clock::now() + s.timeout);
      what.renew();
      if (!s.by_tcp) co_await ask_by_udp(what, server, until);
      if (s.by_tcp || what.is_truncated()) co_await ask_by_tcp(what, server, until);
      // The other kind of addresses is not asked for again.
      if (what.done() || what.has_some()) co_return;
      if (clock::now() >= deadline) co_return;
    }
  }
}

}  // namespace

verge::task<addresses> ask_dns(std::shared_ptr<const name_sources> sources, std::string host,
                               clock::time_point deadline, bool with_v6) {
  addresses a;
  for (const std::string& name : sources->candidates(host)) {
    inquiry what(name, with_v6);
    co_await inquire(what, sources->dns, deadline);
    for (inquiry::part& p : what.parts) {
      a.found.insert(a.found.end(), p.found.begin(), p.found.end());
    }
    if (!a.found.empty()) {
      a.why.clear();
      break;
    }
    // As the C library: what went wrong counts, unless every name does not exist.
    const bool unknown = what.done();
    if (a.why.empty() || !unknown) {
      a.why = !unknown            ? what.fault
              : what.no_such_name ? "Name or service not known"
                                  : "the name has no address";
    }
    if (clock::now() >= deadline) break;
  }
  if (a.found.empty() && a.why.empty()) a.why = "it is no name that can be looked up";
  co_return a;
}

bool has_ipv6() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET6) continue;
    const auto& a = *reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
    found |= !IN6_IS_ADDR_LOOPBACK(&a.sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&a.sin6_addr);
  }
  ::freeifaddrs(all);
  return found;
}

}  // namespace verge::server::push
