// SPDX-License-Identifier: Apache-2.0

// Names to addresses: messages of DNS, the system's files, and a resolver whose name servers hang.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <verge/runtime.h>

#include "push/dns_message.h"
#include "push/name_files.h"
#include "push/resolver.h"
#include "support/name_server.h"

namespace {

using namespace verge::server::push;
using namespace verge::server::test;
using namespace std::chrono_literals;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using verge::endpoint;

std::vector<std::string> texts(const std::vector<endpoint>& all) {
  std::vector<std::string> out;
  for (const endpoint& at : all) out.push_back(at.to_string());
  return out;
}

// ---- Messages ----------------------------------------------------------------------------------

const dns_question question{.id = 0x1234, .name = "a.example", .type = dns_type::a};
const std::string asked = "\1a\7example\0\0\1\0\1"s;

/// A reply to the question with these records.
std::string reply(int answers, const std::string& records, char flags = '\x81',
                  char code = '\x80') {
  return "\x12\x34"s + flags + code + "\0\1\0"s + static_cast<char>(answers) + "\0\0\0\0"s + asked +
         records;
}
std::string record(const std::string& owner, int type, const std::string& data) {
  return owner + '\0' + static_cast<char>(type) + "\0\1\0\0\0\x3c\0"s +
         static_cast<char>(data.size()) + data;
}
const std::string same = "\xc0\x0c";  // the name of the question

TEST(dns_messages, ask_for_one_name) {
  EXPECT_EQ(dns_query(question), "\x12\x34\1\0\0\1\0\0\0\0\0\0"s + asked);
  EXPECT_EQ(dns_query({.id = 1, .name = "b", .type = dns_type::aaaa}),
            "\0\1\1\0\0\1\0\0\0\0\0\0\1b\0\0\x1c\0\1"s);
  EXPECT_TRUE(is_dns_name("a.example"));
  EXPECT_TRUE(is_dns_name(std::string(63, 'a') + ".b"));
  for (const std::string& bad :
       {""s, "."s, ".a"s, "a."s, "a..b"s, std::string(64, 'a'), std::string(254, 'a')}) {
    EXPECT_FALSE(is_dns_name(bad)) << bad;
  }
}

TEST(dns_messages, have_the_addresses_of_the_name_and_of_what_it_stands_for) {
  const auto two = parse_dns_reply(
      reply(2, record(same, 1, "\1\2\3\4") + record(same, 1, "\5\6\7\x8")), question);
  ASSERT_TRUE(two);
  EXPECT_THAT(texts(two->found), ElementsAre("1.2.3.4:0", "5.6.7.8:0"));
  // a.example stands for B.example, that for c, and c has the address; d has nothing to do with it.
  const std::string b = "\1b\7example\0"s;
  const auto chain =
      parse_dns_reply(reply(4, record("\1c\0"s, 1, "\1\1\1\1") + record("\1d\0"s, 1, "\2\2\2\2") +
                                   record("\1B\7EXAMPLE\0"s, 5, "\1c\0"s) + record(same, 5, b)),
                      question);
  ASSERT_TRUE(chain);
  EXPECT_THAT(texts(chain->found), ElementsAre("1.1.1.1:0"));
  const auto none = parse_dns_reply(reply(0, "", '\x81', '\x83'), question);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->code, dns_no_such_name);
  const auto cut = parse_dns_reply(reply(9, "", '\x83'), question);
  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->truncated);
  dns_question six = question;
  six.type = dns_type::aaaa;
  std::string bytes = reply(1, record(same, 28, "\x20\1\xd\xb8"s + std::string(11, '\0') + '\7'));
  bytes[bytes.find("\7example\0\0\1"s) + 10] = '\x1c';
  const auto v6 = parse_dns_reply(bytes, six);
  ASSERT_TRUE(v6);
  EXPECT_THAT(texts(v6->found), ElementsAre("[2001:db8::7]:0"));
}

