// SPDX-License-Identifier: Apache-2.0

// What timers are called by: labels, and the places where they were made. And the names of code.

#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <support/patience.h>
#include <sys/mman.h>
#include <unistd.h>
#include <verge/chan.h>
#include <verge/dump.h>
#include <verge/log.h>
#include <verge/runtime.h>
#include <verge/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <base/code_name.h>
#include <base/elf_symbols.h>
#include <base/file_descriptor.h>
#include <node/named_behaviours.h>
#include <support/engines.h>

// The same once more as where the C library has no _dl_find_object.
#undef DLFO_STRUCT_HAS_EH_DBASE
#define type_in type_in_by_lock
#define name_of_code name_of_code_by_lock
#define function_at function_at_by_lock
#define short_name short_name_by_lock
#define name_of_work name_of_work_by_lock
#include <base/code_name.cc>  // NOLINT(bugprone-suspicious-include)
#undef type_in
#undef name_of_code
#undef function_at
#undef short_name
#undef name_of_work

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using verge::test::eventually;

#if defined(__cpp_lib_source_location)
constexpr bool knows_places = true;
#else
constexpr bool knows_places = false;
#endif

std::string here(int line) { return "label_test.cc:" + std::to_string(line) + ' '; }

std::string dump(verge::runtime& rt) {
  std::ostringstream text;
  verge::write_dump(text, rt, {.timers = 100});
  return text.str();
}

/// The timers of a runtime with that label, or made in that place.
verge::label_stats of(verge::runtime& rt, const std::string& label, const std::string& place = {}) {
  for (const verge::label_stats& l : rt.stats().labels) {
    if (l.label == label && (place.empty() || l.place.starts_with(place))) return l;
  }
  return {};
}

void plain() {}
void another() {}

TEST(place, tells_two_lambdas_of_one_function_apart) {
  if (!knows_places) GTEST_SKIP() << "there is no std::source_location";
  verge::runtime rt({.processors = 1});
  const int line = __LINE__;
  const auto a = verge::after_func(rt, 1h, [] {});
  const auto b = verge::after_func(rt, 2h, [] {});
  const std::string text = dump(rt);
  EXPECT_THAT(text, HasSubstr("timer in 3600 s: " + here(line + 1)));
  EXPECT_THAT(text, HasSubstr("timer in 7200 s: " + here(line + 2)));
  EXPECT_THAT(text, HasSubstr("TestBody"));  // the function
}

TEST(place, tells_function_pointers_apart_and_functions_of_one_type) {
  if (!knows_places) GTEST_SKIP() << "there is no std::source_location";
  verge::runtime rt({.processors = 1});
  std::vector<verge::timer> all;
  const std::function<void()> f = [] {};
  const int line = __LINE__;
  all.push_back(verge::after_func(rt, 1h, &plain));
  all.push_back(verge::after_func(rt, 2h, &another));
  all.push_back(verge::after_func(rt, 3h, f));
  all.push_back(verge::after_func(rt, 4h, f));
  const std::string text = dump(rt);
  for (int i = 1; i <= 4; ++i) {
    EXPECT_THAT(text, HasSubstr("timer in " + std::to_string(3600 * i) + " s: " + here(line + i)));
  }
}

TEST(place, is_known_of_callables_of_every_size_and_of_every_way_to_make_a_timer) {
  if (!knows_places) GTEST_SKIP() << "there is no std::source_location";
  verge::runtime rt({.processors = 1});
  std::array<char, 1> one{};
  std::array<char, 16> sixteen{};
  std::array<char, 17> more{};
  std::vector<verge::timer> timers;
  std::vector<verge::ticker> tickers;
  const auto later = verge::clock::now() + 1h;
  const int line = __LINE__;
  timers.push_back(verge::after_func(rt, 1h, [one] { static_cast<void>(one); }));
  timers.push_back(verge::after_func(rt, 1h, [sixteen] { static_cast<void>(sixteen); }));
  timers.push_back(verge::after_func(rt, 1h, [more] { static_cast<void>(more); }));
  timers.push_back(verge::after_func(rt, later, [] {}));
  timers.emplace_back(rt, 1h);
  timers.emplace_back(rt, later);
  tickers.push_back(verge::every(rt, 1h, [] {}));
  tickers.push_back(verge::every(rt, later, 1h, [] {}));
  tickers.push_back(verge::ticker(rt, 1h));                              // NOLINT(*-use-emplace)
  tickers.push_back(verge::ticker(rt, 1h, verge::missed_ticks::burst));  // NOLINT(*-use-emplace)
  const auto after = verge::after(rt, 1h);
  const auto tick = verge::tick(rt, 1h);
  auto sleeper = rt.spawn([&]() -> verge::task<> { co_await verge::sleep(1h); });
  auto until = rt.spawn([&]() -> verge::task<> { co_await verge::sleep_until(later); });
  ASSERT_TRUE(eventually([&] { return rt.stats().total.timers_live == 14; }));
  const std::string text = dump(rt);
  // emplace_back makes the object elsewhere: in a header of the standard library.
  for (const int i : {1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14}) {
    EXPECT_THAT(text, HasSubstr(": " + here(line + i))) << "line " << i;
  }
  sleeper.cancel();
  until.cancel();
}

