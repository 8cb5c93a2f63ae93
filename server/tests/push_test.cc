// SPDX-License-Identifier: Apache-2.0

// Pushing: the parts that are pure, and a server with receivers.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "model/push.h"
#include "push/addresses.h"
#include "push/delivery.h"
#include "push/hosts.h"
#include "push/places.h"
#include "push/signature.h"
#include "push/url.h"
#include "support/certificate.h"
#include "support/name_server.h"
#include "support/receiver.h"
#include "support/web_fixture.h"
#include "text/coding.h"

namespace {

using namespace verge::server;
using namespace verge::server::push;
using namespace verge::server::test;
using namespace std::chrono_literals;
using json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using verge::endpoint;

// ---- URLs and addresses ------------------------------------------------------------------------

TEST(urls, are_taken_apart) {
  const auto u = parse_url("HTTPS://Example.COM:8443/a/b?c=d");
  ASSERT_TRUE(u);
  EXPECT_TRUE(u->secure);
  EXPECT_EQ(u->host, "example.com");
  EXPECT_EQ(u->port, 8443);
  EXPECT_EQ(u->target, "/a/b?c=d");
  EXPECT_EQ(u->authority(), "example.com:8443");
  EXPECT_EQ(parse_url("http://[::1]:8080")->authority(), "[::1]:8080");
  EXPECT_EQ(parse_url("http://h?x")->target, "/?x");
  EXPECT_EQ(parse_url("https://h/")->text(), "https://h/");
  for (const char* const bad :
       {"", "h", "ftp://h/", "http://", "http:///x", "http://u@h/", "http://h:0/",
        "http://h:65536/", "http://h:/", "http://h:1x/", "http://h/a b", "http://h/#f",
        "http://h\\x", "http://[::1", "http://[h]/", "http://h/\r\nX: y", "http://\xc3\xbc/",
        "javascript:x"}) {
    EXPECT_FALSE(parse_url(bad)) << bad;
  }
  EXPECT_FALSE(parse_url("http://h/" + std::string(longest_url, 'a')));
}

TEST(urls, lead_to_others_but_not_from_tls_to_none) {
  const url from = *parse_url("https://a.example:444/x");
  EXPECT_EQ(redirected(from, "/y?z")->text(), "https://a.example:444/y?z");
  EXPECT_EQ(redirected(from, "//b/y#part")->text(), "https://b/y");
  EXPECT_EQ(redirected(from, "https://b/")->text(), "https://b/");
  EXPECT_FALSE(redirected(from, "http://b/"));
  EXPECT_FALSE(redirected(from, "relative"));
  EXPECT_FALSE(redirected(from, ""));
  EXPECT_TRUE(redirected(*parse_url("http://a/"), "https://b/"));
}

TEST(addresses_of_receivers, are_public_or_not) {
  const auto check = [](const char* text) { return is_public(*endpoint::parse(text)); };
  for (const char* const not_public : {"0.0.0.0:1",
                                       "0.1.2.3:1",
                                       "10.0.0.1:1",
                                       "100.64.0.1:1",
                                       "100.127.255.255:1",
                                       "127.0.0.1:1",
                                       "127.255.255.255:1",
                                       "169.254.169.254:1",
                                       "172.16.0.1:1",
                                       "172.31.255.255:1",
                                       "192.0.0.8:1",
                                       "192.0.2.1:1",
                                       "192.88.99.1:1",
                                       "192.168.1.1:1",
                                       "198.18.0.1:1",
                                       "198.19.255.255:1",
                                       "198.51.100.1:1",
                                       "203.0.113.1:1",
                                       "224.0.0.1:1",
                                       "239.255.255.255:1",
                                       "240.0.0.1:1",
                                       "255.255.255.255:1",
                                       "[::]:1",
                                       "[::1]:1",
                                       "[::ffff:127.0.0.1]:1",
                                       "[::ffff:10.0.0.1]:1",
                                       "[::ffff:169.254.169.254]:1",
                                       "[::7f00:1]:1",
                                       "[64:ff9b::10.0.0.1]:1",
                                       "[64:ff9b:1::1]:1",
                                       "[100::1]:1",
                                       "[2001::1]:1",
                                       "[2001:db8::1]:1",
                                       "[2002:7f00:1::]:1",
                                       "[2002:c0a8:101::1]:1",
                                       "[3fff::1]:1",
                                       "[5f00::1]:1",
                                       "[fc00::1]:1",
                                       "[fd12:3456::1]:1",
                                       "[fe80::1]:1",
                                       "[fec0::1]:1",
                                       "[ff02::1]:1"}) {
    EXPECT_FALSE(check(not_public)) << not_public;
  }
  for (const char* const there :
       {"1.1.1.1:1",          "8.8.8.8:1",           "9.255.255.255:1",
        "11.0.0.0:1",         "100.63.255.255:1",    "100.128.0.0:1",
        "126.255.255.255:1",  "128.0.0.0:1",         "169.253.255.255:1",
        "172.15.255.255:1",   "172.32.0.0:1",        "192.167.255.255:1",
        "192.169.0.0:1",      "198.17.255.255:1",    "198.20.0.0:1",
        "223.255.255.255:1",  "[2606:4700::1111]:1", "[2001:200::1]:1",
        "[2a00:1450::1]:1",   "[::ffff:8.8.8.8]:1",  "[64:ff9b::8.8.8.8]:1",
        "[2002:808:808::1]:1"}) {
    EXPECT_TRUE(check(there)) << there;
  }
  EXPECT_FALSE(is_public(endpoint()));
}

// ---- Signatures --------------------------------------------------------------------------------

/// SHA-256 after FIPS 180-4, from the text of the standard: nothing of it is shared with the
/// server.
std::string sha256(const std::string& text) {
  // The first 32 bits of the fraction of a root: of 64 that a long double has, 35 are needed.
  const auto root_bits = [](std::uint32_t prime, bool cube) {
    const long double root = cube ? std::cbrt(static_cast<long double>(prime))
                                  : std::sqrt(static_cast<long double>(prime));
    return static_cast<std::uint32_t>(std::ldexp(root - std::floor(root), 32));
  };
  std::vector<std::uint32_t> primes;
  for (std::uint32_t n = 2; primes.size() < 64; ++n) {
    bool prime = true;
    for (const std::uint32_t p : primes) prime &= n % p != 0;
    if (prime) primes.push_back(n);
  }
  std::array<std::uint32_t, 8> h{};
  for (std::size_t i = 0; i < 8; ++i) h[i] = root_bits(primes[i], false);
  std::string padded = text + '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded += static_cast<char>((std::uint64_t{text.size()} * 8 >> shift) & 0xff);
  }
  for (std::size_t block = 0; block < padded.size(); block += 64) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t b = 0; b < 4; ++b) {
        w[i] = w[i] << 8 | static_cast<unsigned char>(padded[block + 4 * i + b]);
      }
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto v = h;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
      const std::uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
      const std::uint32_t t1 = v[7] + s1 + choice + root_bits(primes[i], true) + w[i];
      const std::uint32_t s0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
      const std::uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) h[i] += v[i];
  }
  std::string out;
  for (const std::uint32_t n : h) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(n >> shift & 0xff);
  }
  return out;
}

