// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <verge/clock.h>
#include <verge/endpoint.h>

/// What the files of the system say about names: /etc/hosts, /etc/resolv.conf, /etc/nsswitch.conf.
/// They are read as the C library reads them (hosts(5), resolv.conf(5), nsswitch.conf(5)).
namespace verge::server::push {

/// resolv.conf.
struct dns_settings {
  std::vector<endpoint> servers;
  std::vector<std::string> search;  ///< domains, without points at their ends
  unsigned dots{1};                 ///< a name with fewer is tried with the domains first
  std::chrono::seconds timeout{5};  ///< of one question to one server
  unsigned attempts{2};
  bool rotate{false};  ///< not always the first server first
  bool by_tcp{false};
};
/// `own_name` is that of this machine: its domain is searched if the file names none.
dns_settings parse_resolv_conf(std::string_view text, std::string_view own_name);

/// hosts: names in lower case, each with its addresses, which have no port.
using hosts_file = std::unordered_map<std::string, std::vector<endpoint>>;
hosts_file parse_hosts(std::string_view text);

/// The line "hosts" of nsswitch.conf.
struct name_order {
  bool files_first{true};  ///< hosts before DNS
  bool files{true};
  bool dns{true};
  /// Sources beyond these two. Those that are known serve only names of one label and those that
  /// end in .local; a source that is not known may serve any.
  bool others{false};
  bool unknown{false};
};
name_order parse_nsswitch(std::string_view text);

/// All three, as they are now.
struct name_sources {
  hosts_file hosts;
  dns_settings dns;
  name_order order;

  /// Whether the name is one for the C library: a source is in use that is not DNS or hosts.
  bool is_for_the_system(std::string_view host) const noexcept;
  /// The names to ask for, one after the other.
  std::vector<std::string> candidates(std::string_view host) const;
};

struct name_paths {
  std::string hosts{"/etc/hosts"};
  std::string resolv{"/etc/resolv.conf"};
  std::string nsswitch{"/etc/nsswitch.conf"};
};

/// The files, read again when they have changed. May be used by any thread.
class name_files {
 public:
  /// They are looked at so often.
  explicit name_files(name_paths p, std::chrono::seconds look_again = std::chrono::seconds(5))
      : paths_(std::move(p)), look_again_(look_again) {}

  std::shared_ptr<const name_sources> current();

 private:
  std::string changes() const;

  const name_paths paths_;
  const std::chrono::seconds look_again_;
  std::mutex lock_;
  std::shared_ptr<const name_sources> sources_;
  std::string changed_;
  clock::time_point looked_{};
};

}  // namespace verge::server::push
