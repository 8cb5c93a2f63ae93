// SPDX-License-Identifier: Apache-2.0

#include "name_files.h"

#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "dns_message.h"

namespace verge::server::push {

namespace {

constexpr std::uint16_t dns_port = 53;
constexpr std::size_t most_servers = 3;
constexpr std::size_t most_domains = 6;

std::string in_lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// The words of a line, up to a comment.
std::vector<std::string_view> words(std::string_view line, std::string_view comments) {
  line = line.substr(0, line.find_first_of(comments));
  std::vector<std::string_view> all;
  constexpr std::string_view blanks = " \t\r\f\v";
  for (;;) {
    const std::size_t begin = line.find_first_not_of(blanks);
    if (begin == line.npos) return all;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(blanks), line.size());
    all.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

template <class F>
void for_lines(std::string_view text, std::string_view comments, F f) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const auto w = words(text.substr(0, end), comments); !w.empty()) f(w);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// An address as these files have it. A scope may be the name of an interface.
endpoint address_of(std::string_view text, std::uint16_t port) {
  std::string numeric(text);
  if (const auto scope = numeric.find('%'); scope != numeric.npos) {
    const unsigned index = ::if_nametoindex(numeric.c_str() + scope + 1);
    if (index != 0) numeric.replace(scope + 1, numeric.npos, std::to_string(index));
  }
  const bool is_v6 = numeric.find(':') != numeric.npos;
  std::string whole(is_v6 ? "[" : "");
  whole.append(numeric).append(is_v6 ? "]:" : ":").append(std::to_string(port));
  return endpoint::parse(whole).value;
}

void limit(std::string_view number, unsigned most, unsigned& to) {
  unsigned n = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
  if (error == std::errc() && end == number.data() + number.size()) to = std::min(n, most);
}

void read_option(std::string_view option, dns_settings& s) {
  const std::size_t colon = option.find(':');
  const std::string_view name = option.substr(0, colon);
  const std::string_view value = colon == option.npos ? "" : option.substr(colon + 1);
  unsigned seconds = static_cast<unsigned>(s.timeout.count());
  // The most that the C library takes of each.
  if (name == "ndots") limit(value, 15, s.dots);
  if (name == "attempts") limit(value, 5, s.attempts);
  if (name == "timeout") limit(value, 30, seconds);
  if (name == "rotate") s.rotate = true;
  if (name == "use-vc") s.by_tcp = true;
  s.timeout = std::chrono::seconds(std::max(seconds, 1U));
  s.attempts = std::max(s.attempts, 1U);
}

void set_domains(const std::vector<std::string_view>& line, dns_settings& s) {
  s.search.clear();
  for (std::size_t i = 1; i < line.size() && s.search.size() < most_domains; ++i) {
    std::string_view domain = line[i];
    if (domain.ends_with('.')) domain.remove_suffix(1);
    if (is_dns_name(domain)) s.search.push_back(in_lower_case(domain));
  }
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string own_name() {
  std::array<char, 256> name{};
  static_cast<void>(::gethostname(name.data(), name.size() - 1));
  return name.data();
}

}  // namespace

dns_settings parse_resolv_conf(std::string_view text, std::string_view own_name) {
  dns_settings s;
  if (const auto point = own_name.find('.'); point != own_name.npos) {
    const std::string_view domain = own_name.substr(point + 1);
    if (is_dns_name(domain)) s.search.push_back(in_lower_case(domain));
  }
  for_lines(text, "#;", [&](const std::vector<std::string_view>& line) {
    if (line[0] == "nameserver" && line.size() > 1 && s.servers.size() < most_servers) {
      const endpoint at = address_of(line[1], dns_port);
      if (at.kind() != endpoint::family::none) s.servers.push_back(at);
    }
    if (line[0] == "search") set_domains(line, s);
    if (line[0] == "domain")
      set_domains({line.begin(), line.begin() + std::min<std::ptrdiff_t>(2, std::ssize(line))}, s);
    if (line[0] == "options") {
      for (std::size_t i = 1; i < line.size(); ++i) read_option(line[i], s);
    }
  });
  if (s.servers.empty()) s.servers.push_back(endpoint::loopback(dns_port));
  return s;
}

hosts_file parse_hosts(std::string_view text) {
  hosts_file all;
  for_lines(text, "#", [&](const std::vector<std::string_view>& line) {
    const endpoint at = address_of(line[0], 0);
    if (at.kind() == endpoint::family::none) return;
    for (std::size_t i = 1; i < line.size(); ++i) all[in_lower_case(line[i])].push_back(at);
  });
  return all;
}

name_order parse_nsswitch(std::string_view text) {
  name_order order;
  for_lines(text, "#", [&](const std::vector<std::string_view>& line) {
    std::vector<std::string_view> sources(line.begin() + 1, line.end());
    if (line[0].starts_with("hosts:")) {
      if (line[0].size() > 6) sources.insert(sources.begin(), line[0].substr(6));
    } else {
      return;
    }
    order = {.files_first = true, .files = false, .dns = false, .others = false, .unknown = false};
    bool inside_action = false;
    for (const std::string_view source : sources) {
      inside_action |= source.starts_with('[');
      if (inside_action) {
        inside_action = !source.ends_with(']');
      } else if (source == "files") {
        order.files_first = !order.dns;
        order.files = true;
      } else if (source == "dns" || source == "resolve") {
        // systemd-resolved answers over DNS as well.
        order.dns = true;
      } else if (source == "myhostname" || source == "mymachines" || source.starts_with("mdns")) {
        order.others = true;
      } else {
        order.unknown = true;
      }
    }
  });
  return order;
}

bool name_sources::is_for_the_system(std::string_view host) const noexcept {
  if (order.unknown) return true;
  const bool is_plain = host.find('.') != host.npos && !host.ends_with(".local");
  return order.others && !is_plain;
}

std::vector<std::string> name_sources::candidates(std::string_view host) const {
  if (host.ends_with('.')) return {std::string(host.substr(0, host.size() - 1))};
  std::vector<std::string> all;
  const auto points = static_cast<unsigned>(std::count(host.begin(), host.end(), '.'));
  if (points >= dns.dots) all.emplace_back(host);
  for (const std::string& domain : dns.search) {
    std::string whole(host);
    all.push_back(whole.append(".").append(domain));
  }
  if (points < dns.dots) all.emplace_back(host);
  std::erase_if(all, [](const std::string& name) { return !is_dns_name(name); });
  return all;
}

std::string name_files::changes() const {
  std::string all;
  for (const std::string* path : {&paths_.hosts, &paths_.resolv, &paths_.nsswitch}) {
    struct stat s {};
    if (::stat(path->c_str(), &s) != 0) {
      all += "none ";
      continue;
    }
    for (const auto n : {static_cast<std::int64_t>(s.st_ino), static_cast<std::int64_t>(s.st_size),
                         std::int64_t{s.st_mtim.tv_sec}, std::int64_t{s.st_mtim.tv_nsec}}) {
      all.append(std::to_string(n)).append(" ");
    }
  }
  return all;
}

std::shared_ptr<const name_sources> name_files::current() {
  std::lock_guard held(lock_);
  const auto now = clock::now();
  if (sources_ != nullptr && now - looked_ < look_again_) return sources_;
  looked_ = now;
  std::string changed = changes();
  if (sources_ != nullptr && changed == changed_) return sources_;
  changed_ = std::move(changed);
  auto made = std::make_shared<name_sources>();
  made->hosts = parse_hosts(text_of(paths_.hosts));
  made->dns = parse_resolv_conf(text_of(paths_.resolv), own_name());
  made->order = parse_nsswitch(text_of(paths_.nsswitch));
  // Variables that change what the C library does, which it alone knows in full.
  for (const char* const variable : {"LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES"}) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing sets them
    made->order.unknown |= std::getenv(variable) != nullptr;
  }
  sources_ = std::move(made);
  return sources_;
}

}  // namespace verge::server::push
