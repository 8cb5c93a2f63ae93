// SPDX-License-Identifier: Apache-2.0

// The inspector: a small server on a runtime of its own.

#include <verge/inspect.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <inspect/history.h>
#include <inspect/page.h>
#include <inspect/report.h>
#include <inspect/request.h>
#include <verge/dump.h>
#include <verge/metrics.h>
#include <verge/net.h>
#include <verge/task.h>
#include <verge/time.h>
#include <verge/trace.h>

namespace verge {

namespace {

using namespace std::chrono_literals;
using detail::inspect_request;

constexpr std::size_t shortest_token = 16;
constexpr unsigned most_connections = 32;
constexpr unsigned longest_trace = 30;
constexpr auto patience = 10s;

bool is_loopback(const endpoint& e) {
  if (e.kind() == endpoint::family::ipv4) {
    const auto* a = reinterpret_cast<const sockaddr_in*>(e.address());
    return ntohl(a->sin_addr.s_addr) >> 24 == 127;
  }
  if (e.kind() == endpoint::family::ipv6) {
    const auto* a = reinterpret_cast<const sockaddr_in6*>(e.address());
    return IN6_IS_ADDR_LOOPBACK(&a->sin6_addr) != 0;
  }
  return false;
}

inspector_options checked(inspector_options options) {
  const bool local = is_loopback(options.at);
  if (!options.token.empty() && options.token.size() < shortest_token) {
    throw std::invalid_argument("verge: the token of an inspector has 16 characters or more");
  }
  for (const char c : options.token) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (!plain) {
      throw std::invalid_argument(
          "verge: the token of an inspector consists of letters, digits and -_.~");
    }
  }
  if (!local && options.token.empty()) {
    throw std::invalid_argument(
        "verge: an inspector at " + options.at.to_string() +
        " can be reached by others: give it a token, or a loopback address");
  }
  return options;
}

struct response {
  int status{200};
  std::string type{"text/plain; charset=utf-8"};
  std::string body;
  std::string more{};  ///< header lines
};

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Bad Request";
  }
}

response refusal(int status, std::string text, std::string more = {}) {
  return {.status = status, .body = std::move(text) + "\n", .more = std::move(more)};
}

std::string serialized(const response& r) {
  std::string head = "HTTP/1.1 " + std::to_string(r.status) + ' ' + reason_of(r.status);
  head += "\r\nContent-Type: ";
  head += r.type;
  head += "\r\nContent-Length: ";
  head += std::to_string(r.body.size());
  head +=
      "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
      "\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n";
  return head + r.more + "\r\n" + r.body;
}

/// The page with a nonce, so that no other script or style runs in it.
response page_response() {
  std::random_device random;
  char nonce[33];
  std::snprintf(nonce, sizeof nonce, "%08x%08x%08x%08x", random(), random(), random(), random());
  constexpr std::string_view place = "@nonce@";
  std::string text(detail::inspect_page());
  for (auto at = text.find(place); at != std::string::npos; at = text.find(place, at)) {
    text.replace(at, place.size(), nonce);
  }
  std::string policy =
      "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; ";
  policy += "base-uri 'none'; form-action 'none'; script-src 'nonce-";
  policy += nonce;
  policy += "'; style-src 'nonce-";
  policy += nonce;
  policy += "'\r\n";
  return {.type = "text/html; charset=utf-8", .body = std::move(text), .more = std::move(policy)};
}

