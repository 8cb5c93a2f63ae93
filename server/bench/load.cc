// SPDX-License-Identifier: Apache-2.0

#include "load.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace verge::server::bench {

namespace {

using clock = std::chrono::steady_clock;

int connect_to(std::uint16_t port) {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) throw std::system_error(errno, std::generic_category(), "socket");
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(s, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) {
    const int error = errno;
    ::close(s);
    throw std::system_error(error, std::generic_category(),
                            "connecting to port " + std::to_string(port));
  }
  const int one = 1;
  ::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return s;
}

void send_all(int s, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(s, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) throw std::system_error(errno, std::generic_category(), "send");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

struct socket_closer {
  int s{-1};
  socket_closer() = default;
  explicit socket_closer(int n) : s(n) {}
  socket_closer(socket_closer&& o) noexcept : s(std::exchange(o.s, -1)) {}
  socket_closer& operator=(socket_closer&& o) noexcept {
    std::swap(s, o.s);
    return *this;
  }
  ~socket_closer() {
    if (s >= 0) ::close(s);
  }
};

struct talk {
  socket_closer socket;
  std::unique_ptr<conversation> what;
  std::string input;
  clock::time_point begun;
};

}  // namespace

load_figures figures_of(std::uint64_t operations, double seconds, std::vector<float> times_us) {
  std::sort(times_us.begin(), times_us.end());
  const auto percentile = [&](double p) {
    if (times_us.empty()) return 0.0;
    const auto at = static_cast<std::size_t>(p * static_cast<double>(times_us.size() - 1));
    return static_cast<double>(times_us[at]);
  };
  return {.per_second = static_cast<double>(operations) / seconds,
          .p50_us = percentile(0.5),
          .p99_us = percentile(0.99),
          .operations = operations};
}

load_figures play(std::uint16_t port, int connections, double seconds,
                  const conversation_maker& make) {
  return play(std::vector<std::uint16_t>{port}, connections, seconds, make);
}

load_figures play(const std::vector<std::uint16_t>& ports, int connections, double seconds,
                  const conversation_maker& make) {
  const socket_closer poll(::epoll_create1(EPOLL_CLOEXEC));
  std::vector<talk> talks(static_cast<std::size_t>(connections));
  for (std::size_t i = 0; i < talks.size(); ++i) {
    talk& t = talks[i];
    t.socket = socket_closer(connect_to(ports[i % ports.size()]));
    t.what = make(static_cast<int>(i));
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.u64 = i;
    if (::epoll_ctl(poll.s, EPOLL_CTL_ADD, t.socket.s, &e) != 0) {
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
    }
  }
  const auto begin = clock::now();
  const auto end =
      begin + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
  std::size_t busy = talks.size();
  for (talk& t : talks) {
    t.begun = begin;
    const std::string_view first = t.what->request();
    if (first.empty()) {
      --busy;
    } else {
      send_all(t.socket.s, first);
    }
  }
  std::uint64_t operations = 0;
  std::vector<float> times;
  times.reserve(1U << 20);
  std::vector<epoll_event> events(256);
  std::vector<char> bytes(1U << 18);
  auto now = begin;
  while (now < end && busy != 0) {
    const int n = ::epoll_wait(poll.s, events.data(), static_cast<int>(events.size()), 100);
    now = clock::now();
    for (int i = 0; i < n; ++i) {
      talk& t = talks[events[static_cast<std::size_t>(i)].data.u64];
      const ssize_t got = ::recv(t.socket.s, bytes.data(), bytes.size(), 0);
      if (got <= 0) throw std::runtime_error("the server has closed a connection");
      t.input.append(bytes.data(), static_cast<std::size_t>(got));
      if (!t.what->reply(t.input)) continue;
      if (t.what->operation_done(t.input)) {
        ++operations;
        const auto answered = clock::now();
        times.push_back(std::chrono::duration<float, std::micro>(answered - t.begun).count());
        t.begun = answered;
      }
      t.input.clear();
      const std::string_view next = t.what->request();
      if (next.empty()) {
        --busy;
      } else {
        send_all(t.socket.s, next);
      }
    }
  }
  const std::chrono::duration<double> took = clock::now() - begin;
  return figures_of(operations, took.count(), std::move(times));
}

