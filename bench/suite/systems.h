// SPDX-License-Identifier: Apache-2.0
// All systems that can be measured, by name, and how each is started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../peers/peer.h"

namespace verge::bench {

/// A loop without timers, which shows what the kernel gives: measured like a peer, but not counted
/// as one.
inline constexpr const char* reference_system = "bare_loop";

struct system_info {
  std::string name;
  bool is_verge = false;
  /// The Debian packages to install if it is missing.
  std::string packages;
  /// Keeps its process from one request to the next, for a compiler that warms up.
  bool stays = false;
};

const std::vector<system_info>& all_systems();
/// Throws std::invalid_argument for a name that is not there.
const system_info& system_named(const std::string& name);

/// The command that starts a program which speaks the protocol. Builds it first, if it is in
/// another language. Throws std::runtime_error that says how to get what is missing.
std::vector<std::string> command_for(const system_info& system);

/// One that is linked in; throws std::runtime_error if it is not.
linked_peer linked_peer_named(const std::string& name);

}  // namespace verge::bench
