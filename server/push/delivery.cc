// SPDX-License-Identifier: Apache-2.0

#include "delivery.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include <verge/select.h>
#include <verge/time.h>
#include <verge/version.h>

#include "../broker/committer.h"
#include "../model/push.h"
#include "../text/coding.h"
#include "http1/response_reader.h"
#include "outbound.h"
#include "signature.h"

namespace verge::server::push {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_addresses = 3;
/// After the head of a response its body is waited for no longer than this.
constexpr auto patience_for_body = 1s;
/// A name that takes longer than this, and is not found then, has a name server that hangs.
constexpr auto patience_for_names = 1s;

std::string_view type_of(const std::string& body) {
  if (nlohmann::json::accept(body)) return "application/json";
  return is_utf8(body) ? "text/plain; charset=utf-8" : "application/octet-stream";
}

std::string head_of(const parcel& p, const url& to) {
  const std::int64_t now = wall_now() / second;
  const std::string id = "task-" + std::to_string(p.id);
  std::string out = "POST ";
  out.append(to.target).append(" HTTP/1.1\r\nHost: ").append(to.authority());
  out.append("\r\nUser-Agent: verge/").append(version());
  out.append("\r\nContent-Type: ").append(type_of(*p.body));
  out.append("\r\nContent-Length: ").append(std::to_string(p.body->size()));
  out.append("\r\nwebhook-id: ").append(id);
  out.append("\r\nwebhook-timestamp: ").append(std::to_string(now));
  out.append("\r\nwebhook-signature: ").append(sign(p.secrets, id, now, *p.body));
  out.append("\r\nverge-tube: ").append(p.tube);
  out.append("\r\nverge-attempt: ").append(std::to_string(p.attempt));
  out.append("\r\nConnection: close\r\n\r\n");
  return out;
}

/// One line of text, whatever the receiver has sent.
std::string cleaned(std::string_view text) {
  std::string out(text.substr(0, longest_answer));
  const bool plain = is_utf8(out);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7f) c = ' ';
    if (byte >= 0x80 && !plain) c = '?';
  }
  return out;
}

receipt failed(std::string_view why) {
  receipt r;
  r.answer = cleaned(why);
  return r;
}

/// What the response means.
receipt judged(const http::response_reader& got) {
  receipt r;
  r.status = got.status();
  r.delivered = r.status >= 200 && r.status < 300;
  r.disable = r.status == 410;
  r.give_up = r.disable;
  std::string text = "HTTP " + std::to_string(r.status);
  if (!got.body().empty()) text.append(": ").append(got.body());
  r.answer = cleaned(text);
  if (const auto after = parse_retry_after(got.header("retry-after"), wall_now())) {
    r.retry_after = *after;
  }
  return r;
}

bool is_redirection(int status) noexcept {
  return status == 301 || status == 302 || status == 307 || status == 308;
}

/// The addresses of the receiver that may be connected to. `hung`: no name server has answered.
verge::task<addresses> find(const post_office& with, url to, clock::time_point deadline,
                            bool& refused, bool& hung) {
  chan<addresses> asked = with.names.resolve(to.host, to.port);
  addresses a;
  const auto begin = clock::now();
  const auto patience = std::clamp<clock::duration>(deadline - begin, 0ns, with.names.patience());
  std::optional<addresses> got;
  static_cast<void>(co_await verge::select(recv(asked, got), recv(verge::after(patience))));
  if (got) {
    a = std::move(*got);
  } else {
    a.why = "the name server does not answer in time";
  }
  hung = a.found.empty() && (!got || clock::now() - begin >= patience_for_names);
  if (a.found.empty()) {
    a.why = "cannot resolve " + to.host + ": " + a.why;
    co_return a;
  }
  const std::string first = a.found.front().to_string();
  std::erase_if(a.found, [&](const endpoint& at) { return !with.may_connect(at); });
  if (a.found.empty()) {
    refused = true;
    a.why = to.host + " is at " + first +
            ", which is not a public address: start the server with --push-private to send there";
  }
  if (a.found.size() > most_addresses) a.found.resize(most_addresses);
  co_return a;
}