std::string ask(std::uint16_t port, std::string_view request, std::string_view until) {
  const socket_closer s(connect_to(port));
  send_all(s.s, request);
  std::string reply;
  char bytes[65536];
  while (reply.find(until) == std::string::npos) {
    const ssize_t n = ::recv(s.s, bytes, sizeof bytes, 0);
    if (n <= 0) break;
    reply.append(bytes, static_cast<std::size_t>(n));
  }
  return reply;
}

namespace {

bool ends_line(std::string_view s) { return s.size() >= 2 && s.substr(s.size() - 2) == "\r\n"; }

void expect(std::string_view reply, std::string_view begin) {
  if (reply.substr(0, begin.size()) == begin) return;
  throw std::runtime_error("expected " + std::string(begin) + ", and the server said " +
                           std::string(reply.substr(0, 100)));
}

class put_conversation final : public conversation {
 public:
  put_conversation(std::size_t body, int delay)
      : request_("put 1024 " + std::to_string(delay) + " 60 " + std::to_string(body) + "\r\n" +
                 std::string(body, 'b') + "\r\n") {}
  std::string_view request() override { return request_; }
  bool reply(std::string_view r) override { return ends_line(r); }
  bool operation_done(std::string_view r) override {
    expect(r, "INSERTED ");
    return true;
  }

 private:
  std::string request_;
};

class fill_conversation final : public conversation {
 public:
  fill_conversation(std::uint64_t count, std::size_t body, int delay, int at_once)
      : left_(count), body_(body), delay_(delay), at_once_(static_cast<std::uint64_t>(at_once)) {}
  std::string_view request() override {
    asked_ = std::min(left_, at_once_);
    left_ -= asked_;
    request_.clear();
    for (std::uint64_t i = 0; i < asked_; ++i) {
      // Bodies that do not compress: no two are alike.
      std::string body(body_, ' ');
      for (char& c : body) {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        c = static_cast<char>('!' + state_ % 90);
      }
      request_ += "put 1024 " +
                  std::to_string(delay_ == 0 ? 0 : delay_ + static_cast<int>(state_ % 3600)) +
                  " 60 " + std::to_string(body_) + "\r\n" + body + "\r\n";
    }
    return request_;
  }
  bool reply(std::string_view r) override {
    return static_cast<std::uint64_t>(std::count(r.begin(), r.end(), '\n')) >= asked_;
  }
  bool operation_done(std::string_view r) override {
    expect(r, "INSERTED ");
    return true;
  }

 private:
  std::uint64_t left_;
  std::size_t body_;
  int delay_;
  std::uint64_t at_once_;
  std::uint64_t asked_{0};
  std::uint64_t state_{88172645463325252U};
  std::string request_;
};

class reserve_conversation final : public conversation {
 public:
  std::string_view request() override { return deletes_ ? delete_ : reserve_; }
  bool reply(std::string_view r) override {
    if (deletes_ || r.substr(0, 9) != "RESERVED ") return ends_line(r);
    // RESERVED id bytes\r\nbody\r\n
    const std::size_t line = r.find("\r\n");
    if (line == std::string_view::npos) return false;
    const std::size_t space = r.find(' ', 9);
    std::size_t size = 0;
    std::from_chars(r.data() + space + 1, r.data() + line, size);
    return r.size() >= line + 2 + size + 2;
  }
  bool operation_done(std::string_view r) override {
    if (deletes_) {
      expect(r, "DELETED");
      deletes_ = false;
      return true;
    }
    if (r.substr(0, 9) == "TIMED_OUT") return false;
    expect(r, "RESERVED ");
    delete_ = "delete " + std::string(r.substr(9, r.find(' ', 9) - 9)) + "\r\n";
    deletes_ = true;
    return false;
  }

