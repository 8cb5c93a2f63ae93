// SPDX-License-Identifier: Apache-2.0

#include "records.h"

#include <limits>
#include <memory>
#include <utility>

namespace verge::server::records {

namespace {

template <class T>
void append_big(std::string& out, T n) {
  for (int shift = static_cast<int>(sizeof(T)) * 8 - 8; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>((n >> shift) & 0xff));
  }
}

template <class T>
T read_big(std::string_view in, std::size_t offset) {
  T n = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    n = static_cast<T>((n << 8) | static_cast<unsigned char>(in[offset + i]));
  }
  return n;
}

[[noreturn]] void damaged() {
  throw store_error("a record in the store cannot be read: run `verge check` on the directory");
}

/// Seven bits a byte, the lowest first; the highest bit says that there is more. Most numbers of a
/// task are small, and half of what is written for it would otherwise be zeros.
void append_number(std::string& out, std::uint64_t n) {
  while (n >= 0x80) {
    out.push_back(static_cast<char>((n & 0x7f) | 0x80));
    n >>= 7;
  }
  out.push_back(static_cast<char>(n));
}

std::uint64_t take_number(std::string_view& in) {
  std::uint64_t n = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (in.empty()) damaged();
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    n |= std::uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80) == 0) return n;
  }
  damaged();
}

/// Signed numbers near zero become small ones.
void append_signed(std::string& out, std::int64_t n) {
  append_number(out, (static_cast<std::uint64_t>(n) << 1) ^ static_cast<std::uint64_t>(n >> 63));
}

std::int64_t take_signed(std::string_view& in) {
  const std::uint64_t n = take_number(in);
  return static_cast<std::int64_t>((n >> 1) ^ (~(n & 1) + 1));
}

/// Differences wrap, so that any two times have one.
void append_difference(std::string& out, std::int64_t a, std::int64_t b) {
  append_signed(out, static_cast<std::int64_t>(static_cast<std::uint64_t>(a) -
                                               static_cast<std::uint64_t>(b)));
}

std::int64_t take_difference(std::string_view& in, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(take_signed(in)) +
                                   static_cast<std::uint64_t>(b));
}

std::uint32_t take_small(std::string_view& in) {
  const std::uint64_t n = take_number(in);
  if (n > std::numeric_limits<std::uint32_t>::max()) damaged();
  return static_cast<std::uint32_t>(n);
}

void append_text(std::string& out, std::string_view text) {
  append_number(out, text.size());
  out.append(text);
}

std::string take_text(std::string_view& in) {
  const std::uint64_t size = take_number(in);
  if (in.size() < size) damaged();
  std::string text(in.substr(0, size));
  in.remove_prefix(size);
  return text;
}

/// Signed times in the order of unsigned numbers.
std::uint64_t ordered(std::int64_t n) {
  return static_cast<std::uint64_t>(n) ^ (std::uint64_t{1} << 63);
}
std::int64_t unordered(std::uint64_t n) {
  return static_cast<std::int64_t>(n ^ (std::uint64_t{1} << 63));
}

char letter_of(place_kind kind) {
  switch (kind) {
    case place_kind::delayed:
      return 'D';
    case place_kind::ready:
      return 'R';
    case place_kind::buried:
      return 'B';
    case place_kind::none:
      break;
  }
  throw std::logic_error("verge: a stored task without a place");
}

/// What the flags of a task say. Format 1 had the first alone.
constexpr std::uint64_t is_bound = 1;
constexpr std::uint64_t has_push_part = 2;

constexpr std::size_t delayed_size = 1 + 4 + 8 + 8;
constexpr std::size_t ready_size = delayed_size + 4;

}  // namespace

std::string format_key() { return "F"; }
std::string mark_key(std::string_view name) {
  std::string key(1, 'M');
  key.append(name);
  return key;
}

std::string task_key(task_id id) {
  std::string key = "T";
  append_big(key, id);
  return key;
}

std::string changes_key(task_id id) {
  std::string key = "S";
  append_big(key, id);
  return key;
}

std::string index_prefix(tube_number tube, place_kind kind) {
  std::string key(1, letter_of(kind));
  append_big(key, tube);
  return key;
}

std::string end_of_index(std::string_view prefix) {
  return std::string(prefix).append(ready_size, '\xff');
}

std::string index_key(tube_number tube, const place& p, task_id id) {
  std::string key = index_prefix(tube, p.kind);
  if (p.kind == place_kind::ready) append_big(key, p.priority);
  append_big(key, ordered(p.at));
  append_big(key, id);
  return key;
}

bool parse_index_key(std::string_view key, tube_number& tube, place& p, task_id& id) {
  if (key.empty()) return false;
  p = {};
  switch (key[0]) {
    case 'D':
      p.kind = place_kind::delayed;
      break;
    case 'R':
      p.kind = place_kind::ready;
      break;
    case 'B':
      p.kind = place_kind::buried;
      break;
    default:
      return false;
  }
  const bool is_ready = p.kind == place_kind::ready;
  if (key.size() != (is_ready ? ready_size : delayed_size)) return false;
  tube = read_big<tube_number>(key, 1);
  std::size_t offset = 5;
  if (is_ready) {
    p.priority = read_big<std::uint32_t>(key, offset);
    offset += 4;
  }
  p.at = unordered(read_big<std::uint64_t>(key, offset));
  id = read_big<task_id>(key, offset + 8);
  return true;
}