/// One request and its response. `got` is without a head if there was none, and `why` says so.
verge::task<std::string> exchange(const post_office& with, const parcel& p, const url& to,
                                  const std::vector<endpoint>& at, clock::time_point deadline,
                                  http::response_reader& got) {
  std::string why;
  for (std::size_t i = 0; i < at.size(); ++i) {
    outbound conn(deadline);
    // An address that does not answer leaves time for the next one.
    const auto left = deadline - clock::now();
    const auto until = i + 1 < at.size() ? clock::now() + left / 2 : deadline;
    why = co_await conn.connect(at[i], until);
    if (!why.empty()) continue;
    if (to.secure) {
      why = co_await conn.secure(with.trust, to.host);
      if (!why.empty()) co_return why;
    }
    std::string request = head_of(p, to);
    request.append(*p.body);
    // A receiver may refuse before it has read everything: its response counts.
    const std::string unsent = co_await conn.write(request);
    bool more = true;
    while (more) {
      std::string bytes;
      more = co_await conn.read(bytes, why);
      const bool had_head = got.has_head();
      if (!bytes.empty() && !got.feed(bytes)) break;
      if (got.has_head() && !had_head) conn.hurry(clock::now() + patience_for_body);
    }
    if (!more) got.finish();
    if (got.has_head()) co_return "";
    if (!unsent.empty()) co_return unsent;
    co_return why.empty() ? "the receiver has sent no response" : why;
  }
  co_return why;
}

/// One hop: a request to one receiver. Nothing if it redirects, to `to`.
verge::task<std::optional<receipt>> visit(const post_office& with, const parcel& p, url& to,
                                          clock::time_point deadline, ending& how) {
  bool refused = false;
  bool hung = false;
  const addresses a = co_await find(with, to, deadline, refused, hung);
  if (a.found.empty()) {
    if (hung) how = ending::hung;
    receipt r = failed(a.why);
    r.refused = refused;
    r.give_up = refused;
    co_return r;
  }
  http::response_reader got;
  const std::string why = co_await exchange(with, p, to, a.found, deadline, got);
  if (!why.empty()) {
    if (clock::now() >= deadline) how = ending::hung;
    co_return failed(why);
  }
  how = ending::answered;
  if (!is_redirection(got.status())) co_return judged(got);
  const auto next = redirected(to, got.header("location"));
  if (!next)
    co_return failed("HTTP " + std::to_string(got.status()) +
                     " to where it cannot be followed: " + got.header("location"));
  to = *next;
  co_return std::nullopt;
}

}  // namespace

verge::task<receipt> deliver(const post_office& with, turnstile& at, parcel p) {
  const clock::time_point deadline = clock::now() + std::chrono::nanoseconds(p.timeout);
  url to = p.to;
  for (int hops = 0; hops <= most_redirections; ++hops) {
    nanoseconds come_back = 0;
    if (!at.enter(to, come_back)) {
      receipt r;
      r.postponed = come_back;
      co_return r;
    }
    ending how = ending::other;
    const auto r = co_await visit(with, p, to, deadline, how);
    at.leave(how);
    if (r) co_return *r;
  }
  co_return failed("too many redirections");
}

std::optional<nanoseconds> parse_retry_after(std::string_view value, wall_time now) {
  std::uint32_t seconds = 0;
  const char* const end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, seconds);
  if (!value.empty() && at == end) {
    if (error == std::errc::result_out_of_range) return longest_retry_after;
    if (error == std::errc()) return std::min(seconds * second, longest_retry_after);
  }
  std::tm parts{};
  const std::string text(value);
  const char* const rest = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  const std::int64_t when = ::timegm(&parts);
  return std::clamp<std::int64_t>(when - now / second, 0, longest_retry_after / second) * second;
}

}  // namespace verge::server::push