TEST(dns_messages, that_are_no_reply_to_the_question_are_none) {
  const std::string good = reply(1, record(same, 1, "\1\2\3\4"));
  ASSERT_TRUE(parse_dns_reply(good, question));
  dns_question other = question;
  other.id = 0x1235;
  EXPECT_FALSE(parse_dns_reply(good, other));
  other = question;
  other.name = "b.example";
  EXPECT_FALSE(parse_dns_reply(good, other));
  other = question;
  other.type = dns_type::aaaa;
  EXPECT_FALSE(parse_dns_reply(good, other));
  std::string bytes = good;
  bytes[2] = '\1';  // a question
  EXPECT_FALSE(parse_dns_reply(bytes, question));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse_dns_reply(good.substr(0, size), question)) << size;
  }
  // A name that leads to itself, and one that leads ahead.
  EXPECT_FALSE(parse_dns_reply(reply(1, record("\xc0\x1b", 1, "\1\2\3\4")), question));
  EXPECT_FALSE(parse_dns_reply(reply(1, record("\xc0\x30", 1, "\1\2\3\4")), question));
  // Names that stand for one another.
  const auto loop = parse_dns_reply(
      reply(2, record(same, 5, "\1b\0"s) + record("\1b\0"s, 5, "\1a\7example\0"s)), question);
  ASSERT_TRUE(loop);
  EXPECT_THAT(loop->found, IsEmpty());
  // An address of a wrong size, and one of another class.
  EXPECT_THAT(parse_dns_reply(reply(1, record(same, 1, "\1\2\3")), question)->found, IsEmpty());
}

TEST(dns_messages, may_be_anything) {
  const std::string good =
      reply(2, record(same, 5, "\1b\xc0\x0e") + record("\1b\xc0\x0e", 1, "\1\2\3\4"));
  ASSERT_THAT(texts(parse_dns_reply(good, question)->found), ElementsAre("1.2.3.4:0"));
  std::mt19937 random(7);
  std::size_t parsed = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string bytes = good;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      bytes[12 + random() % (bytes.size() - 12)] = static_cast<char>(random());
    }
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    parsed += parse_dns_reply(bytes, question) ? 1 : 0;
  }
  EXPECT_GT(parsed, 1'000U);
}

// ---- Files -------------------------------------------------------------------------------------

TEST(name_files, say_which_servers_and_domains) {
  const dns_settings s = parse_resolv_conf(
      "# a comment\nnameserver 10.0.0.1\n nameserver ::1 ; another\nnameserver no\n"
      "domain first.example\nsearch A.example. b.example\n"
      "options ndots:2 timeout:3 attempts:4 rotate edns0\noptions use-vc\n",
      "host.own.example");
  EXPECT_THAT(texts(s.servers), ElementsAre("10.0.0.1:53", "[::1]:53"));
  EXPECT_THAT(s.search, ElementsAre("a.example", "b.example"));
  EXPECT_EQ(s.dots, 2U);
  EXPECT_EQ(s.timeout, 3s);
  EXPECT_EQ(s.attempts, 4U);
  EXPECT_TRUE(s.rotate);
  EXPECT_TRUE(s.by_tcp);
  const dns_settings none = parse_resolv_conf("", "host.own.example");
  EXPECT_THAT(texts(none.servers), ElementsAre("127.0.0.1:53"));
  EXPECT_THAT(none.search, ElementsAre("own.example"));
  EXPECT_THAT(parse_resolv_conf("", "host").search, IsEmpty());
  const dns_settings odd = parse_resolv_conf("options timeout:0 attempts:99 ndots:x\n", "");
  EXPECT_EQ(odd.timeout, 1s);
  EXPECT_EQ(odd.attempts, 5U);
  EXPECT_EQ(odd.dots, 1U);
}

TEST(name_files, say_which_names_have_which_addresses) {
  const hosts_file h = parse_hosts(
      "127.0.0.1\tlocalhost\n::1 localhost ip6-localhost # loopback\nbad name\n10.0.0.1 A.Example "
      "b");
  EXPECT_THAT(texts(h.at("localhost")), ElementsAre("127.0.0.1:0", "[::1]:0"));
  EXPECT_THAT(texts(h.at("a.example")), ElementsAre("10.0.0.1:0"));
  EXPECT_EQ(h.count("name"), 0U);
}