std::string key_key(tube_number tube, std::string_view text) {
  std::string key = "K";
  append_big(key, tube);
  key.append(text);
  return key;
}

std::string tube_key(tube_number tube) {
  std::string key = "U";
  append_big(key, tube);
  return key;
}

std::string note_key(std::string_view name) {
  std::string key = "N";
  key.append(name);
  return key;
}

std::string low_water_key(std::string_view prefix) {
  std::string key = "L";
  key.append(prefix);
  return key;
}

void append_fields(std::string& out, const task& t, const place& p) {
  append_number(out, t.id);
  append_number(out, t.tube);
  append_number(out, static_cast<std::uint8_t>(t.state));
  append_number(out, (t.bound_to_connection ? is_bound : 0) | (t.push ? has_push_part : 0));
  append_number(out, t.priority);
  append_signed(out, t.created);
  append_difference(out, t.due, t.created);
  append_signed(out, t.delay);
  append_signed(out, t.ttr);
  append_number(out, t.reserves);
  append_number(out, t.timeouts);
  append_number(out, t.releases);
  append_number(out, t.buries);
  append_number(out, t.kicks);
  append_number(out, t.max_attempts);
  append_signed(out, t.backoff);
  append_number(out, t.token);
  append_signed(out, t.lease_end);
  append_number(out, t.burial);
  append_text(out, t.key);
  append_text(out, t.dead_letter);
  if (t.push) {
    append_text(out, t.push->url);
    append_text(out, t.push->answer);
  }
  append_number(out, static_cast<std::uint8_t>(p.kind));
  append_number(out, p.priority);
  append_difference(out, p.at, t.due);
}

stored_task take_fields(std::string_view& in) {
  stored_task s;
  task& t = s.fields;
  t.id = take_number(in);
  t.tube = take_small(in);
  const std::uint64_t state = take_number(in);
  if (state > static_cast<std::uint8_t>(task_state::buried)) damaged();
  t.state = static_cast<task_state>(state);
  const std::uint64_t flags = take_number(in);
  if (flags > (is_bound | has_push_part)) damaged();
  t.bound_to_connection = (flags & is_bound) != 0;
  t.priority = take_small(in);
  t.created = take_signed(in);
  t.due = take_difference(in, t.created);
  t.delay = take_signed(in);
  t.ttr = take_signed(in);
  t.reserves = take_small(in);
  t.timeouts = take_small(in);
  t.releases = take_small(in);
  t.buries = take_small(in);
  t.kicks = take_small(in);
  t.max_attempts = take_small(in);
  t.backoff = take_signed(in);
  t.token = take_number(in);
  t.lease_end = take_signed(in);
  t.burial = take_number(in);
  t.key = take_text(in);
  t.dead_letter = take_text(in);
  if ((flags & has_push_part) != 0) {
    auto part = std::make_shared<push_part>();
    part->url = take_text(in);
    part->answer = take_text(in);
    t.push = std::move(part);
  }
  const std::uint64_t kind = take_number(in);
  if (kind == 0 || kind > static_cast<std::uint8_t>(place_kind::buried)) damaged();
  s.where.kind = static_cast<place_kind>(kind);
  s.where.priority = take_small(in);
  s.where.at = take_difference(in, t.due);
  return s;
}

std::string tube_value(const tube_record& t) {
  std::string out;
  append_text(out, t.name);
  append_number(out, t.delayed);
  append_number(out, t.ready);
  append_number(out, t.buried);
  append_number(out, t.urgent);
  append_signed(out, t.paused_until);
  append_signed(out, t.pause);
  append_signed(out, t.due_mark.due);
  append_number(out, t.due_mark.id);
  return out;
}

tube_record parse_tube(tube_number number, std::string_view in) {
  tube_record t;
  t.number = number;
  t.name = take_text(in);
  t.delayed = take_number(in);
  t.ready = take_number(in);
  t.buried = take_number(in);
  t.urgent = take_number(in);
  t.paused_until = take_signed(in);
  t.pause = take_signed(in);
  if (in.empty()) return t;  // formats 1 and 2
  t.due_mark.due = take_signed(in);
  t.due_mark.id = take_number(in);
  return t;
}

std::string number_value(std::uint64_t n) {
  std::string out;
  append_number(out, n);
  return out;
}

std::uint64_t parse_number(std::string_view value) { return take_number(value); }

std::uint64_t id_at(std::string_view key, std::size_t offset) {
  if (key.size() < offset + 8) damaged();
  return read_big<std::uint64_t>(key, offset);
}

std::uint32_t tube_at(std::string_view key, std::size_t offset) {
  if (key.size() < offset + 4) damaged();
  return read_big<std::uint32_t>(key, offset);
}

}  // namespace verge::server::records
