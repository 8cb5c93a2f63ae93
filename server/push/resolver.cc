// SPDX-License-Identifier: Apache-2.0

#include "resolver.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace verge::server::push {

namespace {

constexpr std::size_t most_remembered = 4'096;

/// The same address with the port, unless it has one.
endpoint with_port(const endpoint& at, std::uint16_t port) {
  if (at.port() != 0) return at;
  if (at.kind() == endpoint::family::ipv6) {
    sockaddr_in6 a{};
    std::memcpy(&a, at.address(), std::min<std::size_t>(at.size(), sizeof a));
    a.sin6_port = htons(port);
    return endpoint::from(reinterpret_cast<const sockaddr*>(&a), sizeof a);
  }
  sockaddr_in a{};
  std::memcpy(&a, at.address(), std::min<std::size_t>(at.size(), sizeof a));
  a.sin_port = htons(port);
  return endpoint::from(reinterpret_cast<const sockaddr*>(&a), sizeof a);
}

/// What ends in a number is no name, and the C library takes it for an address in one of the old
/// forms: 127.1, 2130706433, 0x7f.1.
bool ends_in_a_number(const std::string& host) noexcept {
  const std::size_t point = host.rfind('.');
  const char first = host[point == host.npos ? 0 : std::min(point + 1, host.size() - 1)];
  if (first < '0' || first > '9') return false;
  return host.find_first_not_of("0123456789abcdefxABCDEFX.") == host.npos;
}

/// Nothing if the host is a name.
std::optional<addresses> numeric(const std::string& host, std::uint16_t port) {
  const bool is_v6 = host.find(':') != host.npos;
  std::string text(is_v6 ? "[" : "");
  text.append(host).append(is_v6 ? "]:" : ":").append(std::to_string(port));
  const auto [at, error] = endpoint::parse(text);
  if (!error) return addresses{.found = {at}, .why = {}};
  if (host.empty() || is_v6 || !ends_in_a_number(host)) return std::nullopt;
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  if (::inet_aton(host.c_str(), &a.sin_addr) == 0) {
    return addresses{.found = {}, .why = "it is neither a name nor an address"};
  }
  return addresses{.found = {endpoint::from(reinterpret_cast<const sockaddr*>(&a), sizeof a)},
                   .why = {}};
}

std::string key_of(const std::string& host, std::uint16_t port) {
  std::string key(host);
  return key.append("|").append(std::to_string(port));
}

chan<addresses> answered(addresses a) {
  chan<addresses> c(1);
  static_cast<void>(c.try_send(std::move(a)));
  return c;
}

}  // namespace

struct resolver::core {
  struct known {
    addresses answer;
    clock::time_point until;
  };
  struct under_way {
    std::vector<chan<addresses>> waiting;
    clock::time_point begin;
  };

  explicit core(options o) : settings(std::move(o)), files(settings.files) {}

  void end(const std::string& host, std::uint16_t port, addresses a);

  const options settings;
  name_files files;
  std::mutex lock;
  std::unordered_map<std::string, under_way> lookups;
  std::unordered_map<std::string, known> remembered;
};

resolver::resolver(runtime& rt, options o)
    : runtime_(rt), core_(std::make_shared<core>(std::move(o))), threads_(rt, [this] {
        lookup_threads::options t = core_->settings.threads;
        t.look_up = core_->settings.look_up;
        if (!t.look_up) t.look_up = &system_lookup;
        return t;
      }()) {}

resolver::~resolver() = default;

std::chrono::milliseconds resolver::patience() const noexcept { return core_->settings.patience; }

void resolver::core::end(const std::string& host, std::uint16_t port, addresses a) {
  for (endpoint& at : a.found) at = with_port(at, port);
  const std::string key = key_of(host, port);
  std::lock_guard held(lock);
  const auto asked = lookups.extract(key);
  if (remembered.size() >= most_remembered) remembered.clear();
  const auto keep = a.found.empty() ? settings.remember_failure : settings.remember;
  if (asked.empty()) return;
  for (auto& channel : asked.mapped().waiting) static_cast<void>(channel.try_send(a));
  remembered[key] = {std::move(a), clock::now() + keep};
}

chan<addresses> resolver::resolve(const std::string& host, std::uint16_t port) {
  // An address is no name: nothing is asked.
  if (auto known = numeric(host, port)) return answered(std::move(*known));
  const std::string key = key_of(host, port);
  core& c = *core_;
  chan<addresses> answer(1);
  {
    std::lock_guard held(c.lock);
    const auto now = clock::now();
    if (const auto found = c.remembered.find(key); found != c.remembered.end()) {
      if (found->second.until > now) return answered(found->second.answer);
      c.remembered.erase(found);
    }
    if (const auto found = c.lookups.find(key); found != c.lookups.end()) {
      if (now - found->second.begin > c.settings.patience) {
        return answered({.found = {}, .why = "the name server does not answer"});
      }
      found->second.waiting.push_back(answer);
      return answer;
    }
    if (c.lookups.size() >= c.settings.most_waiting) {
      return answered({.found = {}, .why = "too many names are being looked up"});
    }
    c.lookups[key] = {.waiting = {answer}, .begin = now};
  }
  const auto by_thread = [&] {
    threads_.start(host, port, [shared = core_, host, port](addresses a) {
      shared->end(host, port, std::move(a));
    });
    return answer;
  };
  if (c.settings.look_up) return by_thread();
  auto sources = c.files.current();
  if (c.settings.server) {
    auto changed = std::make_shared<name_sources>(*sources);
    changed->dns.servers = {*c.settings.server};
    changed->order = {};
    sources = std::move(changed);
  }
  if (sources->is_for_the_system(host)) return by_thread();
  const auto in_file = sources->order.files ? sources->hosts.find(host) : sources->hosts.end();
  if (in_file != sources->hosts.end() && sources->order.files_first) {
    c.end(host, port, {.found = in_file->second, .why = {}});
    return answer;
  }
  if (!sources->order.dns) {
    c.end(host, port, {.found = {}, .why = "Name or service not known"});
    return answer;
  }
  runtime_.spawn([shared = core_, sources, host, port] { return ask(shared, sources, host, port); })
      .detach();
  return answer;
}

verge::task<> resolver::ask(std::shared_ptr<core> c, std::shared_ptr<const name_sources> sources,
                            std::string host, std::uint16_t port) {
  const bool with_v6 = c->settings.with_v6 ? *c->settings.with_v6 : has_ipv6();
  const auto deadline = clock::now() + c->settings.patience;
  addresses a;
  try {
    a = co_await ask_dns(sources, host, deadline, with_v6);
  } catch (const std::exception& e) {
    a.why = e.what();
  }
  if (a.found.empty() && sources->order.files) {
    const auto in_file = sources->hosts.find(host);
    if (in_file != sources->hosts.end()) a = {.found = in_file->second, .why = {}};
  }
  c->end(host, port, std::move(a));
}

}  // namespace verge::server::push
