// SPDX-License-Identifier: Apache-2.0

#include "frames.h"

#include <concepts>
#include <stdexcept>
#include <type_traits>

#include "../broker/schedule.h"

namespace verge::server::cluster {

namespace {

/// Writes what it is called with. Fields are listed once, in fields() below, for both directions.
class writer {
 public:
  static constexpr bool reads = false;
  explicit writer(std::string& out) : out_(out) {}

  template <class... T>
  void operator()(const T&... all) {
    (one(all), ...);
  }

 private:
  template <class T>
  void one(const T& v);

  void number(std::uint64_t n) {
    for (; n >= 0x80; n >>= 7) out_.push_back(static_cast<char>(n | 0x80));
    out_.push_back(static_cast<char>(n));
  }
  void text(std::string_view t) {
    number(t.size());
    out_.append(t);
  }

  std::string& out_;
};

class reader {
 public:
  static constexpr bool reads = true;
  explicit reader(std::string_view in) : in_(in) {}

  template <class... T>
  void operator()(T&... all) {
    (one(all), ...);
  }
  bool at_end() const noexcept { return in_.empty(); }

 private:
  template <class T>
  void one(T& v);

  [[noreturn]] static void refuse() {
    throw std::runtime_error("a frame of another server cannot be read");
  }
  std::uint64_t number() {
    std::uint64_t n = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (in_.empty()) refuse();
      const auto byte = static_cast<unsigned char>(in_.front());
      in_.remove_prefix(1);
      n |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return n;
    }
    refuse();
  }
  std::string_view text() {
    const std::uint64_t size = number();
    if (size > in_.size()) refuse();
    const std::string_view taken = in_.substr(0, size);
    in_.remove_prefix(size);
    return taken;
  }
  /// Each element takes at least a byte, so that a count cannot ask for more memory than there is.
  std::size_t count() {
    const std::uint64_t n = number();
    if (n > in_.size()) refuse();
    return n;
  }