verge::timer in_a_minute(verge::runtime& rt,
                         verge::code_place where = verge::code_place::current()) {
  return verge::after_func(rt, 1min, [] {}, {.place = where});
}

TEST(place, can_be_passed_on_by_a_function_that_makes_timers) {
  if (!knows_places) GTEST_SKIP() << "there is no std::source_location";
  verge::runtime rt({.processors = 1});
  const int line = __LINE__;
  const auto a = in_a_minute(rt);
  const auto b = in_a_minute(rt);
  EXPECT_THAT(dump(rt), HasSubstr(here(line + 1)));
  EXPECT_THAT(dump(rt), HasSubstr(here(line + 2)));
}

TEST(label, is_shown_with_the_place) {
  verge::runtime rt({.processors = 1});
  const int line = __LINE__ + 1;
  const auto t = verge::after_func(rt, 1h, [] {}, {.label = "idle time-out"});
  const std::string text = dump(rt);
  EXPECT_THAT(text, HasSubstr("timer in 3600 s: idle time-out"));
  if (knows_places) {
    EXPECT_THAT(text, HasSubstr("idle time-out (" + here(line)));
  }
}

// The text may end with what has given it: a plugin that is unloaded.
TEST(label, is_copied) {
  verge::runtime rt({.processors = 1});
  std::string text = "of a plugin";
  auto t = verge::after_func(rt, 1h, [] {}, {.label = text.c_str()});
  text = "overwritten";
  EXPECT_THAT(dump(rt), HasSubstr("of a plugin"));
}

class labels_of_engine : public testing::TestWithParam<verge::engine> {};

TEST_P(labels_of_engine, count_what_has_fired_of_every_kind_of_timer) {
  verge::runtime rt({.processors = 2, .engine = GetParam()});
  std::atomic<int> fired = 0;
  std::vector<verge::timer> timers;
  for (int i = 0; i < 40; ++i) {
    timers.push_back(verge::after_func(rt, 1ms, [&] { ++fired; }, {.label = "function"}));
  }
  verge::timer channel(rt, 2ms, {.label = "channel"});
  channel.c().recv();
  verge::ticker ticks(rt, 1ms, verge::missed_ticks::skip, {.label = "ticker"});
  for (int i = 0; i < 3; ++i) ticks.c().recv();
  ticks.stop();
  const auto every =
      verge::every(rt, 1ms, [&] { ++fired; }, verge::missed_ticks::skip, {.label = "every"});
  verge::after(rt, 1ms, {.label = "after"}).recv();
  verge::sleep(rt, 1ms, {.label = "sleep"}).wait();
  rt.run([]() -> verge::task<> { co_await verge::sleep(1ms, {.label = "sleep in a task"}); });
  ASSERT_TRUE(eventually([&] { return of(rt, "function").fired == 40; }));
  ASSERT_TRUE(eventually([&] { return of(rt, "every").fired >= 3; }));
  EXPECT_EQ(of(rt, "channel").fired, 1);
  EXPECT_GE(of(rt, "ticker").fired, 3);
  EXPECT_EQ(of(rt, "after").fired, 1);
  EXPECT_EQ(of(rt, "sleep").fired, 1);
  EXPECT_EQ(of(rt, "sleep in a task").fired, 1);
  std::uint64_t all = 0;
  const verge::runtime_stats s = rt.stats();
  for (const verge::label_stats& l : s.labels) all += l.fired;
  EXPECT_NEAR(static_cast<double>(all), static_cast<double>(s.total.timers_fired), 3)
      << "the ticker goes on";
}

/// They fire in one batch, and those of one name that follow each other are counted together.
TEST(label, timers_that_are_due_together_are_counted_each_by_its_name) {
  verge::runtime rt({.processors = 1});
  constexpr std::array names{"a", "b", "a", "b", "b", "c"};
  rt.run([&] {
    const auto due = verge::clock::now() + 1ms;
    for (const char* name : names) {
      verge::after_func(rt, 1ms, [] {}, {.label = name}).detach();
    }
    while (verge::clock::now() < due + 1ms) std::this_thread::yield();
  });
  ASSERT_TRUE(eventually([&] { return rt.stats().total.timers_fired >= names.size(); }));
  EXPECT_EQ(of(rt, "a").fired, 2);
  EXPECT_EQ(of(rt, "b").fired, 3);
  EXPECT_EQ(of(rt, "c").fired, 1);
}

