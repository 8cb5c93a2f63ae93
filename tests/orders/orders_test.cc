// SPDX-License-Identifier: Apache-2.0

// Parts of the library, compiled as they are, under every schedule of a few threads and every value
// that C++ allows a load to return (scene.h says how). And: each acquire, release and seq_cst that
// these parts have is needed, or has a verdict.
//
//   VERGE_ORDERS=weaken orders_test --gtest_filter=*weakened*
//
// weakens them one at a time, by the line of the source: a scene must fail. It takes minutes, and
// is a step of ./dev check.

#include <orders/fiber_locals.h>
#include <orders/scene.h>
#include <orders/traced_memory.h>
#include <orders/tracing.h>

#include <gtest/gtest.h>
#include <memory/thread_slot.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace verge::orders {

void require(bool holds, const char* what) {
  if (holds) return;
  const bool was = std::exchange(tracing::busy, true);
  if (auto* e = test::explorer::active()) e->fail("require", what);
  tracing::busy = was;
  throw std::logic_error(what);
}

namespace {

using part = traced_memory::part;

/// A scene as the explorer's program.
class scene_program final : public test::program {
 public:
  explicit scene_program(const scene_kind& k) : kind_(k), threads_(k.make()->threads()) {}
  ~scene_program() override {
    tracing::on = false;
    fiber_locals::now().end();
    static_cast<void>(scene_.release());  // it may have failed half-way
  }
  scene_program(const scene_program&) = delete;
  scene_program& operator=(const scene_program&) = delete;

  [[nodiscard]] std::size_t threads() const override { return threads_; }
  void prepare() override {
    tracing::on = false;
    scene_ = kind_.make();
    fiber_locals::now().begin(
        [](std::size_t i) { detail::this_thread_slot = static_cast<std::uint32_t>(i); });
    traced_memory::now()->begin(kind_.stale_reads);
    begin_system();
    tracing::on = true;
  }
  void run(std::size_t i) override {
    fiber_locals::now().enter(i);
    tracing::busy = false;
    scene_->run(i);
    tracing::busy = true;
    fiber_locals::now().leave(i);
  }
  void inspect() override {}
  void finish() override {
    tracing::on = false;
    fiber_locals::now().end();
    try {
      scene_->finish();
    } catch (const std::logic_error& wrong) {
      explorer_.fail("require", wrong.what());
    }
    scene_.reset();
    traced_memory::now()->end();
  }

  test::outcome explore() {
    return explorer_.explore(
        *this, kind_.preemptions == any_preemptions ? test::any_number : kind_.preemptions);
  }

 private:
  const scene_kind& kind_;
  std::size_t threads_;
  test::explorer explorer_;
  std::unique_ptr<scene> scene_;
};

std::vector<scene_kind> all_scenes() {
  std::vector<scene_kind> all;
  for (auto* list : {&lock_scenes, &queue_scenes, &event_scenes, &channel_scenes, &memory_scenes,
                     &timer_scenes, &context_scenes, &descriptor_scenes}) {
    for (const scene_kind& k : (*list)()) all.push_back(k);
  }
  return all;
}

/// Where the addresses are in the source: FILE:LINE of the innermost frame that is ours.
std::map<const void*, std::string> lines_of(const std::set<const void*>& addresses) {
  std::map<const void*, std::string> lines;
  Dl_info program{};
  ::dladdr(reinterpret_cast<const void*>(&all_scenes), &program);
  std::string command = "addr2line -i -a -e /proc/" + std::to_string(::getpid()) + "/exe";
  std::map<std::uintptr_t, const void*> by_offset;
  for (const void* a : addresses) {
    // The call is before the address that it returns to.
    const auto offset = static_cast<std::uintptr_t>(static_cast<const char*>(a) - 1 -
                                                    static_cast<const char*>(program.dli_fbase));
    by_offset[offset] = a;
    char text[32];
    std::snprintf(text, sizeof text, " 0x%lx", static_cast<unsigned long>(offset));
    command += text;
  }
  std::FILE* const out = ::popen(command.c_str(), "r");
  if (out == nullptr) return lines;
  char text[4096];
  const void* now = nullptr;
  while (std::fgets(text, sizeof text, out) != nullptr) {
    std::string line(text);
    while (!line.empty() && line.back() == '\n') line.pop_back();
    if (line.starts_with("0x")) {
      now = by_offset[std::strtoull(line.c_str(), nullptr, 16)];
      continue;
    }
    line = line.substr(0, line.find(" ("));
    if (line.starts_with("/usr/") || now == nullptr || lines.contains(now)) continue;
    const std::size_t src = line.find("/src/");
    const std::size_t include = line.find("/include/verge/");
    const std::size_t tests = line.find("/tests/orders/");
    const std::size_t cut = std::min({src, include, tests});
    lines[now] = cut == std::string::npos ? line : line.substr(cut + 1);
  }
  ::pclose(out);
  return lines;
}

/// With the addresses in it as lines of the source.
std::string readable(std::string text) {
  std::set<const void*> addresses;
  for (std::size_t at = 0; (at = text.find(" at 0x", at)) != std::string::npos; at += 4) {
    addresses.insert(
        reinterpret_cast<const void*>(std::strtoull(text.c_str() + at + 4, nullptr, 16)));
  }
  for (const auto& [address, line] : lines_of(addresses)) {
    char hex[32];
    std::snprintf(hex, sizeof hex, "%p", address);
    const std::string from = std::string(" at ") + hex;
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += 4) {
      text.replace(at, from.size(), " at " + line);
    }
  }
  return text;
}