/// RFC 2104.
std::string hmac_sha256(std::string key, const std::string& text) {
  if (key.size() > 64) key = sha256(key);
  key.resize(64, '\0');
  std::string inner = key;
  std::string outer = key;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return sha256(outer + sha256(inner + text));
}

std::string expected_signature(const std::string& secret, const pushed& p) {
  return "v1," + base64(hmac_sha256(
                     *parse_secret(secret),
                     p.header("webhook-id") + "." + p.header("webhook-timestamp") + "." + p.body));
}

TEST(signatures, are_those_of_standard_webhooks) {
  const std::string secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const std::string id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
  const std::string body = R"({"test": 2432232314})";
  const std::string known = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
  EXPECT_EQ(sign({*parse_secret(secret)}, id, 1614265330, body), known);
  pushed p;
  p.headers = {{"webhook-id", id}, {"webhook-timestamp", "1614265330"}};
  p.body = body;
  EXPECT_EQ(expected_signature(secret, p), known) << "the test's own computation";
  const std::string two = sign({*parse_secret(secret), std::string(32, 'x')}, id, 1614265330, body);
  EXPECT_THAT(two, testing::StartsWith(known + " v1,"));
}

TEST(secrets, have_a_form) {
  EXPECT_EQ(new_secret().size(), 32U);
  EXPECT_NE(new_secret(), new_secret());
  const std::string one = new_secret();
  EXPECT_EQ(parse_secret(secret_text(one)), one);
  for (const char* const bad : {"", "whsec_", "whsec_AAAA", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                                "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!"}) {
    EXPECT_FALSE(parse_secret(bad)) << bad;
  }
}

// ---- When to try again -------------------------------------------------------------------------

TEST(retries, back_off_by_doubling_with_a_random_half) {
  push_settings s;
  s.backoff = 10 * second;
  s.longest_backoff = 100 * second;
  task t;
  const nanoseconds whole[] = {10, 10, 20, 40, 80, 100, 100};
  for (std::uint32_t attempt = 1; attempt < 7; ++attempt) {
    t.reserves = attempt;
    nanoseconds least = 1000 * second;
    nanoseconds most = 0;
    for (std::uint64_t random = 0; random < 1000; ++random) {
      const nanoseconds d = retry_delay(s, t, 0, random * 0x9e3779b97f4a7c15U);
      least = std::min(least, d);
      most = std::max(most, d);
    }
    EXPECT_GE(least, whole[attempt] * second / 2);
    EXPECT_LE(most, whole[attempt] * second);
    EXPECT_GT(most - least, whole[attempt] * second / 3) << "attempt " << attempt;
  }
  t.reserves = 4'000'000'000;
  EXPECT_LE(retry_delay(s, t, 0, 7), 100 * second);
  EXPECT_EQ(retry_delay(s, t, 500 * second, 7), 500 * second) << "the receiver asks for more";
  EXPECT_EQ(retry_delay(s, t, 1'000'000 * second, 7), longest_retry_after);
  EXPECT_GE(retry_delay(s, t, -5, 7), 50 * second);
  s.backoff = 0;
  EXPECT_EQ(retry_delay(s, t, 0, 7), 0);
  s.longest_backoff = s.backoff = longest;
  EXPECT_GE(retry_delay(s, t, 0, 0), longest / 2) << "without overflow";
  t.backoff = second;
  t.reserves = 1;
  EXPECT_LE(retry_delay(s, t, 0, 0), second) << "a task's own back-off counts";
  EXPECT_EQ(attempts_of(s, t), s.max_attempts);
  t.max_attempts = 3;
  EXPECT_EQ(attempts_of(s, t), 3U);
}