TEST(name_files, say_which_names_are_for_the_c_library) {
  const auto system = [](const char* line, const char* host) {
    name_sources s;
    s.order = parse_nsswitch(line);
    return s.is_for_the_system(host);
  };
  for (const char* const host : {"a.example", "a", "a.local"}) {
    EXPECT_FALSE(system("", host));
    EXPECT_FALSE(system("passwd: files ldap\nhosts: files dns\n", host));
    EXPECT_FALSE(system("hosts:files resolve [!UNAVAIL=return] dns", host));
    EXPECT_TRUE(system("hosts: files ldap dns", host));
    EXPECT_TRUE(system("hosts: files wins [NOTFOUND=return] dns", host));
  }
  const char* const desktop = "hosts: files mdns4_minimal [NOTFOUND=return] dns myhostname";
  EXPECT_FALSE(system(desktop, "a.example"));
  EXPECT_TRUE(system(desktop, "a.local"));
  EXPECT_TRUE(system(desktop, "a"));
  EXPECT_FALSE(parse_nsswitch("hosts: dns files").files_first);
  EXPECT_FALSE(parse_nsswitch("hosts: files").dns);
  EXPECT_FALSE(parse_nsswitch("hosts: dns").files);
}

TEST(name_files, say_with_which_domains_a_name_is_tried) {
  name_sources s;
  s.dns.search = {"x.example", "y"};
  s.dns.dots = 2;
  EXPECT_THAT(s.candidates("a"), ElementsAre("a.x.example", "a.y", "a"));
  EXPECT_THAT(s.candidates("a.b"), ElementsAre("a.b.x.example", "a.b.y", "a.b"));
  EXPECT_THAT(s.candidates("a.b.c"), ElementsAre("a.b.c", "a.b.c.x.example", "a.b.c.y"));
  EXPECT_THAT(s.candidates("a.b."), ElementsAre("a.b"));
  EXPECT_THAT(s.candidates("a..b"), IsEmpty());
}