 private:
  std::string reserve_{"reserve-with-timeout 1\r\n"};
  std::string delete_;
  bool deletes_{false};
};

class cancel_conversation final : public conversation {
 public:
  cancel_conversation(std::size_t body, int number) : body_(body, 'b'), number_(number) {}
  std::string_view request() override {
    if (cancels_) {
      request_ = "cancel order-" + std::to_string(number_) + "-" + std::to_string(n_) + "\r\n";
    } else {
      ++n_;
      request_ = "put-key order-" + std::to_string(number_) + "-" + std::to_string(n_) +
                 " refuse 1024 1800000 60000 " + std::to_string(body_.size()) + "\r\n" + body_ +
                 "\r\n";
    }
    return request_;
  }
  bool reply(std::string_view r) override { return ends_line(r); }
  bool operation_done(std::string_view r) override {
    expect(r, cancels_ ? "CANCELLED" : "INSERTED ");
    cancels_ = !cancels_;
    return !cancels_;
  }

 private:
  std::string body_;
  int number_;
  std::uint64_t n_{0};
  bool cancels_{false};
  std::string request_;
};

class tube_conversation final : public conversation {
 public:
  tube_conversation(const std::string& tube, std::unique_ptr<conversation> what)
      : choose_("use " + tube + "\r\nwatch " + tube + "\r\nignore default\r\n"),
        what_(std::move(what)) {}
  std::string_view request() override { return chosen_ ? what_->request() : choose_; }
  bool reply(std::string_view r) override {
    return chosen_ ? what_->reply(r) : std::count(r.begin(), r.end(), '\n') == 3;
  }
  bool operation_done(std::string_view r) override {
    if (chosen_) return what_->operation_done(r);
    expect(r, "USING ");
    chosen_ = true;
    return false;
  }

 private:
  std::string choose_;
  std::unique_ptr<conversation> what_;
  bool chosen_{false};
};

class delete_conversation final : public conversation {
 public:
  delete_conversation(std::uint64_t count, std::size_t body, int at_once)
      : left_(count), body_(body, 'b'), at_once_(static_cast<std::uint64_t>(at_once)) {}
  std::string_view request() override {
    if (deletes_.empty()) {
      asked_ = std::min(left_, at_once_);
      left_ -= asked_;
      request_.clear();
      for (std::uint64_t i = 0; i < asked_; ++i) {
        request_ += fmt::format("put 1024 0 60 {}\r\n{}\r\n", body_.size(), body_);
      }
    } else {
      request_ = deletes_;
    }
    return request_;
  }
  bool reply(std::string_view r) override {
    return static_cast<std::uint64_t>(std::count(r.begin(), r.end(), '\n')) >= asked_;
  }
  bool operation_done(std::string_view r) override {
    if (!deletes_.empty()) {
      expect(r, "DELETED");
      deletes_.clear();
      return true;
    }
    while (!r.empty()) {
      expect(r, "INSERTED ");
      const std::size_t line = r.find("\r\n");
      deletes_ += "delete " + std::string(r.substr(9, line - 9)) + "\r\n";
      r.remove_prefix(line + 2);
    }
    return false;
  }

 private:
  std::uint64_t left_;
  std::string body_;
  std::uint64_t at_once_;
  std::uint64_t asked_{0};
  std::string request_;
  std::string deletes_;
};

/// A command as Redis wants it.
std::string resp(const std::vector<std::string>& words) {
  std::string out = fmt::format("*{}\r\n", words.size());
  for (const std::string& w : words) out += fmt::format("${}\r\n{}\r\n", w.size(), w);
  return out;
}

/// A simple reply, a number, or a bulk string.
bool redis_complete(std::string_view r) {
  const std::size_t line = r.find("\r\n");
  if (line == std::string_view::npos) return false;
  if (r[0] != '$') return true;
  long size = 0;
  std::from_chars(r.data() + 1, r.data() + line, size);
  return size < 0 || r.size() >= line + 2 + static_cast<std::size_t>(size) + 2;
}

class redis_put_conversation final : public conversation {
 public:
  redis_put_conversation(std::size_t body, const std::string& sha)
      : request_(resp({"EVALSHA", sha, "0", "0", std::string(body, 'b')})) {}
  std::string_view request() override { return request_; }
  bool reply(std::string_view r) override { return redis_complete(r); }
  bool operation_done(std::string_view r) override {
    expect(r, ":");
    return true;
  }