/// The whole text as a number of that many digits at most.
template <class T>
bool read_number(std::string_view text, T& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

class inspector::implementation {
 public:
  implementation(runtime& rt, inspector_options options)
      : watched_(rt),
        token_(std::move(options.token)),
        report_(rt),
        own_({.processors = 1, .name = "verge-i", .stall_after = 0ns}) {
    // A descriptor belongs to the runtime on which it is made.
    own_.run([&] { listener_ = tcp_listener::listen(options.at).or_throw(); });
    at_ = listener_.local().or_throw();
    static_cast<detail::live_scheduler&>(detail::scheduler_of(rt)).stalls().capture();
    own_.spawn(keep_history(*this)).detach();
    own_.spawn(serve(*this)).detach();
  }
  ~implementation() { listener_.close(); }
  implementation(const implementation&) = delete;
  implementation& operator=(const implementation&) = delete;

  endpoint at() const { return at_; }
  std::string url() const {
    std::string text = "http://" + at_.to_string() + "/";
    if (!token_.empty()) text += "?token=" + token_;
    return text;
  }

 private:
  static task<> keep_history(implementation& self) {
    for (;;) {
      const std::chrono::duration<double> now = clock::now().time_since_epoch();
      self.past_.add(self.watched_.stats(), now.count());
      co_await sleep(1s, {.slack = 20ms});
    }
  }

  static task<> serve(implementation& self) {
    for (;;) {
      auto accepted = co_await self.listener_.accept();
      if (accepted.error == net_errc::closed) co_return;
      if (accepted.error) {
        co_await sleep(100ms);
      } else {
        self.own_.spawn(answer(self, std::move(*accepted))).detach();
      }
    }
  }

  static task<> answer(implementation& self, tcp_conn conn) {
    struct counted {
      std::atomic<unsigned>& n;
      ~counted() { --n; }
    };
    const bool room = ++self.connections_ <= most_connections;
    const counted one{self.connections_};
    conn.set_deadline(clock::now() + patience);
    std::string head;
    std::array<char, 2048> bytes;
    while (head.find("\r\n\r\n") == std::string::npos && head.size() <= detail::longest_request) {
      auto got = co_await conn.read_some(bytes);
      if (got.error) co_return;
      head.append(bytes.data(), got.bytes);
    }
    response r;
    if (!room) {
      r = refusal(503, "too many connections");
    } else if (head.size() > detail::longest_request) {
      r = refusal(431, "the request is too long");
    } else {
      r = co_await respond(self, head);
    }
    conn.set_deadline(clock::now() + patience);
    const std::string text = serialized(r);
    auto written = co_await conn.write_all(text);
    if (written.error) co_return;
    conn.shutdown_write();
    // The rest of what was sent is read, or the answer might not arrive.
    for (int i = 0; i < 16; ++i) {
      auto got = co_await conn.read_some(bytes);
      if (got.error) co_return;
    }
  }

  static task<response> respond(implementation& self, std::string_view head) {
    const detail::parsed_request parsed = detail::parse_inspect_request(head);
    const inspect_request& request = parsed.request;
    if (parsed.status == 405) {
      co_return refusal(405, "only GET is known here", "Allow: GET\r\n");
    }
    if (parsed.status != 200) co_return refusal(parsed.status, reason_of(parsed.status));
    if (!self.token_.empty()) {
      const std::string_view given = !request.authorization.empty()
                                         ? std::string_view(request.authorization)
                                         : detail::query_value(request.query, "token").value_or("");
      if (!detail::same_token(given, self.token_)) {
        co_return refusal(401, "a token is needed: ?token=TOKEN, or Authorization: Bearer TOKEN",
                          "WWW-Authenticate: Bearer\r\n");
      }
    } else if (!detail::is_loopback_name(request.host)) {
      co_return refusal(403, "ask for 127.0.0.1 or localhost: this has no token");
    }
    if (request.path == "/trace") {
      response r = co_await record(self, request);
      co_return r;
    }
    co_return self.at_once(request);
  }

  response at_once(const inspect_request& request) {
    if (request.path == "/") return page_response();
    if (request.path == "/stats.json") {
      std::uint64_t since = 0;
      if (const auto text = detail::query_value(request.query, "since");
          text && !read_number(*text, since)) {
        return refusal(400, "since is the number of a second");
      }
      return {.type = "application/json", .body = report_.write(past_, since)};
    }
    std::ostringstream text;
    if (request.path == "/metrics") {
      write_prometheus(text, watched_.stats());
      return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = text.str()};
    }
    if (request.path == "/dump") {
      write_dump(text, watched_);
      return {.body = text.str()};
    }
    return refusal(404, "there are /, /metrics, /stats.json, /trace?seconds=2 and /dump");
  }

  static task<response> record(implementation& self, const inspect_request& request) {
    unsigned seconds = 2;
    const auto text = detail::query_value(request.query, "seconds");
    if ((text && !read_number(*text, seconds)) || seconds < 1 || seconds > longest_trace) {
      co_return refusal(400, "seconds is a number from 1 to 30");
    }
    if (self.tracing_.exchange(true)) co_return refusal(409, "a trace is being recorded");
    struct ends {
      std::atomic<bool>& it;
      ~ends() { it = false; }
    };
    const ends at_end{self.tracing_};
    std::unique_ptr<trace> recording;
    try {
      recording = std::make_unique<trace>(self.watched_);
    } catch (const std::logic_error&) {
      // The program records one itself.
    }
    if (recording == nullptr) co_return refusal(409, "a trace is being recorded");
    co_await sleep(std::chrono::seconds(seconds));
    recording->stop();
    std::ostringstream out;
    recording->write(out);
    co_return response{.type = "application/json",
                       .body = out.str(),
                       .more = "Content-Disposition: attachment; filename=\"trace.json\"\r\n"};
  }

  runtime& watched_;
  const std::string token_;
  detail::inspect_report report_;
  detail::history past_;
  std::atomic<unsigned> connections_{0};
  std::atomic<bool> tracing_{false};
  endpoint at_;
  // Its tasks use the rest: destroyed first.
  tcp_listener listener_;
  runtime own_;
};

inspector::inspector(runtime& rt, inspector_options options)
    : it_(std::make_unique<implementation>(rt, checked(std::move(options)))) {}
inspector::~inspector() = default;
endpoint inspector::at() const { return it_->at(); }
std::string inspector::url() const { return it_->url(); }

}  // namespace verge
