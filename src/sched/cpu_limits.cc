// SPDX-License-Identifier: Apache-2.0

#include <sched/cpu_limits.h>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <optional>

#include <base/file_descriptor.h>

namespace verge::detail {

namespace {

/// Takes what comes before the next `separator` off the front of `text`.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view first = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return first;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (take_until(list, ',') == word) return true;
  }
  return false;
}

/// The kernel writes blanks in paths as \040, and so on.
std::string without_escapes(std::string_view path) {
  std::string plain;
  for (std::size_t i = 0; i < path.size(); ++i) {
    unsigned code = 0;
    const char* const digits = path.data() + i + 1;
    if (path[i] == '\\' && i + 3 < path.size() &&
        std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += path[i];
    }
  }
  return plain;
}

/// The path of the process in a hierarchy, as /proc/self/cgroup has it: "0::/a/b" in that of v2,
/// "4:cpu,cpuacct:/a/b" in one of v1.
std::optional<std::string_view> path_in(bool v2, std::string_view cgroup) {
  while (!cgroup.empty()) {
    std::string_view line = take_until(cgroup, '\n');
    const std::string_view number = take_until(line, ':');
    const std::string_view controllers = take_until(line, ':');
    if (v2 ? number == "0" && controllers.empty() : has_word(controllers, "cpu")) return line;
  }
  return std::nullopt;
}

/// Where the group is below a mount that shows the hierarchy from `top` on. A path outside of that
/// is of another namespace: then the mount's own group is the nearest one to be seen.
std::string below(std::string_view top, std::string_view path) {
  if (top == "/") top = "";
  if (!path.starts_with(top)) return "";
  path.remove_prefix(top.size());
  if (path == "/" || !path.starts_with("/") || path.starts_with("/..")) return "";
  return std::string(path);
}

std::optional<std::int64_t> number_in(std::string_view text) noexcept {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || (end != text.data() + text.size() && *end != '\n')) {
    return std::nullopt;
  }
  return n;
}

/// The contents of a file; empty if it cannot be read.
std::string contents(const std::string& path) {
  const file_descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t n = file.get() < 0 ? 0 : ::read(file.get(), piece.data(), piece.size());
    if (n <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
}

/// The lowest of the quotas of a group and of all above it; 0 if there is none.
unsigned lowest_quota(const cpu_group& group, const std::string& root) {
  const std::string top = root + group.mounted_at;
  unsigned lowest = 0;
  for (std::string path = group.below;; path.resize(path.rfind('/'))) {
    const std::string at = top + path;
    const unsigned n = group.v2 ? cpus_of_cpu_max(contents(at + "/cpu.max"))
                                : cpus_of_quota(contents(at + "/cpu.cfs_quota_us"),
                                                contents(at + "/cpu.cfs_period_us"));
    if (n != 0 && (lowest == 0 || n < lowest)) lowest = n;
    if (path.empty()) return lowest;
  }
}

/// On how many cores the calling thread may run; 0 if that is not known.
unsigned cores_in_affinity() noexcept {
  std::array<std::uint64_t, 256> mask{};  // 16,384 cores
  if (::sched_getaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask.data())) != 0) return 0;
  unsigned n = 0;
  for (const std::uint64_t word : mask) n += static_cast<unsigned>(std::popcount(word));
  return n;
}

}  // namespace

std::vector<cpu_group> find_cpu_groups(std::string_view cgroup, std::string_view mountinfo) {
  std::vector<cpu_group> found;
  while (!mountinfo.empty()) {
    // 36 35 98:0 /root /mount/point rw,relatime [more] - type source options
    std::string_view line = take_until(mountinfo, '\n');
    for (int i = 0; i < 3; ++i) take_until(line, ' ');
    const std::string_view top = take_until(line, ' ');
    const std::string_view at = take_until(line, ' ');
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    line.remove_prefix(dash + 3);
    const std::string_view type = take_until(line, ' ');
    take_until(line, ' ');
    const bool v2 = type == "cgroup2";
    if (!v2 && (type != "cgroup" || !has_word(line, "cpu"))) continue;
    if (const auto path = path_in(v2, cgroup)) {
      found.push_back({.v2 = v2,
                       .mounted_at = without_escapes(at),
                       .below = below(without_escapes(top), *path)});
    }
  }
  return found;
}

unsigned cpus_of_cpu_max(std::string_view text) noexcept {
  const std::string_view quota = take_until(text, ' ');
  return cpus_of_quota(quota, text);
}

unsigned cpus_of_quota(std::string_view quota, std::string_view period) noexcept {
  const std::int64_t q = number_in(quota).value_or(0);
  const std::int64_t p = number_in(period).value_or(0);
  if (q <= 0 || p <= 0) return 0;
  return static_cast<unsigned>(std::min<std::int64_t>((q - 1) / p + 1, UINT32_MAX));
}

processor_limits read_processor_limits(const std::string& root) {
  processor_limits limits;
  limits.online = static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  limits.affinity = cores_in_affinity();
  const auto groups = find_cpu_groups(contents(root + "/proc/self/cgroup"),
                                      contents(root + "/proc/self/mountinfo"));
  for (const cpu_group& group : groups) {
    const unsigned n = lowest_quota(group, root);
    if (n != 0 && (limits.cgroup == 0 || n < limits.cgroup)) limits.cgroup = n;
  }
  return limits;
}

processor_choice choose_processors(const processor_limits& limits, unsigned most) noexcept {
  processor_choice chosen{.number = limits.online, .from = processors_from::online};
  if (limits.affinity != 0 && limits.affinity < chosen.number) {
    chosen = {.number = limits.affinity, .from = processors_from::affinity};
  }
  if (limits.cgroup != 0 && limits.cgroup < chosen.number) {
    chosen = {.number = limits.cgroup, .from = processors_from::cgroup};
  }
  chosen.number = std::clamp(chosen.number, 1U, most);
  return chosen;
}

}  // namespace verge::detail