 private:
  std::string request_;
};

class redis_reserve_conversation final : public conversation {
 public:
  redis_reserve_conversation(const std::string& reserve_sha, std::string delete_sha)
      : reserve_(resp({"EVALSHA", reserve_sha, "0", "99999999999"})),
        delete_sha_(std::move(delete_sha)) {}
  std::string_view request() override { return deletes_ ? delete_ : reserve_; }
  bool reply(std::string_view r) override { return redis_complete(r); }
  bool operation_done(std::string_view r) override {
    if (deletes_) {
      expect(r, ":1");
      deletes_ = false;
      return true;
    }
    if (r.substr(0, 3) == "$-1") return false;
    expect(r, "$");
    const std::size_t line = r.find("\r\n");
    const std::string_view text = r.substr(line + 2);
    delete_ = resp({"EVALSHA", delete_sha_, "0", std::string(text.substr(0, text.find(' ')))});
    deletes_ = true;
    return false;
  }

 private:
  std::string reserve_;
  std::string delete_sha_;
  std::string delete_;
  bool deletes_{false};
};

}  // namespace

std::unique_ptr<conversation> beanstalk_puts(std::size_t body, int delay_seconds) {
  return std::make_unique<put_conversation>(body, delay_seconds);
}
std::unique_ptr<conversation> beanstalk_reserves() {
  return std::make_unique<reserve_conversation>();
}
std::unique_ptr<conversation> beanstalk_fill(std::uint64_t count, std::size_t body,
                                             int delay_seconds, int at_once) {
  return std::make_unique<fill_conversation>(count, body, delay_seconds, at_once);
}
std::unique_ptr<conversation> in_tube(const std::string& tube, std::unique_ptr<conversation> what) {
  return std::make_unique<tube_conversation>(tube, std::move(what));
}
std::unique_ptr<conversation> beanstalk_deletes(std::uint64_t count, std::size_t body,
                                                int at_once) {
  return std::make_unique<delete_conversation>(count, body, at_once);
}
std::unique_ptr<conversation> beanstalk_cancels(std::size_t body, int number) {
  return std::make_unique<cancel_conversation>(body, number);
}

std::vector<std::string> redis_scripts() {
  return {
      "local id = redis.call('INCR', 'id') "
      "redis.call('HSET', 'body', id, ARGV[2]) "
      "redis.call('ZADD', 'due', ARGV[1], id) return id",
      "local found = redis.call('ZRANGEBYSCORE', 'due', '-inf', ARGV[1], 'LIMIT', 0, 1) "
      "if #found == 0 then return false end "
      "redis.call('ZREM', 'due', found[1]) redis.call('ZADD', 'leases', ARGV[1], found[1]) "
      "return found[1] .. ' ' .. redis.call('HGET', 'body', found[1])",
      "redis.call('HDEL', 'body', ARGV[1]) return redis.call('ZREM', 'leases', ARGV[1])"};
}
std::unique_ptr<conversation> redis_puts(std::size_t body, const std::string& sha, int) {
  return std::make_unique<redis_put_conversation>(body, sha);
}
std::unique_ptr<conversation> redis_reserves(const std::string& reserve_sha,
                                             const std::string& delete_sha) {
  return std::make_unique<redis_reserve_conversation>(reserve_sha, delete_sha);
}

}  // namespace verge::server::bench
