// SPDX-License-Identifier: Apache-2.0

#include "task_client.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace tasks {

namespace {

/// Rounded up, so that nothing is early.
std::string milliseconds(std::chrono::nanoseconds d) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(d).count();
  return std::to_string(std::max<decltype(ms)>(ms, 0));
}

std::string seconds(std::chrono::nanoseconds d) {
  const auto s = std::chrono::ceil<std::chrono::seconds>(d).count();
  return std::to_string(std::clamp<decltype(s)>(s, 0, 2'147'483'647));
}

std::uint64_t number(std::string_view text) {
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::runtime_error("the task server's reply is not understood: '" + std::string(text) +
                             "' is no number");
  }
  return n;
}

/// The number after the word, of "INSERTED 17".
std::uint64_t last_number(std::string_view reply) {
  return number(reply.substr(reply.rfind(' ') + 1));
}

const char* name_of(if_exists m) {
  switch (m) {
    case if_exists::replace:
      return "replace";
    case if_exists::refuse:
      return "refuse";
    case if_exists::keep:
      break;
  }
  return "keep";
}

class plain_transport final : public transport {
 public:
  explicit plain_transport(verge::tcp_conn conn) noexcept : conn_(std::move(conn)) {}
  verge::task<> write(std::string_view bytes) override {
    const auto sent = co_await conn_.write_all(bytes);
    static_cast<void>(sent.or_throw());
  }
  verge::task<> read(std::string& to) override {
    std::array<char, 16'384> got;
    const auto result = co_await conn_.read_some(got);
    to.append(got.data(), result.or_throw());
  }

 private:
  verge::tcp_conn conn_;
};

}  // namespace

verge::task<client> client::connect(verge::endpoint to, std::string token) {
  auto connected = co_await verge::tcp_conn::connect(to);
  auto plain = std::make_unique<plain_transport>(std::move(connected).or_throw());
  co_return co_await begin(std::move(plain), std::move(token));
}

verge::task<client> client::begin(std::unique_ptr<transport> conn, std::string token) {
  client c(std::move(conn));
  if (!token.empty()) {
    const std::string said = co_await c.ask("auth " + token + "\r\n");
    if (said != "DONE") throw refused(said);
  }
  co_return c;
}

verge::task<> client::more() { co_await conn_->read(in_); }

verge::task<std::string> client::line() {
  std::size_t end = 0;
  while ((end = in_.find("\r\n")) == std::string::npos) co_await more();
  std::string found = in_.substr(0, end);
  in_.erase(0, end + 2);
  co_return found;
}

verge::task<std::string> client::bytes(std::size_t n) {
  while (in_.size() < n + 2) co_await more();
  std::string found = in_.substr(0, n);
  in_.erase(0, n + 2);
  co_return found;
}

verge::task<std::string> client::ask(std::string request) {
  co_await conn_->write(request);
  std::string said = co_await line();
  co_return said;
}

verge::task<> client::use(std::string tube) {
  const std::string said = co_await ask("use " + tube + "\r\n");
  if (!said.starts_with("USING ")) throw refused(said);
}

verge::task<> client::watch(std::string tube) {
  const std::string said = co_await ask("watch " + tube + "\r\n");
  if (!said.starts_with("WATCHING ")) throw refused(said);
  if (!std::exchange(watches_default_, false) || tube == "default") co_return;
  const std::string ignored = co_await ask("ignore default\r\n");
  if (!ignored.starts_with("WATCHING ")) throw refused(ignored);
}

verge::task<put_result> client::put(std::string body, put_options o) {
  std::string request = "put-ms ";
  if (!o.key.empty()) {
    request = "put-key ";
    request.append(o.key).append(" ").append(name_of(o.mode)).append(" ");
  }
  request.append(std::to_string(o.priority)).append(" ").append(milliseconds(o.delay));
  request.append(" ").append(milliseconds(o.ttr)).append(" ").append(std::to_string(body.size()));
  if (o.max_attempts != 0) request.append(" attempts=").append(std::to_string(o.max_attempts));
  if (o.backoff.count() > 0) request.append(" backoff=").append(milliseconds(o.backoff));
  if (!o.dead_letter.empty()) request.append(" dead=").append(o.dead_letter);
  request.append("\r\n").append(body).append("\r\n");
  const std::string said = co_await ask(std::move(request));
  using kind = put_result::kind;
  if (said == "TAKEN") co_return put_result{kind::taken, 0};
  constexpr std::array words{
      std::pair{std::string_view("INSERTED "), kind::inserted},
      std::pair{std::string_view("KEPT "), kind::kept},
      std::pair{std::string_view("REPLACED "), kind::replaced},
      std::pair{std::string_view("EXISTS "), kind::exists},
  };
  for (const auto& [word, what] : words) {
    if (said.starts_with(word)) co_return put_result{what, last_number(said)};
  }
  throw refused(said);
}

verge::task<cancelled> client::cancel(std::string key) {
  const std::string said = co_await ask("cancel " + key + "\r\n");
  if (said == "CANCELLED") co_return cancelled::yes;
  if (said == "TAKEN") co_return cancelled::taken;
  if (said == "NOT_FOUND") co_return cancelled::not_found;
  throw refused(said);
}

verge::task<cancelled> client::reschedule(std::string key, std::chrono::nanoseconds delay) {
  std::string request = "reschedule ";
  request.append(key).append(" ").append(milliseconds(delay)).append("\r\n");
  const std::string said = co_await ask(std::move(request));
  if (said.starts_with("RESCHEDULED ")) co_return cancelled::yes;
  if (said == "TAKEN") co_return cancelled::taken;
  if (said == "NOT_FOUND") co_return cancelled::not_found;
  throw refused(said);
}

verge::task<std::optional<reserved>> client::reserve(std::chrono::nanoseconds wait) {
  const std::string said = co_await ask("reserve-with-timeout " + seconds(wait) + "\r\n");
  if (said == "TIMED_OUT" || said == "DEADLINE_SOON") co_return std::nullopt;
  constexpr std::string_view word = "RESERVED ";
  if (!said.starts_with(word)) throw refused(said);
  const std::string_view numbers = std::string_view(said).substr(word.size());
  const std::size_t space = numbers.find(' ');
  if (space == numbers.npos) throw refused(said);
  reserved r;
  r.id = number(numbers.substr(0, space));
  r.body = co_await bytes(number(numbers.substr(space + 1)));
  co_return r;
}

verge::task<bool> client::on_lease(std::string request, std::string_view good) {
  const std::string said = co_await ask(std::move(request));
  if (said == good) co_return true;
  if (said == "NOT_FOUND") co_return false;
  throw refused(said);
}

verge::task<bool> client::ack(std::uint64_t id) {
  co_return co_await on_lease("delete " + std::to_string(id) + "\r\n", "DELETED");
}

verge::task<bool> client::release(std::uint64_t id, std::chrono::nanoseconds delay,
                                  std::uint32_t priority) {
  std::string request = "release ";
  request.append(std::to_string(id)).append(" ").append(std::to_string(priority)).append(" ");
  request.append(seconds(delay)).append("\r\n");
  co_return co_await on_lease(std::move(request), "RELEASED");
}

verge::task<bool> client::bury(std::uint64_t id, std::uint32_t priority) {
  std::string request = "bury ";
  request.append(std::to_string(id)).append(" ").append(std::to_string(priority)).append("\r\n");
  co_return co_await on_lease(std::move(request), "BURIED");
}

verge::task<bool> client::touch(std::uint64_t id) {
  co_return co_await on_lease("touch " + std::to_string(id) + "\r\n", "TOUCHED");
}

}  // namespace tasks