TEST(retries, are_when_the_receiver_asks_for) {
  const wall_time now = 784'111'777 * second;  // Sun, 06 Nov 1994 08:49:37 GMT
  EXPECT_EQ(parse_retry_after("120", now), 120 * second);
  EXPECT_EQ(parse_retry_after("0", now), 0);
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:50:37 GMT", now), 60 * second);
  EXPECT_EQ(parse_retry_after("Sun, 06 Nov 1994 08:00:00 GMT", now), 0);
  EXPECT_EQ(parse_retry_after("99999999999999", now), longest_retry_after);
  for (const char* const bad : {"", "soon", "-1", "1.5", "Sun, 06 Nov 1994 08:50:37 GMT x"}) {
    EXPECT_FALSE(parse_retry_after(bad, now)) << bad;
  }
}

/// Limits of receivers, at a time that stands still.
class hosts : public testing::Test {
 protected:
  bool enter(const std::string& host) { return table_->enter(host, now_, as_, later_); }
  std::size_t fill(const std::string& host) {
    std::size_t n = 0;
    while (enter(host)) ++n;
    return n;
  }
  void leave(const std::string& host, ending how, nanoseconds took = 1000) {
    table_->leave(host, as_, how, took);
  }
  void make(host_limits l) { table_ = std::make_unique<host_table>(l); }

  std::unique_ptr<host_table> table_;
  verge::clock::time_point now_{verge::clock::now()};
  nanoseconds later_{0};
  standing as_{standing::unknown};
};

TEST_F(hosts, have_limits_and_leave_room_for_others) {
  make({.all = 100, .each = 10, .rate = 0});
  EXPECT_EQ(fill("a"), 10U);
  EXPECT_GT(later_, 0);
  // However many hang, the next one gets something until nearly all is used up by many.
  for (int i = 0; i < 15; ++i) EXPECT_GE(fill(fmt::format("host-{}", i)), 1U) << i;
  EXPECT_LE(table_->under_way(), 100U);
  // Those that have to come back get one turn after the other.
  nanoseconds before = 0;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(enter("a"));
    EXPECT_GT(later_, before);
    before = later_;
  }
  for (int i = 0; i < 1'000'000; ++i) EXPECT_FALSE(enter("a"));
  EXPECT_LE(later_, 600 * second) << "but none later than that";
  leave("a", ending::other);
  EXPECT_FALSE(enter("a")) << "while room is scarce it is for others";
  EXPECT_TRUE(enter("b"));
}