INSTANTIATE_TEST_SUITE_P(engines, labels_of_engine, testing::ValuesIn(verge::engines()),
                         [](const auto& of) { return std::string(verge::name_of(of.param)); });

TEST(label, has_the_number_of_its_pending_timers) {
  verge::runtime rt({.processors = 2});
  std::vector<verge::timer> timers;
  const auto start = [&](int n, const char* label) {
    for (int i = 0; i < n; ++i) {
      timers.push_back(verge::after_func(rt, 1h, [] {}, {.label = label}));
    }
  };
  start(3000, "many");
  start(1000, "few");
  EXPECT_NEAR(static_cast<double>(of(rt, "many").pending), 3000, 60);
  EXPECT_NEAR(static_cast<double>(of(rt, "few").pending), 1000, 60);
  timers.resize(1500);
  EXPECT_NEAR(static_cast<double>(of(rt, "many").pending), 1500, 2);
  EXPECT_EQ(of(rt, "few").pending, 0);
}

TEST(label, those_beyond_a_hundred_are_counted_as_others) {
  verge::runtime rt({.processors = 1});
  std::vector<std::string> texts;
  std::vector<verge::timer> timers;
  for (int i = 0; i < 150; ++i) {
    texts.push_back("label " + std::to_string(i));
    timers.push_back(verge::after_func(rt, 1h, [] {}, {.label = texts.back().c_str()}));
  }
  const auto all = rt.stats().labels;
  EXPECT_EQ(all.size(), 101U);
  std::uint64_t others = 0;
  for (const auto& l : all) others += l.place == "others" ? l.pending : 0;
  EXPECT_EQ(others, 50U);
}

TEST(label, timers_of_one_name_and_several_types_are_counted_together) {
  verge::runtime rt({.processors = 1});
  const auto make = [&](auto f, auto where) {
    return verge::after_func(rt, 1h, f, {.label = "one", .place = where});
  };
  const auto where = verge::code_place::current();
  const auto a = make([] {}, where);
  const auto b = make(&plain, where);
  std::size_t rows = 0;
  const auto all = rt.stats().labels;
  for (const auto& l : all) rows += l.label == "one";
  EXPECT_EQ(rows, 1);
  EXPECT_EQ(of(rt, "one").pending, 2);
}

TEST(label, named_behaviours_are_found_again_and_texts_are_the_librarys) {
  using verge::detail::named_behaviour;
  using verge::detail::named_behaviours;
  static constexpr verge::detail::timer_behaviour base{
      .fire = nullptr, .invoke = nullptr, .destroy = nullptr, .written = "a word"};
  static constexpr const char* label = "x";
  const auto& a = named_behaviour(base, label, nullptr);
  EXPECT_EQ(&a, &named_behaviour(base, label, nullptr));
  EXPECT_NE(&a, &named_behaviour(base, nullptr, nullptr));
  EXPECT_EQ(named_behaviours::unnamed(&a), &base);
  EXPECT_EQ(named_behaviours::unnamed(&base), &base);
  EXPECT_EQ(&named_behaviours::at(named_behaviours::number_of(&a)), &a);
  EXPECT_EQ(named_behaviours::number_of(&base), 0);
  EXPECT_STREQ(a.label, "x");
  EXPECT_NE(a.label, label);
  EXPECT_STREQ(a.written, "a word");
  // Another behaviour at the same address, as in a plugin that is loaded where one was unloaded.
  verge::detail::timer_behaviour changing = base;
  const auto& before = named_behaviour(changing, label, nullptr);
  changing.fire = [](verge::detail::timer_node&, std::int64_t) noexcept {};
  const auto& now = named_behaviour(changing, label, nullptr);
  EXPECT_NE(&before, &now);
  EXPECT_EQ(now.fire, changing.fire);
}

// As with a compiler that has no std::source_location.
TEST(label, without_label_and_place_a_timer_is_named_after_its_type) {
  const auto f = [] {};
  const auto& does = verge::detail::behaviour_with<std::remove_const_t<decltype(f)>>({});
  EXPECT_NE(verge::detail::named_behaviours::number_of(&does), 0);
  EXPECT_EQ(&does, &verge::detail::behaviour_with<std::remove_const_t<decltype(f)>>({}));
  EXPECT_THAT(verge::detail::name_of(does), HasSubstr("is_named_after_its_type"));
  EXPECT_THAT(verge::detail::name_of(does), testing::Not(HasSubstr("written_as")));
}