/// Files of a test's own.
class temporary_folder {
 public:
  temporary_folder() {
    if (::mkdtemp(name_.data()) == nullptr) throw std::runtime_error("no temporary folder");
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(name_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  std::string path(const std::string& name) const { return name_ + "/" + name; }

 private:
  std::string name_{(std::filesystem::temp_directory_path() / "verge-names-XXXXXX").string()};
};

TEST(name_files, are_read_again_when_they_have_changed) {
  const temporary_folder folder;
  name_files files({.hosts = folder.write("hosts", "10.0.0.1 a\n"),
                    .resolv = folder.path("none"),
                    .nsswitch = folder.path("none")},
                   0s);
  EXPECT_EQ(files.current()->hosts.count("a"), 1U);
  EXPECT_EQ(files.current(), files.current()) << "not read again without need";
  folder.write("hosts", "10.0.0.1 a\n10.0.0.2 b\n");
  EXPECT_EQ(files.current()->hosts.count("b"), 1U);
}

// ---- A resolver --------------------------------------------------------------------------------

class a_resolver : public testing::Test {
 protected:
  void use(const name_server& s) { options_.server = endpoint::loopback(s.port()); }
  void start() { resolver_ = std::make_unique<resolver>(runtime_, options_); }
  addresses ask(const std::string& host, std::uint16_t port = 80) {
    auto c = resolver_->resolve(host, port);
    return *verge::recv(c).wait();
  }

  verge::runtime runtime_{{.processors = 2}};
  resolver::options options_{.with_v6 = false};
  std::unique_ptr<resolver> resolver_;
};

TEST_F(a_resolver, asks_a_name_server_once_for_all_that_want_to_know) {
  std::mutex lock;
  std::condition_variable changed;
  bool open = false;
  name_server there([&](const std::string& name, int) {
    std::unique_lock held(lock);
    changed.wait(held, [&] { return open; });
    return name == "a.example" ? name_answer{.found = {"1.2.3.4", "5.6.7.8"}}
                               : name_answer{.code = 3};
  });
  use(there);
  start();
  std::vector<verge::chan<addresses>> all;
  for (int i = 0; i < 100; ++i) all.push_back(resolver_->resolve("a.example", 8080));
  {
    std::lock_guard held(lock);
    open = true;
    changed.notify_all();
  }
  for (auto& c : all) {
    EXPECT_THAT(texts(verge::recv(c).wait()->found), ElementsAre("1.2.3.4:8080", "5.6.7.8:8080"));
  }
  EXPECT_EQ(there.by_udp(), 1);
  EXPECT_THAT(texts(ask("a.example", 8080).found), ElementsAre("1.2.3.4:8080", "5.6.7.8:8080"));
  EXPECT_EQ(there.by_udp(), 1) << "an answer is remembered";
}

TEST_F(a_resolver, takes_names_that_stand_for_others_and_both_kinds_of_addresses) {
  name_server there([](const std::string&, int) {
    return name_answer{.found = {"1.2.3.4", "2001:db8::1"}, .alias = "elsewhere.example"};
  });
  use(there);
  options_.with_v6 = true;
  start();
  EXPECT_THAT(texts(ask("a.example").found), ElementsAre("[2001:db8::1]:80", "1.2.3.4:80"));
}

TEST_F(a_resolver, asks_by_tcp_what_does_not_fit) {
  std::vector<std::string> many;
  for (int i = 0; i < 100; ++i) many.push_back("10.0.0." + std::to_string(i));
  name_server there(
      [&](const std::string&, int) { return name_answer{.cut = true, .found = many}; });
  use(there);
  start();
  EXPECT_EQ(ask("a.example").found.size(), 100U);
  EXPECT_EQ(there.by_tcp(), 1);
}

TEST_F(a_resolver, says_that_there_is_no_such_name_and_remembers_that) {
  name_server there([](const std::string&, int) { return name_answer{.code = 3}; });
  use(there);
  start();
  EXPECT_EQ(ask("no.example").why, "Name or service not known");
  const int asked_before = there.by_udp();
  EXPECT_EQ(ask("no.example").why, "Name or service not known");
  EXPECT_EQ(there.by_udp(), asked_before);
}

TEST_F(a_resolver, asks_again_when_a_server_refuses_or_says_nothing) {
  std::atomic<int> questions{0};
  name_server there([&](const std::string&, int) {
    return questions.fetch_add(1) == 0 ? name_answer{.code = 2} : name_answer{.found = {"1.2.3.4"}};
  });
  use(there);
  start();
  EXPECT_THAT(texts(ask("a.example").found), ElementsAre("1.2.3.4:80"));
  EXPECT_EQ(questions.load(), 2);
  // No server listens there: the kernel says so.
  options_.server = endpoint::loopback(1);
  start();
  EXPECT_THAT(ask("a.example").why, HasSubstr("refused"));
}

TEST_F(a_resolver, takes_names_of_the_hosts_file_and_asks_no_server_for_addresses) {
  const temporary_folder folder;
  name_server there([](const std::string&, int) { return name_answer{.code = 3}; });
  use(there);
  options_.files.hosts = folder.write("hosts", "10.0.0.7 here.example\n");
  start();
  EXPECT_THAT(texts(ask("here.example").found), ElementsAre("10.0.0.7:80"));
  EXPECT_THAT(texts(ask("192.0.2.1").found), ElementsAre("192.0.2.1:80"));
  EXPECT_THAT(texts(ask("::1").found), ElementsAre("[::1]:80"));
  EXPECT_THAT(texts(ask("2130706433").found), ElementsAre("127.0.0.1:80"));
  EXPECT_THAT(texts(ask("0x7f.1").found), ElementsAre("127.0.0.1:80"));
  EXPECT_THAT(ask("1.2.3.4.5").why, HasSubstr("neither"));
  EXPECT_EQ(there.by_udp(), 0);
}

/// Their server says nothing, and will not until the test has ended.
TEST_F(a_resolver, answers_for_others_while_a_thousand_names_hang) {
  name_server there([](const std::string& name, int) {
    return name.starts_with("silent") ? name_answer{.silent = true}
                                      : name_answer{.found = {"1.2.3.4"}};
  });
  use(there);
  options_.patience = 600s;
  const temporary_folder folder;
  options_.files.resolv = folder.write("resolv.conf", "options attempts:5\n");
  start();
  std::vector<verge::chan<addresses>> hanging;
  for (int i = 0; i < 1'000; ++i) {
    hanging.push_back(resolver_->resolve("silent-" + std::to_string(i) + ".example", 80));
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(texts(ask("quick-" + std::to_string(i) + ".example").found),
                ElementsAre("1.2.3.4:80"));
  }
  for (auto& c : hanging) EXPECT_FALSE(c.try_recv());
}

TEST_F(a_resolver, gives_a_name_up_whose_server_says_nothing) {
  name_server there([](const std::string&, int) { return name_answer{.silent = true}; });
  use(there);
  options_.patience = 50ms;
  start();
  EXPECT_EQ(ask("a.example").why, "the name server does not answer in time");
}

// ---- Lookups that block ------------------------------------------------------------------------

/// As a_resolver, with a lookup that hangs for some names until the test ends.
class a_resolver_on_threads : public a_resolver {
 protected:
  a_resolver_on_threads() {
    options_.look_up = [this](const std::string& host, std::uint16_t port) {
      if (host.starts_with("silent")) {
        std::unique_lock held(lock_);
        most_ = std::max(most_, ++hanging_);
        changed_.notify_all();
        changed_.wait(held, [this] { return over_; });
        --hanging_;
        changed_.notify_all();
      }
      return addresses{.found = {endpoint::loopback(port)}, .why = {}};
    };
  }
  ~a_resolver_on_threads() override {
    resolver_.reset();
    std::unique_lock held(lock_);
    over_ = true;
    changed_.notify_all();
    changed_.wait(held, [this] { return hanging_ == 0; });
  }
  void hang(int names) {
    for (int i = 0; i < names; ++i) {
      silent_.push_back(resolver_->resolve("silent-" + std::to_string(i), 80));
    }
  }

  std::mutex lock_;
  std::condition_variable changed_;
  int hanging_{0};
  int most_{0};
  bool over_{false};
  std::vector<verge::chan<addresses>> silent_;
};

TEST_F(a_resolver_on_threads, answers_for_others_while_a_thousand_names_hang) {
  options_.threads.all = 256;
  start();
  EXPECT_FALSE(ask("known").found.empty());
  hang(1'000);
  for (int i = 0; i < 20; ++i)
    EXPECT_FALSE(ask("known", static_cast<std::uint16_t>(i)).found.empty());
  // The last eighth of the threads is for names that were quick: new ones wait for those that hang.
  std::unique_lock held(lock_);
  changed_.wait(held, [this] { return hanging_ == 256 - 32; });
  held.unlock();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(ask("known", static_cast<std::uint16_t>(100 + i)).found.empty());
  }
  EXPECT_EQ(most_, 256 - 32);
}

TEST_F(a_resolver_on_threads, answers_for_new_names_as_well_if_there_are_enough_threads) {
  start();
  hang(800);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(ask("new-" + std::to_string(i)).found.empty());
}

TEST_F(a_resolver_on_threads, looks_a_name_up_once_and_says_at_once_that_it_hangs) {
  options_.patience = 1ms;
  start();
  hang(1);
  std::unique_lock held(lock_);
  changed_.wait(held, [this] { return hanging_ == 1; });
  held.unlock();
  std::string why;
  while (why.empty()) {
    auto c = resolver_->resolve("silent-0", 80);
    if (const auto a = c.try_recv()) why = a->why;
  }
  EXPECT_EQ(why, "the name server does not answer");
  EXPECT_EQ(most_, 1);
}

}  // namespace
