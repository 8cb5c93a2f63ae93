// SPDX-License-Identifier: Apache-2.0

#include "task.h"

#include <algorithm>
#include <limits>

namespace verge::server {

namespace {

/// 2^40 times the first delay is longer than any delay may be.
constexpr std::uint32_t most_doublings = 40;

bool is_dead(const task& t) noexcept { return t.max_attempts != 0 && t.reserves >= t.max_attempts; }

nanoseconds backoff_of(const task& t) noexcept {
  if (t.backoff == 0) return 0;
  const std::uint32_t failed = std::max<std::uint32_t>(t.reserves, 1) - 1;
  if (failed >= most_doublings || t.backoff > (longest >> failed)) return longest;
  return t.backoff << failed;
}

void end_lease(task& t) noexcept {
  t.lease_end = 0;
  t.bound_to_connection = false;
}

/// A task that is made ready before its time is due from then on.
void make_ready(task& t, wall_time now) noexcept {
  end_lease(t);
  t.due = std::min(t.due, now);
  t.state = task_state::ready;
}

void make_delayed(task& t, wall_time now, nanoseconds delay) noexcept {
  end_lease(t);
  t.delay = delay;
  t.due = due_after(now, delay);
  t.state = task_state::delayed;
}

outcome holds(const task& t, lease_token token) noexcept {
  if (t.state != task_state::reserved) return outcome::wrong_state;
  return t.token == token ? outcome::done : outcome::stale_lease;
}

}  // namespace

const char* name_of(task_state s) noexcept {
  switch (s) {
    case task_state::delayed:
      return "delayed";
    case task_state::ready:
      return "ready";
    case task_state::reserved:
      return "reserved";
    case task_state::buried:
      return "buried";
  }
  return "unknown";
}

wall_time due_after(wall_time now, nanoseconds delay) noexcept {
  if (delay <= 0) return now;
  constexpr wall_time end = std::numeric_limits<wall_time>::max();
  return now > end - delay ? end : now + delay;
}

nanoseconds delay_until(wall_time now, wall_time due) noexcept {
  if (due <= now) return 0;
  // Times before 1970 are as far away as a delay can be, for a time that is not.
  constexpr nanoseconds most = std::numeric_limits<nanoseconds>::max();
  return now < 0 && due > most + now ? most : due - now;
}

void begin(task& t, wall_time now, nanoseconds delay) noexcept {
  t.created = now;
  t.delay = std::max<nanoseconds>(delay, 0);
  t.due = due_after(now, delay);
  t.state = delay > 0 ? task_state::delayed : task_state::ready;
}

outcome fall_due(task& t, wall_time now) noexcept {
  if (t.state != task_state::delayed || t.due > now) return outcome::wrong_state;
  t.state = task_state::ready;
  return outcome::done;
}

outcome reserve(task& t, lease_token token, wall_time now, bool any_state) noexcept {
  const bool allowed = any_state ? t.state != task_state::reserved : t.state == task_state::ready;
  if (!allowed) return outcome::wrong_state;
  t.state = task_state::reserved;
  t.token = token;
  t.lease_end = due_after(now, t.ttr);
  t.burial = 0;
  t.due = std::min(t.due, now);
  ++t.reserves;
  return outcome::done;
}

outcome release(task& t, lease_token token, std::uint32_t priority, wall_time now,
                nanoseconds delay) noexcept {
  if (const outcome o = holds(t, token); o != outcome::done) return o;
  t.priority = priority;
  ++t.releases;
  if (is_dead(t)) return outcome::dead;
  if (delay <= 0) delay = backoff_of(t);
  if (delay > 0) {
    make_delayed(t, now, delay);
  } else {
    t.delay = 0;
    make_ready(t, now);
  }
  return outcome::done;
}

outcome expire(task& t, lease_token token, wall_time now) noexcept {
  if (const outcome o = holds(t, token); o != outcome::done) return o;
  ++t.timeouts;
  if (is_dead(t)) return outcome::dead;
  if (const nanoseconds delay = backoff_of(t); delay > 0) {
    make_delayed(t, now, delay);
  } else {
    make_ready(t, now);
  }
  return outcome::done;
}

outcome give_back(task& t, lease_token token, wall_time now) noexcept {
  if (const outcome o = holds(t, token); o != outcome::done) return o;
  make_ready(t, now);
  return outcome::done;
}

outcome touch(task& t, lease_token token, wall_time now) noexcept {
  if (const outcome o = holds(t, token); o != outcome::done) return o;
  t.lease_end = due_after(now, t.ttr);
  return outcome::done;
}

outcome bury(task& t, lease_token token, std::uint32_t priority, std::uint64_t burial) noexcept {
  if (const outcome o = holds(t, token); o != outcome::done) return o;
  t.priority = priority;
  bury_dead(t, burial);
  return outcome::done;
}

outcome postpone(task& t, lease_token token, wall_time now, nanoseconds delay) noexcept {
  if (const outcome o = holds(t, token); o != outcome::done) return o;
  --t.reserves;
  if (delay > 0) {
    make_delayed(t, now, delay);
  } else {
    make_ready(t, now);
  }
  return outcome::done;
}

outcome fail(task& t, lease_token token, wall_time now, nanoseconds delay, std::uint32_t most,
             std::string_view answer) {
  if (const outcome o = holds(t, token); o != outcome::done) return o;
  auto part = std::make_shared<push_part>();
  if (t.push != nullptr) part->url = t.push->url;
  part->answer = answer;
  t.push = std::move(part);
  ++t.releases;
  if (most != 0 && t.reserves >= most) return outcome::dead;
  if (delay > 0) {
    make_delayed(t, now, delay);
  } else {
    make_ready(t, now);
  }
  return outcome::done;
}

outcome kick(task& t, wall_time now) noexcept {
  if (t.state != task_state::buried && t.state != task_state::delayed) return outcome::wrong_state;
  ++t.kicks;
  t.burial = 0;
  make_ready(t, now);
  return outcome::done;
}

outcome may_remove(const task& t, lease_token token) noexcept {
  return t.state == task_state::reserved ? holds(t, token) : outcome::done;
}

outcome reschedule(task& t, wall_time now, nanoseconds delay) noexcept {
  if (t.state == task_state::reserved) return outcome::wrong_state;
  t.burial = 0;
  t.delay = std::max<nanoseconds>(delay, 0);
  t.due = due_after(now, delay);
  t.state = delay > 0 ? task_state::delayed : task_state::ready;
  return outcome::done;
}

void bury_dead(task& t, std::uint64_t burial) noexcept {
  end_lease(t);
  ++t.buries;
  t.burial = burial;
  t.state = task_state::buried;
}

void move_dead(task& t, tube_number to, wall_time now) {
  if (t.push != nullptr) {
    t.push = std::make_shared<const push_part>(push_part{.url = {}, .answer = t.push->answer});
  }
  t.tube = to;
  t.key.clear();
  t.dead_letter.clear();
  t.max_attempts = 0;
  t.backoff = 0;
  t.delay = 0;
  t.due = now;
  make_ready(t, now);
}

bool is_name(const char* data, std::size_t size) noexcept {
  if (size == 0 || size > longest_name || data[0] == '-') return false;
  return std::all_of(data, data + size, [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '0' && c <= '9';
    return letter || digit || c == '-' || c == '+' || c == '/' || c == ';' || c == '.' ||
           c == '$' || c == '_' || c == '(' || c == ')';
  });
}

bool is_key(std::string_view key) noexcept {
  return !key.empty() && key.size() <= longest_name &&
         std::all_of(key.begin(), key.end(),
                     [](char c) { return static_cast<unsigned char>(c) > ' ' && c != 0x7f; });
}

}  // namespace verge::server