TEST_F(hosts, that_hang_have_a_smaller_share_until_they_answer) {
  make({.all = 1'000, .each = 8, .rate = 0});
  const auto share = [&] {
    const std::size_t n = fill("a");
    for (std::size_t i = 0; i < n; ++i) leave("a", ending::other);
    return n;
  };
  const auto end = [&](ending how) {
    EXPECT_TRUE(enter("a"));
    leave("a", how);
    return share();
  };
  EXPECT_EQ(share(), 8U);
  EXPECT_EQ(table_->of("a"), standing::unknown);
  EXPECT_EQ(end(ending::hung), 4U);
  EXPECT_EQ(table_->of("a"), standing::hangs);
  EXPECT_EQ(end(ending::hung), 2U);
  EXPECT_EQ(end(ending::hung), 1U);
  EXPECT_EQ(end(ending::hung), 1U) << "it is always tried again";
  EXPECT_EQ(end(ending::answered), 2U);
  EXPECT_EQ(table_->of("a"), standing::answers);
  EXPECT_EQ(end(ending::answered), 4U);
  EXPECT_EQ(end(ending::answered), 8U);
  EXPECT_EQ(end(ending::answered), 8U);
}

TEST_F(hosts, that_hang_have_half_of_all_and_new_ones_leave_room_for_those_that_answer) {
  make({.all = 80, .each = 1, .rate = 0});
  for (int i = 0; i < 100; ++i) {
    const std::string host = fmt::format("silent-{}", i);
    EXPECT_TRUE(enter(host));
    leave(host, ending::hung);
  }
  EXPECT_TRUE(enter("good"));
  leave("good", ending::answered);
  const auto entered = [&](const std::string& kind) {
    int n = 0;
    for (int i = 0; i < 100; ++i) n += enter(fmt::format("{}-{}", kind, i)) ? 1 : 0;
    return n;
  };
  EXPECT_EQ(entered("silent"), 40);
  EXPECT_EQ(entered("new"), 30) << "an eighth is left";
  EXPECT_TRUE(enter("good"));
}

// ---- Places of a tube --------------------------------------------------------------------------

TEST(places_of_a_tube, are_kept_by_a_receiver_that_is_its_only_one) {
  places p(100);
  std::vector<places::ticket> all(2);
  for (auto& t : all) {
    p.take();
    EXPECT_TRUE(p.enter(t, "own", 2, standing::unknown, true));
    EXPECT_FALSE(p.give_up(t)) << "no other could use it";
  }
  places::ticket third;
  p.take();
  EXPECT_FALSE(p.enter(third, "own", 2, standing::unknown, true));
  p.leave(third);
  EXPECT_EQ(p.taken(), 2U);
}

TEST(places_of_a_tube, are_given_up_by_what_takes_long_if_there_are_several_receivers) {
  places p(3);
  std::vector<places::ticket> all(5);
  for (std::size_t i = 0; i < 5; ++i) {
    p.take();
    EXPECT_TRUE(p.enter(all[i], "host-" + std::to_string(i), 5, standing::unknown, false));
  }
  EXPECT_EQ(p.taken(), 5U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(p.give_up(all[i]));
  EXPECT_FALSE(p.give_up(all[3])) << "there are three beside already";
  EXPECT_FALSE(p.give_up(all[0])) << "it has none";
  EXPECT_EQ(p.taken(), 2U);
  EXPECT_EQ(p.all(), 5U);
  for (auto& t : all) {
    p.exit(t);
    p.leave(t);
  }
  EXPECT_EQ(p.taken(), 0U);
  EXPECT_EQ(p.all(), 0U);
}

TEST(places_of_a_tube, are_not_for_receivers_that_hang_and_one_has_no_more_than_there_are) {
  places p(4);
  std::vector<places::ticket> all(4);
  for (std::size_t i = 0; i < 3; ++i) {
    p.take();
    EXPECT_EQ(p.enter(all[i], "silent-" + std::to_string(i), 10, standing::hangs, false), i < 2)
        << "half of those beside";
  }
  EXPECT_EQ(p.taken(), 1U);
  EXPECT_TRUE(p.enter(all[2], "a", 1, standing::answers, false));
  p.take();
  EXPECT_FALSE(p.enter(all[3], "a", 1, standing::answers, false));
  p.exit(all[2]);
  EXPECT_TRUE(p.enter(all[3], "a", 1, standing::answers, false));
}

TEST(places_of_a_tube, are_given_up_after_four_times_what_is_usual) {
  places p(1);
  EXPECT_EQ(p.patience(), 200ms);
  for (int i = 0; i < 1'000; ++i) p.answered(1ms);
  EXPECT_EQ(p.patience(), 100ms);
  for (int i = 0; i < 1'000; ++i) p.answered(500ms);
  EXPECT_NEAR(std::chrono::duration<double>(p.patience()).count(), 2, 0.001);
  for (int i = 0; i < 1'000; ++i) p.answered(100s);
  EXPECT_NEAR(std::chrono::duration<double>(p.patience()).count(), 4, 0.001);
}

TEST_F(hosts, have_a_rate) {
  make({.all = 100, .each = 100, .rate = 10});
  std::size_t sent = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    now_ += 1ms;
    if (enter("a")) {
      ++sent;
      leave("a", ending::answered);
    }
  }
  EXPECT_GE(sent, 99U);
  EXPECT_LE(sent, 121U);
}

// ---- A server with receivers -------------------------------------------------------------------

class a_pushing_server : public web_fixture {
 protected:
  void SetUp() override {
    web_fixture::SetUp();
    options_.push.may_connect = [](const endpoint&) { return true; };
  }
  json set(const std::string& tube, json settings) {
    return judge(200, "PUT", "/v1/tubes/{tube}/push",
                 web().ask("PUT", "/v1/tubes/" + tube + "/push", settings.dump()))
        .json();
  }
  json task(int id) { return web().ask("GET", "/v1/tasks/" + std::to_string(id)).json(); }
  json tube(const std::string& name) { return web().ask("GET", "/v1/tubes/" + name).json(); }
  void wait_for_state(int id, const std::string& state) {
    wait_until([&] { return task(id).value("state", "") == state; });
  }
  void wait_for_end(int id) {
    wait_until([&] { return web().ask("GET", "/v1/tasks/" + std::to_string(id)).status == 404; });
  }
};

TEST_F(a_pushing_server, sends_a_task_signed_when_it_is_due) {
  receiver there([](const pushed&, std::size_t) { return http_reply(204); });
  start();
  const json made = set("hooks", {{"url", there.url("/in?x=1")}});
  const std::string secret = made["secret"];
  const auto begin = std::chrono::system_clock::now();
  EXPECT_EQ(put("hooks", R"({"body":"{\"order\":7}","delay":200})").status, 201);
  wait_for_end(1);
  EXPECT_GE(std::chrono::system_clock::now() - begin, 200ms);
  ASSERT_EQ(there.count(), 1U);
  const pushed p = there.got().front();
  EXPECT_EQ(p.target, "/in?x=1");
  EXPECT_EQ(p.body, R"({"order":7})");
  EXPECT_EQ(p.header("host"), "127.0.0.1:" + std::to_string(there.port()));
  EXPECT_EQ(p.header("content-type"), "application/json");
  EXPECT_EQ(p.header("webhook-id"), "task-1");
  EXPECT_EQ(p.header("verge-tube"), "hooks");
  EXPECT_EQ(p.header("verge-attempt"), "1");
  EXPECT_EQ(p.header("webhook-signature"), expected_signature(secret, p));
  const auto sent_at = std::stoll(p.header("webhook-timestamp"));
  EXPECT_GE(sent_at, std::chrono::system_clock::to_time_t(begin));
  EXPECT_LE(sent_at, std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
  // The secret is told once, and is in nothing else that is told.
  EXPECT_THAT(web().ask("GET", "/v1/tubes/hooks/push").body, Not(HasSubstr("whsec")));
  EXPECT_THAT(web().ask("GET", "/metrics").body, HasSubstr("verge_push_delivered_total 1\n"));
}

TEST_F(a_pushing_server, tries_again_with_the_same_id_and_then_buries_with_the_answer) {
  receiver there([](const pushed&, std::size_t n) {
    return n < 2 ? http_reply(500, "", "no\nroom") : http_reply(200);
  });
  receiver never([](const pushed&, std::size_t) { return http_reply(503, "", "closed"); });
  start();
  set("a", {{"url", there.url()}, {"backoff", 20}});
  EXPECT_EQ(put("a", R"({"body":"text"})").status, 201);
  wait_for_end(1);
  ASSERT_EQ(there.count(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(there.got()[i].header("webhook-id"), "task-1");
    EXPECT_EQ(there.got()[i].header("verge-attempt"), std::to_string(i + 1));
    EXPECT_EQ(there.got()[i].header("content-type"), "text/plain; charset=utf-8");
  }
  set("b", {{"url", never.url()}, {"backoff", 5}, {"max_attempts", 3}});
  EXPECT_EQ(put("b", R"({"body":"x"})").status, 201);
  wait_for_state(2, "buried");
  EXPECT_EQ(never.count(), 3U);
  EXPECT_EQ(task(2)["last_answer"], "HTTP 503: closed");
  EXPECT_EQ(task(2)["attempts"], 3);
  restart();
  EXPECT_EQ(task(2)["last_answer"], "HTTP 503: closed") << "it is on disk";
}

TEST_F(a_pushing_server, waits_as_long_as_the_receiver_asks_for) {
  receiver there([](const pushed&, std::size_t) {
    return http_reply(429, "Retry-After: 3600\r\n", "slow down");
  });
  start();
  set("a", {{"url", there.url()}, {"backoff", 1}});
  EXPECT_EQ(put("a", R"({"body":"x"})").status, 201);
  wait_for_state(1, "delayed");
  EXPECT_GT(task(1)["time_left"], 3'500'000);
  EXPECT_EQ(task(1)["last_answer"], "HTTP 429: slow down");
}

TEST_F(a_pushing_server, sends_no_more_after_410_until_it_is_told_to) {
  std::atomic<bool> gone{true};
  receiver there(
      [&](const pushed&, std::size_t) { return gone.load() ? http_reply(410) : http_reply(200); });
  start();
  set("a", {{"url", there.url()}, {"concurrency", 1}});
  EXPECT_EQ(put("a", R"([{"body":"1"},{"body":"2"},{"body":"3"}])").status, 201);
  wait_until([&] { return tube("a")["push"] == "disabled"; });
  EXPECT_EQ(task(1)["state"], "buried");
  EXPECT_EQ(task(1)["last_answer"], "HTTP 410");
  const json settings =
      judge(200, "GET", "/v1/tubes/{tube}/push", web().ask("GET", "/v1/tubes/a/push")).json();
  EXPECT_EQ(settings["disabled"], true);
  EXPECT_EQ(settings["disabled_because"], "HTTP 410");
  restart();
  wait_until([&] { return tube("a")["ready"] == 2; });
  EXPECT_EQ(tube("a")["push"], "disabled");
  EXPECT_EQ(there.count(), 1U);
  gone = false;
  set("a", {{"url", there.url()}});
  wait_until([&] { return tube("a")["ready"] == 0 && tube("a")["reserved"] == 0; });
  EXPECT_EQ(tube("a")["push"], "on");
}

TEST_F(a_pushing_server, pushes_to_a_tasks_own_url) {
  receiver one([](const pushed&, std::size_t) { return http_reply(200); });
  receiver other([](const pushed&, std::size_t) { return http_reply(410); });
  start();
  const json with_url{{"body", "x"}, {"url", other.url()}};
  EXPECT_EQ(judge(409, "POST", "/v1/tubes/{tube}/tasks", put("a", with_url.dump())).problem(),
            "no-push");
  set("a", {{"url", one.url()}});
  EXPECT_EQ(put("a", with_url.dump()).status, 201);
  wait_for_state(1, "buried");
  EXPECT_EQ(task(1)["url"], other.url());
  EXPECT_EQ(tube("a")["push"], "on") << "the tube's own receiver wants more";
  EXPECT_EQ(put("a", R"({"body":"y"})").status, 201);
  wait_for_end(2);
  EXPECT_EQ(one.count(), 1U);
  set("b", json::object());
  EXPECT_EQ(put("b", R"({"body":"z"})").status, 201);
  wait_for_state(3, "buried");
  EXPECT_EQ(task(3)["last_answer"], "neither the task nor its tube has a URL");
}

TEST_F(a_pushing_server, connects_to_no_address_that_is_not_public) {
  receiver there([](const pushed&, std::size_t) { return http_reply(200); });
  options_.push.may_connect = nullptr;
  start();
  const std::string port = std::to_string(there.port());
  int id = 0;
  for (const std::string host : {"127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]",
                                 "[::ffff:127.0.0.1]", "0.0.0.0"}) {
    set("a", json::object());
    const json t{{"body", "x"}, {"url", "http://" + host + ":" + port + "/"}};
    EXPECT_EQ(put("a", t.dump()).status, 201);
    wait_for_state(++id, "buried");
    const std::string answer = task(id)["last_answer"];
    // A machine without IPv6 may not resolve all of these, and connects to none either.
    EXPECT_TRUE(answer.find("not a public address") != answer.npos ||
                answer.find("cannot resolve") != answer.npos)
        << host << ": " << answer;
  }
  EXPECT_EQ(there.connections(), 0U);
  EXPECT_THAT(web().ask("GET", "/metrics").body, Not(HasSubstr("verge_push_refused_total 0\n")));
}

/// The name has a good address when it is looked up, and would have another one the next time.
TEST_F(a_pushing_server, connects_to_the_address_that_was_checked_and_looks_up_no_second_time) {
  receiver good([](const pushed&, std::size_t) { return http_reply(500); });
  receiver bad([](const pushed&, std::size_t) { return http_reply(200); });
  std::atomic<int> lookups{0};
  options_.push.names.remember = 0s;
  options_.push.names.look_up = [&](const std::string& host, std::uint16_t) {
    EXPECT_EQ(host, "rebinding.example");
    const std::uint16_t port = lookups.fetch_add(1) % 2 == 0 ? good.port() : bad.port();
    return addresses{.found = {endpoint::loopback(port)}, .why = {}};
  };
  options_.push.may_connect = [&](const endpoint& at) { return at.port() == good.port(); };
  start();
  set("a", {{"url", "http://rebinding.example/"}, {"max_attempts", 2}, {"backoff", 1}});
  EXPECT_EQ(put("a", R"({"body":"x"})").status, 201);
  wait_for_state(1, "buried");
  EXPECT_THAT(std::string(task(1)["last_answer"]), HasSubstr("not a public address"));
  EXPECT_EQ(lookups.load(), 2) << "one for each attempt";
  EXPECT_EQ(good.count(), 1U);
  EXPECT_EQ(bad.connections(), 0U);
}

TEST_F(a_pushing_server, follows_a_few_redirections_and_checks_each) {
  receiver last([](const pushed&, std::size_t) { return http_reply(200); });
  receiver hidden([](const pushed&, std::size_t) { return http_reply(200); });
  receiver first([&](const pushed& p, std::size_t) {
    if (p.target == "/loop") return http_reply(302, "Location: /loop\r\n");
    if (p.target == "/hidden") return http_reply(307, "Location: " + hidden.url() + "\r\n");
    if (p.target == "/nowhere") return http_reply(308);
    return http_reply(308, "Location: " + last.url("/moved") + "\r\n");
  });
  options_.push.may_connect = [&](const endpoint& at) { return at.port() != hidden.port(); };
  start();
  const std::string secret = set("a", {{"max_attempts", 1}})["secret"];
  const auto send = [&](const std::string& path) {
    const json t{{"body", "payload"}, {"url", first.url(path)}};
    EXPECT_EQ(put("a", t.dump()).status, 201);
  };
  send("/");
  wait_for_end(1);
  ASSERT_EQ(last.count(), 1U);
  EXPECT_EQ(last.got()[0].target, "/moved");
  EXPECT_EQ(last.got()[0].body, "payload") << "the same request";
  EXPECT_EQ(last.got()[0].header("webhook-signature"), expected_signature(secret, last.got()[0]));
  send("/hidden");
  wait_for_state(2, "buried");
  EXPECT_THAT(std::string(task(2)["last_answer"]), HasSubstr("not a public address"));
  EXPECT_EQ(hidden.connections(), 0U);
  const std::size_t before = first.count();
  send("/loop");
  wait_for_state(3, "buried");
  EXPECT_EQ(task(3)["last_answer"], "too many redirections");
  EXPECT_EQ(first.count() - before, 1U + most_redirections);
  send("/nowhere");
  wait_for_state(4, "buried");
  EXPECT_THAT(std::string(task(4)["last_answer"]), HasSubstr("cannot be followed"));
}

TEST_F(a_pushing_server, says_what_was_wrong_with_a_receiver) {
  receiver silent([](const pushed&, std::size_t) { return std::string(); });
  receiver babbling([](const pushed&, std::size_t) { return std::string("hello\r\n\r\n"); });
  receiver interim([](const pushed&, std::size_t) {
    return "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + http_reply(200);
  });
  options_.push.names.look_up = [](const std::string&, std::uint16_t) {
    return addresses{.found = {}, .why = "Name or service not known"};
  };
  start();
  set("a", {{"max_attempts", 1}, {"timeout", 60'000}});
  const auto send = [&](const std::string& to) {
    const json t{{"body", "x"}, {"url", to}};
    EXPECT_EQ(put("a", t.dump()).status, 201);
  };
  send(silent.url());
  send(babbling.url());
  send("http://127.0.0.1:1/");
  send("http://no.such.name/");
  send(interim.url());
  for (int id = 1; id <= 4; ++id) wait_for_state(id, "buried");
  EXPECT_EQ(task(1)["last_answer"], "the receiver has sent no response");
  EXPECT_EQ(task(2)["last_answer"], "the receiver has sent no response");
  EXPECT_THAT(std::string(task(3)["last_answer"]), HasSubstr("cannot connect to 127.0.0.1:1"));
  EXPECT_EQ(task(4)["last_answer"], "cannot resolve no.such.name: Name or service not known");
  wait_for_end(5);
}

/// One server pushes to another one, which puts what it gets.
TEST_F(a_pushing_server, trusts_receivers_by_their_certificates) {
  const std::string cert = dir_ / "cert.pem";
  make_certificate(cert, dir_ / "key.pem", 1);
  server_options other;
  other.in_memory = true;
  other.listen = endpoint::loopback(0);
  other.http.emplace().listen = endpoint::loopback(0);
  other.tls = tls_options{.certificate = cert, .key = dir_ / "key.pem"};
  task_server secure(other);
  const std::string port = std::to_string(secure.http_address()->port());
  const auto push_to = [&](const std::string& host) {
    set("a",
        {{"url", "https://" + host + ":" + port + "/v1/tubes/there/tasks"}, {"max_attempts", 1}});
    EXPECT_EQ(put("a", R"({"body":"{\"body\":\"over TLS\"}"})").status, 201);
  };
  start();
  push_to("localhost");
  wait_for_state(1, "buried");
  EXPECT_THAT(std::string(task(1)["last_answer"]), HasSubstr("the certificate is refused: "));
  options_.push.trust = cert;
  restart();
  push_to("127.0.0.1");
  wait_until([&] { return tube("a")["buried"] == 2; });
  EXPECT_EQ(tube("a")["put"], 1);
  push_to("localhost");
  wait_until([&] { return tube("a")["deleted"] == 1; });
}

TEST_F(a_pushing_server, gives_a_task_back_when_it_ends_and_sends_it_again) {
  std::atomic<bool> hang{true};
  std::atomic<bool> over{false};
  receiver there([&](const pushed&, std::size_t) {
    while (hang.load() && !over.load()) std::this_thread::sleep_for(1ms);
    return over.load() ? std::string() : http_reply(200);
  });
  start();
  set("a", {{"url", there.url()}, {"timeout", 300'000}});
  EXPECT_EQ(put("a", R"({"body":"x","ttr":3600000})").status, 201);
  wait_until([&] { return there.count() == 1; });
  restart();
  hang = false;
  wait_for_end(1);
  ASSERT_EQ(there.count(), 2U);
  EXPECT_EQ(there.got()[0].header("webhook-id"), there.got()[1].header("webhook-id"));
  over = true;
}

/// Sockets for a thousand receivers that hang, and as many clients.
bool raise_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur >= 4'000;
}

/// One socket that never accepts, at all addresses of loopback: each is a receiver of its own.
class silent_receivers {
 public:
  silent_receivers() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    socklen_t size = sizeof at;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
        ::listen(fd_, 4'096) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
      throw std::runtime_error("cannot listen");
    }
    port_ = ntohs(at.sin_port);
  }
  silent_receivers(const silent_receivers&) = delete;
  silent_receivers& operator=(const silent_receivers&) = delete;
  ~silent_receivers() { ::close(fd_); }
  std::string url(int i) const {
    return fmt::format("http://127.1.{}.{}:{}/", i / 250, 1 + i % 250, port_);
  }

 private:
  int fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_{0};
};

/// A thousand receivers take the connection and say nothing. The others are served meanwhile, in
/// another tube and behind them all in the same one, which has the settings that are the default
/// but for the time-out: all of theirs have come before one of the thousand has been given up.
TEST_F(a_pushing_server, serves_others_while_a_thousand_receivers_hang) {
  if (!raise_limit()) GTEST_SKIP() << "there are not enough descriptors";
  const silent_receivers silent;
  receiver well([](const pushed&, std::size_t) { return http_reply(200); });
  start();
  set("a", {{"timeout", 300'000}});
  set("b", {{"url", well.url()}});
  json tasks = json::array();
  for (int i = 0; i < 1000; ++i) {
    tasks.push_back({{"body", "x"}, {"ttr", 3'600'000}, {"url", silent.url(i)}});
  }
  EXPECT_EQ(put("a", tasks.dump()).status, 201);
  tasks = json::array();
  for (int i = 0; i < 200; ++i) tasks.push_back({{"body", "b"}});
  EXPECT_EQ(put("b", tasks.dump()).status, 201);
  for (json& t : tasks) t["url"] = well.url();
  EXPECT_EQ(put("a", tasks.dump()).status, 201);
  wait_until([&] { return well.count() == 400; });
  wait_until([&] { return tube("a")["reserved"] == 1000 && tube("a")["deleted"] == 200; });
  EXPECT_EQ(tube("b")["deleted"], 200);
  EXPECT_THAT(web().ask("GET", "/metrics").body, HasSubstr("verge_push_failed_total 0\n"));
  // And the end does not wait for them either.
  forget_connection();
  server_.reset();
}

/// The same with names whose server says nothing.
TEST_F(a_pushing_server, serves_others_while_a_thousand_names_hang) {
  if (!raise_limit()) GTEST_SKIP() << "there are not enough descriptors";
  name_server there([](const std::string& name, int) {
    return name.starts_with("silent") ? name_answer{.silent = true}
                                      : name_answer{.found = {"127.0.0.1"}};
  });
  options_.push.names.server = endpoint::loopback(there.port());
  options_.push.names.with_v6 = false;
  options_.push.names.patience = 300s;
  options_.push.names.files.resolv = dir_ / "resolv.conf";
  std::ofstream(dir_ / "resolv.conf") << "options timeout:20 attempts:5\n";
  receiver well([](const pushed&, std::size_t) { return http_reply(200); });
  start();
  set("a", {{"timeout", 300'000}});
  json tasks = json::array();
  for (int i = 0; i < 1000; ++i) {
    tasks.push_back(
        {{"body", "x"}, {"ttr", 3'600'000}, {"url", fmt::format("http://silent-{}.example/", i)}});
  }
  EXPECT_EQ(put("a", tasks.dump()).status, 201);
  tasks = json::array();
  for (int i = 0; i < 100; ++i) {
    tasks.push_back(
        {{"body", "y"}, {"url", fmt::format("http://well-{}.example:{}/", i, well.port())}});
  }
  EXPECT_EQ(put("a", tasks.dump()).status, 201);
  wait_until([&] { return well.count() == 100; });
  wait_until([&] { return tube("a")["deleted"] == 100; });
  EXPECT_THAT(web().ask("GET", "/metrics").body, HasSubstr("verge_push_failed_total 0\n"));
}

/// The receiver that others lead to has its limit as well: it never has two at once.
TEST_F(a_pushing_server, counts_redirections_among_the_deliveries_of_where_they_lead) {
  std::atomic<int> now{0};
  std::atomic<int> most{0};
  receiver last(
      [&](const pushed&, std::size_t) {
        most = std::max(most.load(), ++now);
        std::this_thread::sleep_for(2ms);
        --now;
        return http_reply(200);
      },
      4);
  std::vector<std::unique_ptr<receiver>> gates;
  for (int i = 0; i < 4; ++i) {
    gates.push_back(std::make_unique<receiver>([&](const pushed&, std::size_t) {
      return http_reply(307, "Location: " + last.url() + "\r\n");
    }));
  }
  options_.push.hosts.each = 1;
  start();
  set("a", json::object());
  json tasks = json::array();
  for (int i = 0; i < 40; ++i) tasks.push_back({{"body", "x"}, {"url", gates[i % 4]->url()}});
  EXPECT_EQ(put("a", tasks.dump()).status, 201);
  wait_until([&] { return tube("a")["deleted"] == 40; });
  EXPECT_EQ(most.load(), 1);
  EXPECT_THAT(web().ask("GET", "/metrics").body, HasSubstr("verge_push_failed_total 0\n"));
}

TEST_F(a_pushing_server, keeps_to_the_limits_of_a_tube) {
  std::atomic<int> now{0};
  std::atomic<int> most{0};
  // It could have four at work at once.
  receiver there(
      [&](const pushed&, std::size_t) {
        most = std::max(most.load(), ++now);
        std::this_thread::sleep_for(1ms);
        --now;
        return http_reply(200);
      },
      4);
  start();
  set("a", {{"url", there.url()}, {"concurrency", 1}, {"rate", 100}});
  const auto begin = std::chrono::steady_clock::now();
  json tasks = json::array();
  for (int i = 0; i < 20; ++i) tasks.push_back({{"body", "x"}});
  // By its own URL it is the same receiver.
  for (int i = 0; i < 10; ++i) tasks[i]["url"] = there.url("/own");
  EXPECT_EQ(put("a", tasks.dump()).status, 201);
  wait_until([&] { return there.count() == 20; });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 180ms) << "ten milliseconds between two";
  EXPECT_EQ(most.load(), 1);
}

TEST_F(a_pushing_server, stops_when_its_settings_are_removed_and_keeps_the_tasks) {
  receiver there([](const pushed&, std::size_t) { return http_reply(200); });
  start();
  set("a", {{"url", there.url()}});
  EXPECT_EQ(put("a", R"({"body":"1"})").status, 201);
  wait_for_end(1);
  judge(200, "DELETE", "/v1/tubes/{tube}/push", web().ask("DELETE", "/v1/tubes/a/push"));
  judge(404, "DELETE", "/v1/tubes/{tube}/push", web().ask("DELETE", "/v1/tubes/a/push"));
  judge(404, "GET", "/v1/tubes/{tube}/push", web().ask("GET", "/v1/tubes/a/push"));
  wait_until([&] { return web().ask("GET", "/v1/tubes/a").status == 404; });
  EXPECT_EQ(put("a", R"({"body":"2"})").status, 201);
  EXPECT_EQ(web().ask("POST", "/v1/tubes/a/reserve").json()["tasks"][0]["body"], "2");
  EXPECT_EQ(there.count(), 1U);
}

TEST_F(a_pushing_server, says_what_is_wrong_with_settings) {
  start();
  const std::vector<std::pair<const char*, const char*>> table{
      {R"({"url":"ftp://x/"})", "/url"},
      {R"({"url":"http://u:p@x/"})", "/url"},
      {R"({"secret":"x"})", "/secret"},
      {R"({"secret":[]})", "/secret"},
      {R"({"secret":[1]})", "/secret"},
      {R"({"timeout":0})", "/timeout"},
      {R"({"timeout":300001})", "/timeout"},
      {R"({"max_attempts":-1})", "/max_attempts"},
      {R"({"backoff":10,"max_backoff":9})", "/max_backoff"},
      {R"({"concurrency":0})", "/concurrency"},
      {R"({"concurrency":10001})", "/concurrency"},
      {R"({"rate":1.5})", "/rate"},
      {R"({"unknown":1})", "/unknown"},
  };
  for (const auto& [body, where] : table) {
    const http_answer a = web().ask("PUT", "/v1/tubes/a/push", body);
    EXPECT_EQ(a.status, 400) << body;
    EXPECT_EQ(a.json()["where"], where) << body;
  }
  EXPECT_EQ(put("a", R"({"body":"x","url":"http://[h]/"})").json()["where"], "/url");
}

}  // namespace
