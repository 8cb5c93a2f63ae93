// SPDX-License-Identifier: Apache-2.0

// Debian's beanstalkd is the oracle: random sessions are played against it and against ours, and
// every reply has to be the same. Another seed each time; VERGE_DIFFERENTIAL_SEED repeats one that
// was told. VERGE_DIFFERENTIAL_COMMANDS is how many commands each test gives: ./dev check
// differential has a million.
//
// What differs on purpose stands in docs/tasks.md, and is left out here or compared otherwise:
//
//   waiters in another order than they came      what all of them got, not which one got what
//   tasks of one priority that were delayed      priorities that are never alike
//   reserve-with-timeout with a negative number  not given
//   an id that is given when the line was read   ids are aligned after each stream
//   the server's own statistics                  not asked for

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "serve/server.h"
#include "support/oracle.h"
#include "support/scale.h"
#include "support/wire.h"

namespace {

using namespace verge::server;
using namespace verge::server::test;

class differential : public testing::Test {
 protected:
  void SetUp() override {
    if (!oracle::exists()) GTEST_SKIP() << "beanstalkd is not installed";
    std::printf("VERGE_DIFFERENTIAL_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    theirs_ = std::make_unique<oracle>();
    server_options o;
    o.listen = verge::endpoint::loopback(0);
    o.in_memory = true;
    ours_ = std::make_unique<task_server>(o);
    control_ = {wire(our_port()), wire(their_port())};
    for (wire& w : control_) w.ask("use aside\r\n");
  }
  std::uint16_t our_port() const { return ours_->address().port(); }
  std::uint16_t their_port() const { return theirs_->port(); }

  /// How many commands in all: ten thousand, or what is asked for.
  static int commands() {
    if (const char* n = std::getenv("VERGE_DIFFERENTIAL_COMMANDS")) return std::atoi(n);
    return verge::test::scale(10'000, 2'000);
  }

  /// A stream that ends in the middle of a body has used up an id in the original, and none here.
  void align_ids() {
    const auto use_one = [](wire& w) {
      const std::string said = w.ask("put 0 0 100 0\r\n\r\n");
      const std::string id = said.substr(9, said.size() - 11);
      w.ask("delete " + id + "\r\n");
      return std::stoull(id);
    };
    std::uint64_t a = use_one(control_[0]);
    std::uint64_t b = use_one(control_[1]);
    while (a < b) a = use_one(control_[0]);
    while (b < a) b = use_one(control_[1]);
  }
  /// What other connections held is ready again, on both sides.
  void wait_until_alone() {
    for (wire& w : control_) {
      while (w.ask("stats\r\n").find("current-connections: 1\n") == std::string::npos) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  std::array<wire, 2> control_;  ///< ours, theirs: connections that stay
  std::unique_ptr<oracle> theirs_;
  std::unique_ptr<task_server> ours_;
  static std::uint64_t seed() {
    if (const char* n = std::getenv("VERGE_DIFFERENTIAL_SEED"))
      return std::strtoull(n, nullptr, 10);
    return std::random_device()();
  }
  std::uint64_t seed_{seed()};
  std::mt19937_64 random_{seed_};

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
};

/// Times go on between the two servers' answers, and ours has no file: those lines are left out of
/// what is shown, and the length of it, which they change.
std::string without_times(const std::string& reply) {
  static const std::array<std::string_view, 5> times{
      "age: ", "time-left: ", "pause-time-left: ", "file: ", "OK "};
  std::string kept;
  for (std::size_t at = 0; at < reply.size();) {
    const std::size_t end = std::min(reply.find('\n', at), reply.size() - 1) + 1;
    const std::string_view line = std::string_view(reply).substr(at, end - at);
    const bool timed = std::any_of(times.begin(), times.end(),
                                   [&](std::string_view t) { return line.starts_with(t); });
    if (!timed) kept += line;
    at = end;
  }
  return kept;
}

/// Bodies of 65,000 bytes are not what one wants to read.
std::string shortened(const std::string& bytes) {
  std::string kept;
  std::size_t run = 0;
  for (const char c : bytes) {
    const bool filler = c == 'b' || c == 'x' || c == 0 || c == '\r' || c == '\n' || c == ' ';
    run = filler ? run + 1 : 0;
    if (run < 60) kept += c;
  }
  return kept;
}

/// Bytes of all kinds: commands that are right, nearly right, and not at all.
class stream_maker {
 public:
  explicit stream_maker(std::mt19937_64& random) : random_(random) {}

  std::string stream(int commands) {
    std::string all;
    for (int i = 0; i < commands; ++i) all += piece();
    return all;
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::string number() {
    switch (below(12)) {
      case 0:
        return "0";
      case 1:
        return "4294967295";
      case 2:
        return "4294967296";
      case 3:
        return "18446744073709551615";
      case 4:
        return "18446744073709551616";
      case 5:
        return "-1";
      case 6:
        return "1x";
      case 7:
        return "+1";
      case 8:
        return "00012";
      case 9:
        return " 5";
      default:
        return std::to_string(below(30));
    }
  }
  /// Never alike, or none at all: which of two with one priority comes first is another question.
  std::string priority() {
    static const std::array<const char*, 7> wrong{
        "4294967296", "18446744073709551615", "18446744073709551616", "-1", "1x", "+1", ""};
    if (below(4) == 0) return wrong[below(wrong.size())];
    return (below(8) == 0 ? "00" : "") + std::to_string(1 + random_() % 4'000'000'000);
  }
  /// None, one that does not end before the test does, or what is none.
  std::string delay() {
    static const std::array<const char*, 6> all{"0", "0", "1000000", "4294967295", "-1", "x"};
    return all[below(all.size())];
  }
  std::string word() {
    switch (below(10)) {
      case 0:
        return "default";
      case 1:
        return std::string(200, 'a');
      case 2:
        return std::string(201, 'a');
      case 3:
        return "-bad";
      case 4:
        return "with\"quote";
      case 5:
        return "";
      case 6:
        return "a b";
      default:
        return std::string(1, static_cast<char>('a' + below(4)));
    }
  }
  std::string put() {
    const std::uint64_t size = below(20) == 0 ? 65'530 + below(10) : below(40);
    std::string body(size, 'b');
    for (char& c : body) {
      if (below(20) == 0) c = "\r\n\0 "[below(4)];
    }
    std::string head = "put " + std::to_string(1 + random_() % 4'000'000'000) + " " +
                       (below(3) == 0 ? "1000000" : "0") + " 10000 " + std::to_string(size);
    switch (below(15)) {
      case 0:
        return "put " + priority() + " 1000000 100 " + std::to_string(size) + "\r\n" + body +
               "\r\n";
      case 1:
        return head + "\r\n" + body + "xx";
      case 2:
        return head + " \r\n" + body + "\r\n";
      case 3:
        return head + " 7\r\n" + body + "\r\n";
      case 4:
        return "put 1 2 3\r\n";
      case 5:
        return "put  " + std::to_string(1 + random_() % 4'000'000'000) + "   1000000  100 " +
               std::to_string(size) + "\r\n" + body + "\r\n";
      default:
        return head + "\r\n" + body + "\r\n";
    }
  }
  std::string piece() {
    static const std::array<const char*, 13> plain{
        "peek-ready", "peek-delayed", "peek-buried", "list-tubes",         "list-tube-used",
        "",           "PUT",          "reserve-job", "list-tubes-watched", "peek",
        "peekaboo",   "foo",          "reservexxx"};
    static const std::array<const char*, 9> with_id{"peek ",     "delete ",      "touch ",
                                                    "kick-job ", "reserve-job ", "stats-job ",
                                                    "bury ",     "release ",     "delete"};
    static const std::array<const char*, 5> with_tube{"use ", "watch ", "ignore ", "stats-tube ",
                                                      "pause-tube "};
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        return put();
      case 3:
        return "reserve-with-timeout " + (below(4) == 0 ? number0() : std::string("0")) + "\r\n";
      case 4:
        return plain[below(plain.size())] + std::string(below(10) == 0 ? " " : "") + "\r\n";
      case 5:
      case 6: {
        std::string c = with_id[below(with_id.size())] + number();
        const bool has_priority = c.starts_with("bury") || c.starts_with("release");
        const std::uint64_t more = below(3);
        if (more > 0) c += " " + (has_priority ? priority() : number());
        if (more > 1) c += " " + (has_priority ? delay() : number());
        return c + "\r\n";
      }
      case 7: {
        std::string c = with_tube[below(with_tube.size())] + word();
        if (c.starts_with("pause-tube") && below(4) != 0) c += " 0";
        return c + "\r\n";
      }
      case 8:
        return "kick " + std::to_string(below(4)) + "\r\n";
      case 9: {  // lines that are too long, bare CRs, bare LFs, zeros
        switch (below(6)) {
          case 0:
            return std::string(222, 'x') + "\r\n";
          case 1:
            return std::string(223, 'x') + "\r\n";
          case 2:
            return std::string(100 + below(1000), 'x') + "\r\n";
          case 3:
            return "list-tubes\n";
          case 4:
            return std::string("use a\0b\r\n", 9);
          default:
            return "use \rb\r\n";
        }
      }
      default: {
        const std::string c = "stats-job " + std::to_string(below(40)) + "\r\n";
        std::string broken = c;
        broken.insert(below(c.size()), 1, static_cast<char>(below(256)));
        return below(2) == 0 ? c : broken;
      }
    }
  }
  /// Nothing that would wait.
  std::string number0() {
    static const std::array<const char*, 5> all{"0", "00", " 0", "x", ""};
    return all[below(all.size())];
  }

  std::mt19937_64& random_;
};

/// One connection after the other sends a stream, says that this was all, and reads to the end.
TEST_F(differential, streams_of_right_and_wrong_commands_are_answered_alike) {
  stream_maker make(random_);
  const int total = commands();
  for (int done = 0; done < total;) {
    const int n = 1 + static_cast<int>(below(40));
    done += n;
    const std::string bytes = make.stream(n);
    std::string said[2];
    const std::uint16_t ports[2] = {our_port(), their_port()};
    for (int side = 0; side < 2; ++side) {
      wire w(ports[side]);
      // In pieces, as networks deliver them.
      std::string_view left = bytes;
      std::thread sender([&] {
        try {
          while (!left.empty()) {
            const auto size = std::min<std::size_t>(left.size(), 1 + (left.size() * 7919) % 1500);
            w.send(left.substr(0, size));
            left.remove_prefix(size);
          }
          w.finish();
        } catch (const std::system_error&) {
        }
      });
      said[side] = w.rest();
      sender.join();
    }
    const std::string ours = without_times(said[0]);
    const std::string theirs = without_times(said[1]);
    ASSERT_TRUE(ours == theirs) << "ours:\n"
                                << shortened(ours) << "\ntheirs:\n"
                                << shortened(theirs) << "\nafter " << done << " commands, to:\n"
                                << shortened(bytes);
    align_ids();
    wait_until_alone();
  }
}

/// Several connections with commands that are right; at most one waits at a time.
TEST_F(differential, sessions_of_many_connections_are_answered_alike) {
  constexpr std::size_t connections = 5;
  std::array<std::vector<wire>, 2> wires;
  const std::uint16_t ports[2] = {our_port(), their_port()};
  for (int side = 0; side < 2; ++side) {
    for (std::size_t i = 0; i < connections; ++i) wires[side].emplace_back(ports[side]);
  }
  std::size_t waiting = connections;  // which one; or none
  std::uint64_t ids = 0;
  const int total = commands();
  for (int i = 0; i < total; ++i) {
    std::size_t which = below(connections);
    if (which == waiting) continue;
    std::string c;
    const auto id = [&] { return std::to_string(ids < 20 ? 1 + below(20) : ids - below(20)); };
    const auto priority = [&] { return std::to_string(random_() % 4'000'000'000); };
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: {
        const std::string body(below(50), 'x');
        c = "put " + priority() + (below(3) == 0 ? " 1000000 " : " 0 ") + "1000000 " +
            std::to_string(body.size()) + "\r\n" + body + "\r\n";
        ++ids;
        break;
      }
      case 5:
      case 6:
        c = waiting == connections && below(3) == 0 ? "reserve\r\n" : "reserve-with-timeout 0\r\n";
        break;
      case 7:
      case 8:
        c = "delete " + id() + "\r\n";
        break;
      case 9:
        c = "release " + id() + " " + priority() + (below(2) == 0 ? " 0\r\n" : " 1000000\r\n");
        break;
      case 10:
        c = "bury " + id() + " " + priority() + "\r\n";
        break;
      case 11:
        c = "kick " + std::to_string(below(5)) + "\r\n";
        break;
      case 12:
        c = "kick-job " + id() + "\r\n";
        break;
      case 13:
        c = "peek " + id() + "\r\n";
        break;
      case 14:
        c = std::array{"peek-ready\r\n", "peek-delayed\r\n", "peek-buried\r\n"}[below(3)];
        break;
      case 15:
        c = "use t" + std::to_string(below(3)) + "\r\n";
        break;
      case 16:
        c = "watch t" + std::to_string(below(3)) + "\r\n";
        break;
      case 17:
        c = "ignore t" + std::to_string(below(3)) + "\r\n";
        break;
      case 18:
        c = "stats-job " + id() + "\r\n";
        break;
      default:
        c = std::array{"list-tubes\r\n", "list-tubes-watched\r\n", "stats-tube default\r\n",
                       "touch 1\r\n"}[below(4)];
    }
    if (c == "reserve\r\n") {
      // It may wait: then both do, and the reply comes with a later command.
      for (auto& side : wires) side[which].send(c);
      const bool theirs = wires[1][which].is_readable(50);
      if (!theirs) {
        // If ours has an answer when theirs has none, that is found when theirs gets one.
        waiting = which;
        continue;
      }
    } else {
      for (auto& side : wires) side[which].send(c);
    }
    const std::string a = wires[0][which].reply();
    const std::string b = wires[1][which].reply();
    ASSERT_EQ(without_times(a), without_times(b)) << "command " << i << ": " << c;
    if (waiting != connections && wires[1][waiting].is_readable(0)) {
      ASSERT_EQ(wires[0][waiting].reply(), wires[1][waiting].reply()) << "after " << c;
      waiting = connections;
    }
  }
}

// ---- Sessions in which time passes --------------------------------------------------------------

/// Two connections that are told the same, to ours and to theirs.
class pair_of_wires {
 public:
  pair_of_wires(std::uint16_t ours, std::uint16_t theirs) : sides_{wire(ours), wire(theirs)} {}
  void send(const std::string& bytes) {
    for (wire& w : sides_) w.send(bytes);
  }
  void send_each(const std::string& ours, const std::string& theirs) {
    sides_[0].send(ours);
    sides_[1].send(theirs);
  }
  void finish() {
    for (wire& w : sides_) w.finish();
  }
  /// What both say next, without times.
  std::array<std::string, 2> replies() {
    return {without_times(sides_[0].reply()), without_times(sides_[1].reply())};
  }
  std::array<std::string, 2> rest() { return {sides_[0].rest(), sides_[1].rest()}; }

 private:
  std::array<wire, 2> sides_;
};

/// A scene with a tube of its own. Times are a second or two: what comes of them does not depend on
/// how fast the machine is, unless it stands still for as long; then the scene is played again.
class scene {
 public:
  scene(std::uint16_t ours, std::uint16_t theirs, std::string tube, std::uint64_t seed)
      : ours_(ours), theirs_(theirs), tube_(std::move(tube)), random_(seed) {}

  /// Returns what differs; nothing if all is alike.
  std::string play() {
    using part = void (scene::*)();
    static constexpr std::array<part, 10> parts{
        &scene::a_lease_ends,       &scene::a_delay_ends,        &scene::a_pause_ends,
        &scene::a_lease_ends_soon,  &scene::half_closed,         &scene::several_wait,
        &scene::a_wait_ends,        &scene::released_with_delay, &scene::delayed_by_priority,
        &scene::a_client_disappears};
    (this->*parts[random_() % parts.size()])();
    return difference_;
  }
  int commands() const noexcept { return commands_; }

 private:
  pair_of_wires connect() {
    pair_of_wires w(ours_, theirs_);
    ask(w, "use " + tube_);
    ask(w, "watch " + tube_);
    ask(w, "ignore default");
    return w;
  }
  std::string any_body() { return std::string(random_() % 20, 'x'); }
  std::string put(const std::string& rest) {
    const std::string body = any_body();
    return "put " + rest + " " + std::to_string(body.size()) + "\r\n" + body;
  }
  /// Ids differ between the two, as scenes are played at the same time: they are left out.
  static std::string without_id(const std::string& said) {
    for (const char* const word : {"INSERTED ", "RESERVED ", "FOUND "}) {
      if (!said.starts_with(word)) continue;
      const std::size_t begin = std::string_view(word).size();
      return said.substr(0, begin) + "ID" + said.substr(said.find_first_of(" \r", begin));
    }
    const std::size_t id = said.find("\nid: ");
    if (id == std::string::npos) return said;
    return said.substr(0, id) + said.substr(said.find('\n', id + 1));
  }
  void compare(const std::string& about, const std::string& ours, const std::string& theirs) {
    log_ += about + "\n  ours:   " + ours + "\n  theirs: " + theirs + "\n";
    if (without_id(ours) != without_id(theirs) && difference_.empty()) difference_ = log_;
  }
  std::array<std::string, 2> hear(pair_of_wires& w, const std::string& about) {
    const auto said = w.replies();
    compare(about, said[0], said[1]);
    return said;
  }
  std::array<std::string, 2> ask(pair_of_wires& w, const std::string& command) {
    ++commands_;
    w.send(command + "\r\n");
    return hear(w, command);
  }
  /// The task that was put or reserved last has another id on each side.
  void ask_about(pair_of_wires& w, const std::array<std::string, 2>& said,
                 const std::string& before, const std::string& after = "") {
    ++commands_;
    std::array<std::string, 2> ids;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t begin = said[i].find(' ') + 1;
      ids[i] = said[i].substr(begin, said[i].find_first_of(" \r", begin) - begin);
    }
    w.send_each(before + ids[0] + after + "\r\n", before + ids[1] + after + "\r\n");
    hear(w, before + "ID" + after);
  }

  void a_lease_ends() {
    auto holder = connect();
    auto other = connect();
    ask(holder, put("5 0 1"));
    const auto task = ask(holder, "reserve");
    other.send("reserve-with-timeout 30\r\n");
    const auto said = other.replies();
    // At times beanstalkd does not notice for 30 s that the lease of one second has ended: then
    // there is nothing to compare with.
    if (said[0].starts_with("RESERVED ") && said[1] == "TIMED_OUT\r\n") return;
    compare("the other one gets it", said[0], said[1]);
    ask_about(holder, task, "delete ");
    ask_about(holder, task, "release ", " 1 0");
    ask_about(other, task, "stats-job ");
    ask_about(other, task, "delete ");
  }
  void a_delay_ends() {
    auto w = connect();
    ask(w, put("5 1 60"));
    ask(w, "reserve-with-timeout 0");
    const auto task = ask(w, "reserve-with-timeout 30");
    ask_about(w, task, "stats-job ");
    ask_about(w, task, "delete ");
  }
  void a_pause_ends() {
    auto w = connect();
    const auto task = ask(w, put("5 0 60"));
    ask(w, "pause-tube " + tube_ + " 1");
    if (random_() % 2 == 0) ask(w, "reserve-with-timeout 0");
    ask(w, "reserve-with-timeout 30");
    ask_about(w, task, "stats-job ");
    ask(w, "stats-tube " + tube_);
    ask_about(w, task, "delete ");
  }
  void a_lease_ends_soon() {
    auto w = connect();
    ask(w, put("5 0 2"));
    const auto task = ask(w, "reserve");
    ask(w, "reserve-with-timeout 30");
    if (random_() % 2 == 0) {
      ask_about(w, task, "touch ");
      ask(w, "reserve-with-timeout 30");
    }
    if (random_() % 2 == 0) {
      ask_about(w, task, "release ", " 7 0");
      ask(w, "reserve-with-timeout 30");
    }
    ask_about(w, task, "delete ");
    ask(w, "reserve-with-timeout 0");
  }
  void half_closed() {
    auto w = connect();
    w.send(
        "reserve\r\nlist-tube-used\r\nreserve\r\nreserve-with-timeout "
        "10\r\nlist-tubes-watched\r\n");
    commands_ += 5;
    w.finish();
    const auto said = w.rest();
    compare("a half-closed client", said[0], said[1]);
  }
  void several_wait() {
    const std::size_t count = 2 + random_() % 4;
    std::vector<pair_of_wires> waiting;
    for (std::size_t i = 0; i < count; ++i) {
      waiting.push_back(connect());
      waiting.back().send("reserve-with-timeout 30\r\n");
    }
    auto w = connect();
    // Not in the order in which they wait, and at once or later.
    for (std::size_t i = 0; i < count; ++i) {
      const std::string body(i + 1, 'b');
      ask(w, "put 9 " + std::to_string(random_() % 2) + " 60 " + std::to_string(body.size()) +
                 "\r\n" + body);
    }
    std::array<std::vector<std::string>, 2> all;
    for (pair_of_wires& each : waiting) {
      const auto said = each.replies();
      for (std::size_t side = 0; side < 2; ++side) all[side].push_back(without_id(said[side]));
    }
    for (auto& side : all) std::sort(side.begin(), side.end());
    for (std::size_t i = 0; i < count; ++i) compare("one that waited", all[0][i], all[1][i]);
    ask(w, "reserve-with-timeout 0");
  }
  void a_wait_ends() {
    auto w = connect();
    ask(w, put("5 60 60"));
    ask(w, "reserve-with-timeout 1");
    ask(w, put("5 0 60"));
    ask(w, "pause-tube " + tube_ + " 60");
    ask(w, "reserve-with-timeout 1");
    ask(w, "pause-tube " + tube_ + " 0");
    ask(w, "reserve-with-timeout 30");
  }
  void released_with_delay() {
    auto w = connect();
    ask(w, put("5 0 60"));
    const auto task = ask(w, "reserve");
    ask_about(w, task, "release ", " 7 1");
    ask(w, "reserve-with-timeout 0");
    ask(w, "reserve-with-timeout 30");
    ask_about(w, task, "stats-job ");
    ask_about(w, task, "bury ", " 3");
    ask(w, "kick 5");
    ask_about(w, task, "stats-job ");
  }
  /// They become ready in any order, and are taken when all are.
  void delayed_by_priority() {
    auto w = connect();
    const std::size_t count = 2 + random_() % 6;
    for (std::size_t i = 0; i < count; ++i) {
      ask(w, put(std::to_string(random_() % 4'000'000'000) + " 1 60"));
    }
    auto watching = connect();
    for (std::array<std::string, 2> said;
         said[0] != "NOT_FOUND\r\n" || said[1] != "NOT_FOUND\r\n";) {
      watching.send("peek-delayed\r\n");
      said = watching.replies();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    for (std::size_t i = 0; i <= count; ++i) ask(w, "reserve-with-timeout 0");
  }
  void a_client_disappears() {
    auto other = connect();
    {
      auto w = connect();
      ask(w, put("5 0 60"));
      ask(w, put("6 0 60"));
      ask(w, "reserve");
      ask(w, "reserve");
      other.send("reserve-with-timeout 30\r\n");
    }
    // Whichever of the two comes back first.
    const auto said = other.replies();
    compare("one that waits gets one", said[0].substr(0, 8), said[1].substr(0, 8));
    const auto second = [&] {
      other.send("reserve-with-timeout 30\r\n");
      return other.replies();
    }();
    compare("and the other", second[0].substr(0, 8), second[1].substr(0, 8));
    ask(other, "reserve-with-timeout 0");
  }

  std::uint16_t ours_;
  std::uint16_t theirs_;
  std::string tube_;
  std::mt19937_64 random_;
  std::string log_;
  std::string difference_;
  int commands_{0};
};

/// Many scenes at a time, each in a tube of its own.
TEST_F(differential, leases_delays_and_pauses_that_end_are_answered_alike) {
  const int total = commands() / 20;
  std::atomic<int> done{0};
  std::atomic<int> repeated{0};
  std::mutex lock;
  std::vector<std::string> differences;
  std::vector<std::thread> threads;
  for (int i = 0; i < 40; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; done.load() < total; ++n) {
        const std::uint64_t chosen =
            seed_ * 1'000'003 + static_cast<std::uint64_t>(n) * 40 + static_cast<std::uint64_t>(i);
        std::string difference;
        for (int attempt = 0; attempt < 4; ++attempt) {
          const std::string tube = "scene-" + std::to_string(i) + "-" + std::to_string(n) + "-" +
                                   std::to_string(attempt);
          scene s(our_port(), their_port(), tube, chosen);
          try {
            difference = s.play();
          } catch (const std::exception& e) {
            difference = e.what();
          }
          done.fetch_add(s.commands());
          if (difference.empty()) break;
          repeated.fetch_add(1);
        }
        if (difference.empty()) continue;
        std::lock_guard held(lock);
        differences.push_back(difference);
        if (differences.size() > 2) return;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& d : differences) ADD_FAILURE() << d;
  if (repeated.load() != 0) std::printf("%d scenes were played again\n", repeated.load());
  EXPECT_GE(done.load(), total);
}

}  // namespace
