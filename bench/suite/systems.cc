// SPDX-License-Identifier: Apache-2.0

#include "systems.h"

#include <unistd.h>

#include <array>
#include <functional>
#include <map>
#include <stdexcept>

#include "../peers/linked.h"
#include "programs.h"

namespace verge::bench {
namespace {

using maker = std::function<linked_peer()>;

/// What is linked: of the libraries, those that were installed when this was built.
const std::map<std::string, maker>& linked() {
  static const std::map<std::string, maker> made = [] {
    std::map<std::string, maker> m;
    for (const engine e : engines()) {
      m["verge/" + std::string(name_of(e))] = [e] { return verge_peer(e); };
    }
    m["verge/precise"] = &precise_peer;
    m["verge/timer_queue"] = &timer_queue_peer;
    m[reference_system] = &bare_loop_peer;
#if VERGE_BENCH_BOOST_ASIO
    m["boost_asio"] = &boost_asio_peer;
#endif
#if VERGE_BENCH_LIBUV
    m["libuv"] = &libuv_peer;
#endif
#if VERGE_BENCH_LIBEVENT
    m["libevent"] = &libevent_peer;
#endif
#if VERGE_BENCH_LIBEV
    m["libev"] = &libev_peer;
#endif
    return m;
  }();
  return made;
}

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) throw std::runtime_error("cannot read /proc/self/exe: is /proc mounted?");
  return {path.data(), static_cast<std::size_t>(length)};
}

std::string how_to_get(const system_info& s) { return "sudo apt-get install " + s.packages; }

}  // namespace

const std::vector<system_info>& all_systems() {
  static const std::vector<system_info> all = [] {
    std::vector<system_info> s;
    s.push_back({.name = "verge/hybrid", .is_verge = true, .packages = {}});
    for (const engine e : engines()) {
      if (e == engine::hybrid) continue;
      s.push_back({.name = "verge/" + std::string(name_of(e)), .is_verge = true, .packages = {}});
    }
    s.push_back({.name = "verge/precise", .is_verge = true, .packages = {}});
    s.push_back({.name = "verge/timer_queue", .is_verge = true, .packages = {}});
    s.push_back({.name = "boost_asio", .packages = "libboost-dev"});
    s.push_back({.name = "libuv", .packages = "libuv1-dev"});
    s.push_back({.name = "libevent", .packages = "libevent-dev"});
    s.push_back({.name = "libev", .packages = "libev-dev"});
    s.push_back({.name = "go", .packages = "golang-go"});
    s.push_back({.name = "netty", .packages = "default-jdk-headless libnetty-java", .stays = true});
    s.push_back({.name = "tokio", .packages = "cargo librust-tokio-dev"});
    s.push_back({.name = reference_system, .packages = {}});
    return s;
  }();
  return all;
}

const system_info& system_named(const std::string& name) {
  for (const system_info& s : all_systems()) {
    if (s.name == name) return s;
  }
  throw std::invalid_argument("there is no system '" + name + "'");
}

std::vector<std::string> command_for(const system_info& system) {
  if (linked().contains(system.name)) return {own_path(), "peer", system.name};
  try {
    if (system.name == "go") return build_go();
    if (system.name == "netty") return build_netty();
    if (system.name == "tokio") return build_tokio();
  } catch (const std::exception& e) {
    throw std::runtime_error(std::string(e.what()) + ". To have it: " + how_to_get(system));
  }
  throw std::runtime_error("it was not there when this was built. To have it: " +
                           how_to_get(system) + ", and build again");
}

linked_peer linked_peer_named(const std::string& name) {
  const auto found = linked().find(name);
  if (found == linked().end()) throw std::runtime_error("'" + name + "' is not linked into this");
  return found->second();
}

}  // namespace verge::bench