bool is_chosen(const scene_kind& k) {
  const char* only = std::getenv("VERGE_SCENE");
  return only == nullptr || std::string_view(k.name).find(only) != std::string_view::npos;
}

TEST(orders, hold_under_every_schedule_and_every_value_that_a_load_may_return) {
  traced_memory::now()->weakened_part = part::none;
  std::uint64_t schedules = 0;
  for (const scene_kind& k : all_scenes()) {
    if (!is_chosen(k)) continue;
    scene_program p(k);
    const test::outcome all = p.explore();
    schedules += all.schedules;
    std::printf("[ orders ] %-36s %9llu schedules, %10llu steps\n", k.name,
                static_cast<unsigned long long>(all.schedules),
                static_cast<unsigned long long>(all.steps));
    std::fflush(stdout);
    EXPECT_FALSE(all.failed) << k.name << ": "
                             << readable(all.failed->check + ": " + all.failed->detail + "\n" +
                                         all.failed->story);
  }
  std::printf("[ orders ] in all %llu schedules\n", static_cast<unsigned long long>(schedules));
}

const char* name_of(part p) {
  switch (p) {
    case part::acquire:
      return "acquire";
    case part::release:
      return "release";
    case part::total:
      return "seq_cst";
    case part::failure:
      return "acquire of a failure";
    case part::none:
      break;
  }
  return "";
}

/// Which parts of its order can be left out.
std::vector<part> parts_of(const site& s) {
  using enum std::memory_order;
  std::vector<part> parts;
  if (s.order == seq_cst) parts.push_back(part::total);
  const bool fence = s.what == site::kind::fence;
  if (s.what != site::kind::store && !(fence && s.order == seq_cst) && test::acquires(s.order)) {
    parts.push_back(part::acquire);
  }
  if (s.what != site::kind::load && !(fence && s.order == seq_cst) && test::releases(s.order)) {
    parts.push_back(part::release);
  }
  if (s.what == site::kind::compare && test::acquires(s.failure)) parts.push_back(part::failure);
  return parts;
}

std::string text_of_line(const std::string& place) {
  const std::size_t colon = place.rfind(':');
  std::ifstream file(std::string(VERGE_SOURCE_DIR) + "/" + place.substr(0, colon));
  std::string line;
  for (int n = std::atoi(place.c_str() + colon + 1); n > 0 && std::getline(file, line); --n) {
  }
  const std::size_t first = line.find_first_not_of(' ');
  return first == std::string::npos ? line : line.substr(first);
}

