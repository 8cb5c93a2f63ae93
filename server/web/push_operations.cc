// SPDX-License-Identifier: Apache-2.0

// Where the tasks of a tube are pushed.

#include <algorithm>
#include <utility>

#include "../push/signature.h"
#include "operations.h"
#include "problem.h"

namespace verge::server::web {

namespace {

constexpr std::uint64_t most_attempts = 1'000'000;
constexpr std::uint64_t most_concurrency = 10'000;
constexpr std::uint64_t most_rate = 1'000'000;
constexpr nanoseconds longest_timeout = 300'000 * millisecond;
constexpr std::size_t most_secrets = 4;

/// Without the secrets: those are told once, by the response that made them.
ordered_json json_of(const std::string& tube, const push_settings& s) {
  ordered_json j;
  j["tube"] = tube;
  if (!s.url.empty()) j["url"] = s.url;
  j["timeout"] = s.timeout / millisecond;
  j["max_attempts"] = s.max_attempts;
  j["backoff"] = s.backoff / millisecond;
  j["max_backoff"] = s.longest_backoff / millisecond;
  j["concurrency"] = s.concurrency;
  j["rate"] = s.rate;
  j["secrets"] = s.secrets.size();
  j["disabled"] = !s.disabled.empty();
  if (!s.disabled.empty()) j["disabled_because"] = s.disabled;
  return j;
}

void read_secrets(object_reader& in, push_settings& s) {
  const auto given = in.texts("secret");
  if (given.size() > most_secrets) in.refuse("secret", "has at most 4 values");
  for (const std::string& text : given) {
    auto secret = push::parse_secret(text);
    if (!secret) {
      in.refuse("secret", "has to be whsec_ and base64 of 24 to 64 bytes; without one it is made");
    }
    s.secrets.push_back(std::move(*secret));
  }
}

std::uint32_t read_number(object_reader& in, const char* name, std::uint64_t least,
                          std::uint64_t most, std::uint32_t otherwise) {
  const auto n = in.number(name, most);
  if (n && *n < least) in.refuse(name, "has to be at least " + std::to_string(least));
  return static_cast<std::uint32_t>(n.value_or(otherwise));
}

push_settings read_settings(const json& body) {
  object_reader in(body, "");
  push_settings s;
  s.url = in.url("url").value_or("");
  read_secrets(in, s);
  s.timeout = in.duration("timeout").value_or(s.timeout);
  if (s.timeout == 0 || s.timeout > longest_timeout) {
    in.refuse("timeout", "has to be from 1 to 300000: how many milliseconds an attempt may take");
  }
  s.max_attempts = read_number(in, "max_attempts", 0, most_attempts, s.max_attempts);
  s.backoff = in.duration("backoff").value_or(s.backoff);
  s.longest_backoff = in.duration("max_backoff").value_or(std::max(s.longest_backoff, s.backoff));
  if (s.longest_backoff < s.backoff) in.refuse("max_backoff", "has to be at least backoff");
  s.concurrency = read_number(in, "concurrency", 1, most_concurrency, s.concurrency);
  s.rate = read_number(in, "rate", 0, most_rate, s.rate);
  in.finish();
  return s;
}

}  // namespace

operation set_push(call& c) {
  push_settings s = read_settings(c.body());
  const bool made = s.secrets.empty();
  if (made) s.secrets.push_back(push::new_secret());
  command cmd(verb::set_push);
  cmd.tube = c.tube();
  cmd.push = std::make_shared<const push_settings>(s);
  return ask(std::move(cmd), [s, made, tube = c.tube()](reply& r) {
    if (r.what != answer::done) refuse_reply(r);
    ordered_json j = json_of(tube, s);
    if (made) j["secret"] = push::secret_text(s.secrets.front());
    return json_response(j);
  });
}

operation show_push(call& c) {
  command cmd(verb::show_push);
  cmd.tube = c.tube();
  return ask(std::move(cmd), [tube = c.tube()](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    return json_response(json_of(tube, *std::get<shared_push>(*r.shown)));
  });
}

operation clear_push(call& c) {
  command cmd(verb::clear_push);
  cmd.tube = c.tube();
  return ask(std::move(cmd), [tube = c.tube()](reply& r) {
    if (r.what != answer::done) refuse_reply(r);
    ordered_json j;
    j["tube"] = tube;
    j["outcome"] = "cleared";
    return json_response(j);
  });
}

}  // namespace verge::server::web
