// SPDX-License-Identifier: Apache-2.0

#include "zone.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "civil.h"

namespace verge::server::calendar {

namespace {

constexpr std::int64_t day = 86'400;
constexpr const char* system_folder = "/usr/share/zoneinfo/";
constexpr std::size_t longest_name = 100;

// ---- The rule of POSIX -------------------------------------------------------------------------

bool take(std::string_view& in, char c) noexcept {
  if (!in.starts_with(c)) return false;
  in.remove_prefix(1);
  return true;
}

bool take_number(std::string_view& in, int most, int& n) noexcept {
  if (in.empty() || in.front() < '0' || in.front() > '9') return false;
  n = 0;
  while (!in.empty() && in.front() >= '0' && in.front() <= '9' && n <= most) {
    n = n * 10 + (in.front() - '0');
    in.remove_prefix(1);
  }
  return n <= most;
}

/// "CET", or "<+0330>".
bool take_name(std::string_view& in) noexcept {
  std::size_t size = 0;
  if (take(in, '<')) {
    size = in.find('>');
    if (size == in.npos) return false;
    in.remove_prefix(size + 1);
    return size >= 3;
  }
  while (size < in.size() && ((in[size] | 0x20) >= 'a' && (in[size] | 0x20) <= 'z')) ++size;
  in.remove_prefix(size);
  return size >= 3;
}

/// "[+-]h[h[h]][:mm[:ss]]", in seconds.
bool take_time(std::string_view& in, std::int32_t& seconds) noexcept {
  const bool negative = take(in, '-');
  if (!negative) take(in, '+');
  int part = 0;
  if (!take_number(in, 167, part)) return false;
  seconds = part * 3'600;
  for (const int unit : {60, 1}) {
    if (!take(in, ':')) break;
    if (!take_number(in, 59, part)) return false;
    seconds += part * unit;
  }
  if (negative) seconds = -seconds;
  return true;
}

}  // namespace

bool zone_rule::parse_moment(std::string_view& in, moment& m) {
  if (take(in, 'M')) {
    m.what = moment::kind::month_week_day;
    if (!take_number(in, 12, m.month) || !take(in, '.') || !take_number(in, 5, m.week) ||
        !take(in, '.') || !take_number(in, 6, m.day) || m.month == 0 || m.week == 0) {
      return false;
    }
  } else if (take(in, 'J')) {
    m.what = moment::kind::julian;
    if (!take_number(in, 365, m.day) || m.day == 0) return false;
  } else {
    m.what = moment::kind::day_of_year;
    if (!take_number(in, 365, m.day)) return false;
  }
  return !take(in, '/') || take_time(in, m.time);
}

std::optional<zone_rule> zone_rule::parse(std::string_view in) {
  zone_rule r;
  if (!take_name(in) || !take_time(in, r.standard_)) return std::nullopt;
  r.standard_ = -r.standard_;  // POSIX counts west of Greenwich
  if (in.empty()) return r;
  r.has_summer_ = true;
  r.summer_ = r.standard_ + 3'600;
  if (!take_name(in)) return std::nullopt;
  if (!in.starts_with(',')) {
    if (!take_time(in, r.summer_)) return std::nullopt;
    r.summer_ = -r.summer_;
  }
  if (!take(in, ',') || !parse_moment(in, r.begins_) || !take(in, ',') ||
      !parse_moment(in, r.ends_) || !in.empty()) {
    return std::nullopt;
  }
  return r;
}

/// In local seconds since 1970.
std::int64_t zone_rule::moment::in(std::int64_t year) const noexcept {
  const std::int64_t first = days_of({year, 1, 1});
  std::int64_t days = 0;
  switch (what) {
    case kind::julian:  // 29 February is never counted
      days = first + day - 1 + (is_leap(year) && day >= 60 ? 1 : 0);
      break;
    case kind::day_of_year:
      days = first + day;
      break;
    case kind::month_week_day: {
      const auto m = static_cast<unsigned>(month);
      const std::int64_t begin = days_of({year, m, 1});
      const int ahead = (day - static_cast<int>(weekday_of(begin)) + 7) % 7;
      int at = ahead + 7 * (week - 1);
      if (at >= static_cast<int>(days_in(year, m))) at -= 7;  // week 5 is the last one
      days = begin + at;
      break;
    }
  }
  return days * calendar::day + time;
}

span zone_rule::at(std::int64_t utc) const noexcept {
  span found;
  found.offset = standard_;
  if (!has_summer_) return found;
  // Changes of the years around: begins and ends alternate, in whichever order.
  const std::int64_t year = date_of(floor_div(utc, calendar::day)).year;
  for (std::int64_t y = year - 1; y <= year + 1; ++y) {
    for (const bool summer : {true, false}) {
      const std::int64_t when = summer ? begins_.in(y)-standard_ : ends_.in(y)-summer_;
      if (when <= utc && when >= found.begin) {
        found.begin = when;
        found.offset = summer ? summer_ : standard_;
      } else if (when > utc) {
        found.end = std::min(found.end, when);
      }
    }
  }
  return found;
}

// ---- The file ----------------------------------------------------------------------------------

namespace {

class reader {
 public:
  explicit reader(std::string_view in) : in_(in) {}
  bool has(std::size_t n) const noexcept { return in_.size() >= n; }
  std::string_view take(std::size_t n) noexcept {
    const auto part = in_.substr(0, n);
    in_.remove_prefix(part.size());
    return part;
  }
  std::int64_t number(std::size_t bytes) noexcept {
    std::uint64_t n = 0;
    for (const char c : take(bytes)) n = n << 8 | static_cast<unsigned char>(c);
    const auto shift = 64 - 8 * bytes;
    return static_cast<std::int64_t>(n << shift) >> shift;
  }
  std::string_view rest() const noexcept { return in_; }

