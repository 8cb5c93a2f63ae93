// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <verge/endpoint.h>
#include <verge/net.h>
#include <verge/task.h>

/// A client of `verge serve` for coroutines, on verge.
///
///   verge::task<> cancel_unpaid_orders(verge::endpoint server) {
///     auto c = co_await tasks::client::connect(server);
///     co_await c.use("orders");
///     const tasks::put_options later{.key = "order-7", .delay = 30min};
///     co_await c.put("cancel order 7", later);
///     if (co_await c.cancel("order-7") == tasks::cancelled::yes) co_return;   // no worker gets it
///     ...
///   }
///
///   co_await c.watch("orders");
///   while (auto t = co_await c.reserve(30s)) {
///     work_on(t->body);
///     co_await c.ack(t->id);
///   }
///
/// It speaks beanstalk's protocol with verge's extensions. What put() has returned for is on disk.
/// One operation at a time: a second connection is a second client. What is reserved belongs to the
/// connection: it is handed out again when the connection ends. Times are rounded up to
/// milliseconds, the wait of a reserve to seconds.
///
/// With TLS, if it was built with OpenSSL (the server is then to be named as in its certificate):
///
///   const tasks::tls_settings secure{.server = "tasks.example", .trust = "ca.pem"};
///   auto c = co_await tasks::client::connect(server, secure, token);
///
/// Errors of the connection are std::system_error; a refusal of the server is `refused`, with its
/// word. After either of the first kind the client is of no more use. verge::timeout() and contexts
/// limit the whole of an operation from outside; the client is of no more use after that either.
///
/// Give options by name, as above: g++ 12 destroys braces in an expression with co_await twice.
namespace tasks {

/// The server has answered with something else than success: "DENIED", "JOB_TOO_BIG", "DRAINING".
class refused : public std::runtime_error {
 public:
  explicit refused(const std::string& word)
      : std::runtime_error("the task server says " + word), word_(word) {}
  const std::string& word() const noexcept { return word_; }

 private:
  std::string word_;
};

enum class if_exists : std::uint8_t { keep, replace, refuse };

struct put_options {
  std::string key{};  ///< names the task within its tube; may be empty
  if_exists mode{if_exists::keep};
  std::uint32_t priority{1024};
  std::chrono::nanoseconds delay{0};
  std::chrono::nanoseconds ttr{std::chrono::seconds(60)};
  std::uint32_t max_attempts{0};  ///< 0: no limit
  std::chrono::nanoseconds backoff{0};
  std::string dead_letter{};
};

/// What became of a put.
struct put_result {
  enum class kind : std::uint8_t { inserted, kept, replaced, exists, taken };
  kind what{kind::inserted};
  std::uint64_t id{0};  ///< 0 if it is taken
};

/// What became of a cancel or a reschedule: the same three outcomes as a timer's stop.
enum class cancelled : std::uint8_t { yes, taken, not_found };

struct reserved {
  std::uint64_t id{0};
  std::string body;
};

struct tls_settings {
  std::string server{};  ///< the name or address that the certificate has to be for
  std::string trust{};   ///< a file of certificates in PEM; empty: those of the system
};

/// Where the bytes go: TCP, or TLS on it. Throws std::system_error, and std::runtime_error if a
/// certificate is not trusted.
class transport {
 public:
  transport() = default;
  transport(const transport&) = delete;
  transport& operator=(const transport&) = delete;
  virtual ~transport() = default;
  virtual verge::task<> write(std::string_view bytes) = 0;
  /// Appends what has come, at least one byte.
  virtual verge::task<> read(std::string& to) = 0;
};

class client {
 public:
  client(client&&) noexcept = default;
  client& operator=(client&&) noexcept = default;

  /// With a token, if the server asks for one.
  static verge::task<client> connect(verge::endpoint to, std::string token = {});
  /// Over TLS, 1.2 or newer.
  static verge::task<client> connect(verge::endpoint to, tls_settings secure,
                                     std::string token = {});

  /// The tube that put, cancel and reschedule are about.
  verge::task<> use(std::string tube);
  /// Reserve takes from this tube as well; the first one takes the place of "default".
  verge::task<> watch(std::string tube);

  verge::task<put_result> put(std::string body, put_options options);
  verge::task<put_result> put(std::string body) { return put(std::move(body), put_options()); }
  verge::task<cancelled> cancel(std::string key);
  verge::task<cancelled> reschedule(std::string key, std::chrono::nanoseconds delay);

  /// The next task, or nothing if none has come in that time, or if a task that this client holds
  /// is in the last second of its time to run.
  verge::task<std::optional<reserved>> reserve(std::chrono::nanoseconds wait);
  /// These return false if this client does not hold the task any more.
  verge::task<bool> ack(std::uint64_t id);
  verge::task<bool> release(std::uint64_t id, std::chrono::nanoseconds delay = {},
                            std::uint32_t priority = 1024);
  verge::task<bool> bury(std::uint64_t id, std::uint32_t priority = 1024);
  verge::task<bool> touch(std::uint64_t id);

 private:
  explicit client(std::unique_ptr<transport> conn) noexcept : conn_(std::move(conn)) {}

  static verge::task<client> begin(std::unique_ptr<transport> conn, std::string token);
  verge::task<std::string> ask(std::string request);
  verge::task<std::string> line();
  verge::task<std::string> bytes(std::size_t n);
  verge::task<> more();
  verge::task<bool> on_lease(std::string request, std::string_view good);

  std::unique_ptr<transport> conn_;
  std::string in_;
  bool watches_default_{true};
};

}  // namespace tasks