TEST(label, too_many_are_none_and_said_once) {
  EXPECT_EXIT(
      {
        static std::atomic<int> said = 0;
        verge::set_log_handler([](verge::log_level, std::string_view text) noexcept {
          said += text.find("too many different labels") != std::string_view::npos;
        });
        verge::runtime rt({.processors = 1});
        std::vector<std::string> texts(3000, "label");
        std::vector<verge::timer> timers;
        for (const auto& text : texts) {
          timers.push_back(verge::after_func(rt, 1h, [] {}, {.label = text.c_str()}));
        }
        const auto all = rt.stats().labels;
        std::uint64_t pending = 0;
        for (const auto& l : all) pending += l.pending;
        const bool right =
            said == 1 && all.size() <= 102 && pending > 2990 && pending < 3010 &&
            verge::detail::named_behaviours::size() == verge::detail::named_behaviours::most;
        std::_Exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(short_name, is_a_function_without_what_it_returns_and_takes) {
  using verge::detail::short_name;
  EXPECT_EQ(short_name("int main()"), "main");
  EXPECT_EQ(short_name("void shop::remind(int, std::vector<int>)"), "shop::remind");
  EXPECT_EQ(short_name("std::map<int, long int> shop::s<T>::all(F&&) const [with T = int]"),
            "shop::s<T>::all");
  EXPECT_EQ(short_name("verge::task<> {anonymous}::serve(verge::tcp_listener&)"),
            "{anonymous}::serve");
  EXPECT_EQ(short_name("shop::open(int)::<lambda()>"), "shop::open(int)::<lambda()>");
  EXPECT_EQ(short_name(""), "");
}

// ---- Names of code ------------------------------------------------------------------------------

/// Only in memory: a header, a table of symbols, their names.
class elf_file {
 public:
  static constexpr std::uint64_t begin = 0x1000;
  static constexpr std::uint64_t size = 0x10;

  struct content {
    Elf64_Ehdr header{};
    Elf64_Shdr sections[3]{};
    Elf64_Sym symbols[2]{};
    char names[16] = ".thing.function";
  };

  elf_file() {
    std::memcpy(is.header.e_ident, ELFMAG, SELFMAG);
    is.header.e_ident[EI_CLASS] = ELFCLASS64;
    is.header.e_type = ET_EXEC;
    is.header.e_shoff = offsetof(content, sections);
    is.header.e_shnum = 3;
    is.sections[1].sh_type = SHT_SYMTAB;
    is.sections[1].sh_link = 2;
    is.sections[1].sh_offset = offsetof(content, symbols);
    is.sections[1].sh_size = sizeof is.symbols;
    is.sections[2].sh_type = SHT_STRTAB;
    is.sections[2].sh_offset = offsetof(content, names);
    is.sections[2].sh_size = sizeof is.names;
    is.names[0] = is.names[6] = '\0';
    is.symbols[0] = {.st_name = 1,
                     .st_info = STT_OBJECT,
                     .st_other = 0,
                     .st_shndx = 0,
                     .st_value = begin,
                     .st_size = size};
    is.symbols[1] = {.st_name = 7,
                     .st_info = STT_FUNC,
                     .st_other = 0,
                     .st_shndx = 0,
                     .st_value = begin,
                     .st_size = size};
  }

  /// "name+offset", or nothing.
  std::string at(std::uint64_t address) const {
    return in({reinterpret_cast<const char*>(&is), sizeof is}, address);
  }
  static std::string in(std::string_view file, std::uint64_t address) {
    const verge::detail::file_descriptor fd(::memfd_create("elf", MFD_CLOEXEC));
    EXPECT_EQ(::write(fd.get(), file.data(), file.size()), static_cast<ssize_t>(file.size()));
    const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
    const auto found = verge::detail::find_elf_symbol(path.c_str(), address, 0);
    return found ? found->name + '+' + std::to_string(found->offset) : "";
  }

  content is;
};

TEST(a_symbol, is_found_from_its_first_byte_to_its_last) {
  const elf_file elf;
  EXPECT_EQ(elf.at(elf_file::begin - 1), "");
  EXPECT_EQ(elf.at(elf_file::begin), "function+0");
  EXPECT_EQ(elf.at(elf_file::begin + elf_file::size - 1), "function+15");
  EXPECT_EQ(elf.at(elf_file::begin + elf_file::size), "");
}

TEST(a_symbol, of_a_library_counts_from_where_it_lies) {
  elf_file elf;
  elf.is.header.e_type = ET_DYN;
  elf.is.sections[1].sh_type = SHT_DYNSYM;
  EXPECT_EQ(elf.at(elf_file::begin + 3), "function+3") << "the base is 0";
}

/// Each file would have the symbol but for one fault. None is read beyond its end, or forever.
TEST(a_symbol, is_not_found_in_a_damaged_file) {
  elf_file magic;
  magic.is.header.e_ident[1] = 'X';
  EXPECT_EQ(magic.at(elf_file::begin), "");
  elf_file narrow;
  narrow.is.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(narrow.at(elf_file::begin), "");
  elf_file sections;
  sections.is.header.e_shoff = sizeof(elf_file::content) - 1;
  EXPECT_EQ(sections.at(elf_file::begin), "");
  elf_file names;
  names.is.sections[1].sh_link = 1000;
  EXPECT_EQ(names.at(elf_file::begin), "");
  elf_file table;
  table.is.sections[1].sh_size = std::uint64_t{1} << 62;
  EXPECT_EQ(table.at(elf_file::begin + elf_file::size), "");
  elf_file name;
  name.is.symbols[1].st_name = 100'000;
  EXPECT_EQ(name.at(elf_file::begin), "+0");
}

/// The file ends with a page, and behind that there may be no memory.
TEST(a_symbol, has_a_name_up_to_the_end_of_the_file) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  elf_file elf;
  elf.is.sections[2].sh_offset = page - 8;
  elf.is.symbols[1].st_name = 0;
  std::string file(page, '\0');
  std::memcpy(file.data(), &elf.is, sizeof elf.is);
  file.replace(page - 8, 8, "function");
  EXPECT_EQ(elf_file::in(file, elf_file::begin), "function+0");
}

TEST(type_in, is_the_type_and_nothing_around_it) {
  EXPECT_EQ(verge::detail::type_in("void f() [with F = shop::order]"), "shop::order");
  EXPECT_EQ(verge::detail::type_in("void f() [F = shop::order]"), "shop::order");
  EXPECT_EQ(verge::detail::type_in("shop::order"), "shop::order");
  EXPECT_EQ(verge::detail::type_in(nullptr), "");
}

TEST(code, without_a_symbol_is_named_after_its_file) {
  Dl_info info{};
  ASSERT_NE(::dladdr(reinterpret_cast<const void*>(&::getenv), &info), 0);
  const std::string path = info.dli_fname;
  const std::string file = path.substr(path.rfind('/') + 1);
  // A file begins with its header, which is in memory and no function.
  const auto* const header = static_cast<const char*>(info.dli_fbase);
  EXPECT_EQ(verge::detail::name_of_code(header), file + "+0x0");
  EXPECT_EQ(verge::detail::name_of_code(header + 0x11), file + "+0x11");
  EXPECT_EQ(verge::detail::name_of_code(nullptr), "0x0");
}

TEST(code, has_the_same_name_where_it_is_found_with_the_dynamic_linkers_lock) {
  for (const void* const address :
       {reinterpret_cast<const void*>(&plain), reinterpret_cast<const void*>(&::getenv)}) {
    const std::string name = verge::detail::name_of_code(address);
    EXPECT_THAT(name, testing::EndsWith("+0x0"));
    EXPECT_EQ(verge::detail::name_of_code_by_lock(address), name);
  }
  Dl_info info{};
  ASSERT_NE(::dladdr(reinterpret_cast<const void*>(&::getenv), &info), 0);
  EXPECT_EQ(verge::detail::name_of_code_by_lock(info.dli_fbase),
            verge::detail::name_of_code(info.dli_fbase));
  EXPECT_EQ(verge::detail::name_of_code_by_lock(nullptr), "0x0");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which count otherwise
TEST(code, whose_name_was_asked_for_long_ago_takes_no_memory) {
  const auto look_up = [](std::uintptr_t from, std::uintptr_t n) {
    for (std::uintptr_t i = from; i < from + n; ++i) {
      verge::detail::name_of_code(reinterpret_cast<const void*>(i));  // NOLINT: it is not used
    }
  };
  look_up(1, 9'000);
  const std::size_t before = ::mallinfo2().uordblks;
  look_up(10'000, 50'000);
  EXPECT_LT(::mallinfo2().uordblks, before + (std::size_t{1} << 20)) << "bytes";
}
#endif

/// Which may be relative to where it was started, or what its caller wanted.
TEST(code, of_a_program_has_its_name_whatever_the_program_is_called) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "no such file", "--gtest_brief=1",
            "--gtest_filter=code.has_the_same_name*", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