/// FILE: PART: TEXT OF THE LINE, and on the next line, indented, why it is kept.
std::map<std::string, std::string> verdicts() {
  std::map<std::string, std::string> all;
  std::ifstream file(std::string(VERGE_SOURCE_DIR) + "/tests/orders/verdicts");
  std::string line;
  std::string key;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == ' ') {
      all[key] += line;
    } else {
      key = line;
    }
  }
  return all;
}

/// Which check fails in that scene, if one does. In another process: what a failed schedule leaves
/// behind, a lock that is held, say, must not be seen by the next.
std::string failure_of(const scene_kind& k) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    // One that leaves a lock taken may end in a real wait for it, after its threads have ended.
    constexpr unsigned patience = 120;
    ::alarm(patience);
    scene_program p(k);
    const test::outcome all = p.explore();
    const std::string text = all.failed ? all.failed->check : "";
    if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(2);
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text(100, ' ');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], text.data(), 100))));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? text : "it crashes";
}

TEST(orders, are_each_needed_as_a_scene_fails_if_one_is_weakened) {
  if (std::getenv("VERGE_ORDERS") == nullptr) {
    GTEST_SKIP() << "takes minutes; VERGE_ORDERS=weaken, as ./dev check orders does";
  }
  traced_memory& memory = *traced_memory::now();
  const std::vector<scene_kind> scenes = all_scenes();
  // Which sites each scene has.
  std::vector<traced_memory::sites> sites_of;
  std::set<const void*> addresses;
  for (const scene_kind& k : scenes) {
    memory.seen.clear();
    memory.recording = true;
    if (is_chosen(k)) {
      scene_program p(k);
      EXPECT_FALSE(p.explore().failed) << k.name;
    }
    memory.recording = false;
    sites_of.push_back(memory.seen);
    for (const auto& [address, s] : memory.seen) addresses.insert(address);
  }
  const auto lines = lines_of(addresses);

  struct place {
    std::set<const void*> addresses;
    std::set<std::size_t> scenes;
  };
  std::map<std::pair<std::string, part>, place> places;
  for (std::size_t i = 0; i < scenes.size(); ++i) {
    for (const auto& [address, s] : sites_of[i]) {
      const auto line = lines.find(address);
      // The scenes' own are not the library's.
      if (line == lines.end() || line->second.starts_with("tests/")) continue;
      for (const part p : parts_of(s)) {
        place& one = places[{line->second, p}];
        one.addresses.insert(address);
        one.scenes.insert(i);
      }
    }
  }
  ASSERT_GT(places.size(), 20U) << "addr2line finds the lines";

  const auto known = verdicts();
  std::set<std::string> used;
  std::set<std::string> caught_too;
  std::size_t caught = 0;
  std::size_t kept = 0;
  for (const auto& [what, one] : places) {
    memory.weakened = one.addresses;
    memory.weakened_part = what.second;
    std::string by;
    for (const std::size_t i : one.scenes) {
      const std::string check = failure_of(scenes[i]);
      if (check.empty()) continue;
      by = std::string(scenes[i].name) + " (" + check + ")";
      break;
    }
    memory.weakened_part = part::none;
    const std::string key = what.first.substr(0, what.first.rfind(':')) + ": " +
                            name_of(what.second) + ": " + text_of_line(what.first);
    if (!by.empty()) {
      ++caught;
      std::printf("[ orders ] caught   %s %s: %s\n", what.first.c_str(), name_of(what.second),
                  by.c_str());
      if (known.contains(key)) caught_too.insert(key);
    } else {
      const auto verdict = known.find(key);
      ++kept;
      std::printf("[ orders ] not seen %s %s: %s\n", what.first.c_str(), name_of(what.second),
                  verdict == known.end() ? "NO VERDICT" : verdict->second.c_str());
      EXPECT_TRUE(verdict != known.end()) << "no scene needs it: " << key;
      used.insert(key);
    }
    std::fflush(stdout);
  }
  for (const std::string& key : caught_too) {
    EXPECT_TRUE(used.contains(key)) << "has a verdict, and is caught: " << key;
  }
  std::printf("[ orders ] %zu orders, %zu caught, %zu kept for another reason\n", places.size(),
              caught, kept);
}

}  // namespace
}  // namespace verge::orders