 private:
  std::string_view in_;
};

struct header {
  char version{0};
  std::size_t is_ut{0}, is_standard{0}, leaps{0}, times{0}, types{0}, letters{0};
  std::size_t size(std::size_t time_bytes) const noexcept {
    return times * (time_bytes + 1) + types * 6 + letters + leaps * (time_bytes + 4) + is_standard +
           is_ut;
  }
};

bool read_header(reader& in, header& h) {
  constexpr std::size_t header_size = 44;
  constexpr std::size_t most = 1'000'000;
  if (!in.has(header_size) || in.take(4) != "TZif") return false;
  h.version = in.take(1)[0];
  in.take(15);
  for (std::size_t* const n :
       {&h.is_ut, &h.is_standard, &h.leaps, &h.times, &h.types, &h.letters}) {
    *n = static_cast<std::size_t>(in.number(4));
    if (*n > most) return false;
  }
  return h.types > 0;
}

bool is_zone_name(std::string_view name) noexcept {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' ||
           c == '_' || c == '-' || c == '+';
  });
  return plain && !name.empty() && name.size() <= longest_name && name.front() != '/' &&
         name.back() != '/' && name.find("//") == name.npos;
}

}  // namespace

std::shared_ptr<const zone> zone::parse(std::string_view bytes) {
  reader in(bytes);
  header h;
  if (!read_header(in, h)) return nullptr;
  std::size_t time_bytes = 4;
  if (h.version >= '2') {  // the same again, with longer numbers
    if (!in.has(h.size(4))) return nullptr;
    in.take(h.size(4));
    if (!read_header(in, h)) return nullptr;
    time_bytes = 8;
  }
  if (!in.has(h.size(time_bytes))) return nullptr;
  auto made = std::make_shared<zone>();
  for (std::size_t i = 0; i < h.times; ++i) made->starts_.push_back(in.number(time_bytes));
  if (!std::is_sorted(made->starts_.begin(), made->starts_.end())) return nullptr;
  std::vector<std::size_t> kinds{0};
  for (const char c : in.take(h.times)) kinds.push_back(static_cast<unsigned char>(c));
  std::vector<std::int32_t> offsets;
  for (std::size_t i = 0; i < h.types; ++i) {
    offsets.push_back(static_cast<std::int32_t>(in.number(4)));
    in.take(2);
  }
  for (const std::size_t k : kinds) {
    if (k >= offsets.size()) return nullptr;
    made->offsets_.push_back(offsets[k]);
  }
  in.take(h.size(time_bytes) - h.times * (time_bytes + 1) - h.types * 6);
  std::string_view footer = in.rest();
  if (footer.starts_with('\n')) {
    footer.remove_prefix(1);
    footer = footer.substr(0, footer.find('\n'));
    if (!footer.empty()) {
      made->rule_ = zone_rule::parse(footer);
      if (!made->rule_) return nullptr;
    }
  }
  return made;
}

std::shared_ptr<const zone> zone::utc() {
  auto made = std::make_shared<zone>();
  made->offsets_.push_back(0);
  return made;
}

std::shared_ptr<const zone> zone::load(const std::string& name, std::string& why) {
  if (name == "UTC") return utc();
  if (!is_zone_name(name)) {
    why = "'" + name + "' is not the name of a time zone: write one like Europe/Berlin, or UTC";
    return nullptr;
  }
  const char* const folder =
      std::getenv("TZDIR");  // NOLINT(concurrency-mt-unsafe): nothing sets it
  const std::string path = (folder != nullptr ? std::string(folder) + "/" : system_folder) + name;
  std::shared_ptr<const zone> made;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    made = parse(bytes);
  }
  if (made == nullptr) {
    why = "the time zone " + name + " is not known here: write one like Europe/Berlin, or UTC; " +
          "the system's zones are those of the package tzdata";
  }
  return made;
}

span zone::at(std::int64_t utc) const noexcept {
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), utc);
  const auto i = static_cast<std::size_t>(next - starts_.begin());
  span s;
  s.offset = offsets_[i];
  if (i > 0) s.begin = starts_[i - 1];
  if (next != starts_.end()) {
    s.end = *next;
    return s;
  }
  if (!rule_) return s;
  span by_rule = rule_->at(utc);
  by_rule.begin = std::max(by_rule.begin, s.begin);
  return by_rule;
}

}  // namespace verge::server::calendar