  std::string_view in_;
};

// ---- The fields of each struct ------------------------------------------------------------------

template <class A, class T>
concept is_one = std::same_as<std::remove_const_t<A>, T>;

template <is_one<push_part> T>
void fields(auto& a, T& v) {
  a(v.url, v.answer);
}
template <is_one<task> T>
void fields(auto& a, T& v) {
  a(v.id, v.tube, v.state, v.bound_to_connection, v.priority, v.due, v.created, v.delay, v.ttr,
    v.reserves, v.timeouts, v.releases, v.buries, v.kicks, v.max_attempts, v.backoff, v.token,
    v.lease_end, v.burial, v.key, v.dead_letter, v.push);
}
template <is_one<push_settings> T>
void fields(auto& a, T& v) {
  a(v.url, v.secrets, v.timeout, v.max_attempts, v.backoff, v.longest_backoff, v.concurrency,
    v.rate, v.disabled);
}
template <is_one<new_task> T>
void fields(auto& a, T& v) {
  a(v.priority, v.delay, v.due, v.ttr, v.body, v.key, v.mode, v.max_attempts, v.backoff,
    v.dead_letter, v.url);
}
template <is_one<schedule> T>
void fields(auto& a, T& v) {
  a(v.name, v.tube, v.when, v.zone, v.missed, v.what, v.next, v.last, v.fired);
}
template <is_one<schedule_view> T>
void fields(auto& a, T& v) {
  a(v.what, v.fault, v.upcoming);
}
template <is_one<schedule_list> T>
void fields(auto& a, T& v) {
  a(v.all);
}
template <is_one<list_position> T>
void fields(auto& a, T& v) {
  a(v.priority, v.at, v.id);
}
template <is_one<handed_out> T>
void fields(auto& a, T& v) {
  a(v.id, v.token, v.body, v.fields);
}
template <is_one<task_view> T>
void fields(auto& a, T& v) {
  a(v.fields, v.tube, v.size, v.age, v.time_left, v.body);
}
template <is_one<tube_view> T>
void fields(auto& a, T& v) {
  a(v.name, v.urgent, v.ready, v.reserved, v.delayed, v.buried, v.total, v.using_it, v.waiting,
    v.watching, v.pause, v.pause_left, v.deletes, v.pauses, v.reserves, v.pushes, v.push_disabled,
    v.most_tasks, v.oldest_ready);
}
template <is_one<lateness_figures> T>
void fields(auto& a, T& v) {
  for (auto& n : v.counts) a(n);
  a(v.microseconds);
}
template <is_one<server_view> T>
void fields(auto& a, T& v) {
  for (auto& n : v.commands) a(n);
  a(v.urgent, v.ready, v.reserved, v.delayed, v.buried, v.total, v.timeouts,
    v.reserves_without_limit, v.tubes, v.connections, v.producers, v.workers, v.waiting,
    v.connections_ever, v.batches, v.batched_commands, v.sync_nanoseconds, v.in_memory,
    v.bytes_written, v.disk_bytes, v.uptime, v.draining, v.lateness);
}
template <is_one<survey_view> T>
void fields(auto& a, T& v) {
  a(v.all, v.tubes, v.more, v.now);
}
template <is_one<list_view> T>
void fields(auto& a, T& v) {
  a(v.tasks, v.next);
}
template <is_one<forecast_view> T>
void fields(auto& a, T& v) {
  a(v.minutes, v.known_until);
}
template <is_one<cluster_view::server> T>
void fields(auto& a, T& v) {
  a(v.name, v.tasks, v.http, v.peer, v.up, v.shards);
}
template <is_one<cluster_view::shard> T>
void fields(auto& a, T& v) {
  a(v.number, v.epoch, v.owner, v.lease_left, v.lag);
}
template <is_one<cluster_view> T>
void fields(auto& a, T& v) {
  a(v.answers, v.servers, v.shards);
}
template <is_one<once_key> T>
void fields(auto& a, T& v) {
  a(v.key, v.print);
}
template <is_one<tube_filter> T>
void fields(auto& a, T& v) {
  a(v.patterns);
}
template <is_one<reply> T>
void fields(auto& a, T& v) {
  a(v.what, v.number, v.text, v.task, v.more, v.shown, v.each, v.push, v.replayed);
}
/// Without `prepared`: what a protocol has made itself is not passed on.
template <is_one<command> T>
void fields(auto& a, T& v) {
  a(v.what, v.number, v.priority, v.time, v.limit, v.token, v.text, v.tube, v.watch, v.due,
    v.keep_priority, v.with_body, v.state, v.from, v.within, v.tasks, v.push, v.once, v.most,
    v.recurs, v.url, v.give_up, v.disable);
}

// ---- The forms of values ------------------------------------------------------------------------

template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_shared : std::false_type {};
template <class T>
struct is_shared<std::shared_ptr<const T>> : std::true_type {};
template <class T>
struct is_pair : std::false_type {};
template <class X, class Y>
struct is_pair<std::pair<X, Y>> : std::true_type {};

/// Signed numbers are small ones mostly, of both signs.
std::uint64_t folded(std::int64_t n) {
  return static_cast<std::uint64_t>(n) << 1 ^ static_cast<std::uint64_t>(n >> 63);
}
std::int64_t unfolded(std::uint64_t n) {
  return static_cast<std::int64_t>(n >> 1) ^ -static_cast<std::int64_t>(n & 1);
}

template <class T>
void writer::one(const T& v) {
  if constexpr (std::is_enum_v<T> || std::is_unsigned_v<T>) {
    number(static_cast<std::uint64_t>(v));
  } else if constexpr (std::is_signed_v<T>) {
    number(folded(v));
  } else if constexpr (std::same_as<T, std::string>) {
    text(v);
  } else if constexpr (is_vector<T>::value) {
    number(v.size());
    for (const auto& e : v) one(e);
  } else if constexpr (is_optional<T>::value || is_shared<T>::value) {
    number(v ? 1 : 0);
    if (v) one(*v);
  } else if constexpr (is_pair<T>::value) {
    one(v.first);
    one(v.second);
  } else if constexpr (std::same_as<T, view>) {
    number(v.index());
    std::visit([this](const auto& shown) { one(shown); }, v);
  } else {
    fields(*this, v);
  }
}

template <std::size_t I = 0>
view view_of_kind(std::size_t index) {
  if constexpr (I + 1 < std::variant_size_v<view>) {
    if (index != I) return view_of_kind<I + 1>(index);
  }
  return view(std::in_place_index<I>);
}

template <class T>
void reader::one(T& v) {
  if constexpr (std::is_enum_v<T> || std::is_unsigned_v<T>) {
    v = static_cast<T>(number());
  } else if constexpr (std::is_signed_v<T>) {
    v = static_cast<T>(unfolded(number()));
  } else if constexpr (std::same_as<T, std::string>) {
    v = text();
  } else if constexpr (is_vector<T>::value) {
    v.clear();
    for (std::size_t n = count(); n > 0; --n) {
      typename T::value_type e{};
      one(e);
      v.push_back(std::move(e));
    }
  } else if constexpr (is_optional<T>::value) {
    v.reset();
    if (number() != 0) one(v.emplace());
  } else if constexpr (is_shared<T>::value) {
    v.reset();
    if (number() != 0) {
      auto made = std::make_shared<std::remove_const_t<typename T::element_type>>();
      one(*made);
      v = std::move(made);
    }
  } else if constexpr (is_pair<T>::value) {
    one(v.first);
    one(v.second);
  } else if constexpr (std::same_as<T, view>) {
    const std::uint64_t index = number();
    if (index >= std::variant_size_v<view>) refuse();
    v = view_of_kind(index);
    std::visit([this](auto& shown) { one(shown); }, v);
  } else {
    fields(*this, v);
  }
}

void all_of(auto& a, auto& f) {
  a(f.lane);
  switch (f.kind) {
    case frame_kind::hello:
      return a(f.text);
    case frame_kind::open:
      return a(f.shard);
    case frame_kind::command:
      return a(f.what);
    case frame_kind::reply:
      return a(f.said);
    case frame_kind::close:
    case frame_kind::look:
      return;
  }
  throw std::runtime_error("a frame of another server is of an unknown kind");
}

constexpr std::size_t length_bytes = 4;

}  // namespace

void append(std::string& out, const frame& f) {
  const std::size_t start = out.size();
  out.append(length_bytes, '\0');
  out.push_back(static_cast<char>(f.kind));
  writer w(out);
  all_of(w, f);
  const std::size_t length = out.size() - start - length_bytes;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    out[start + i] = static_cast<char>(length >> (8 * i) & 0xff);
  }
}

bool take(std::string_view& in, frame& f) {
  if (in.size() < length_bytes) return false;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= std::size_t{static_cast<unsigned char>(in[i])} << (8 * i);
  }
  if (length == 0 || length > longest_frame) {
    throw std::runtime_error("a frame of another server has a length that cannot be");
  }
  if (in.size() < length_bytes + length) return false;
  f = {};
  f.kind = static_cast<frame_kind>(in[length_bytes]);
  reader r(in.substr(length_bytes + 1, length - 1));
  all_of(r, f);
  if (!r.at_end())
    throw std::runtime_error("a frame of another server is longer than it should be");
  in.remove_prefix(length_bytes + length);
  return true;
}

}  // namespace verge::server::cluster
