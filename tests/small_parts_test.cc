// SPDX-License-Identifier: Apache-2.0

// Parts of a few lines each, for which faults that were put in had been overlooked: repeated system
// calls, fences, notes, descriptors, rings of events, memory that there is not, numbers of threads,
// stores that end, visits, descriptors by number, figures of lateness, equal addresses, and what is
// left of a channel after an error.

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <base/elf_symbols.h>
#include <base/fence.h>
#include <base/file_descriptor.h>
#include <base/futex.h>
#include <base/json_text.h>
#include <base/ready_list.h>
#include <base/runtime_thread.h>
#include <base/system_call.h>
#include <base/trace_log.h>
#include <base/yield_or_sleep.h>
#include <clock/true_clock.h>
#include <memory/page_source.h>
#include <memory/thread_slot.h>
#include <net/source_table.h>
#include <node/node_store.h>
#include <sched/thread_probe.h>
#include <support/lone_engine.h>
#include <support/replaced.h>
#include <support/scale.h>
#include <support/stepper.h>
#include <verge/chan.h>
#include <verge/detail/lateness.h>
#include <verge/endpoint.h>
#include <verge/loop.h>
#include <verge/runtime.h>
#include <verge/select.h>
#include <verge/simulation.h>
#include <verge/time.h>

namespace {

/// As if the kernel had no fences in all threads.
std::atomic<bool> without_membarrier{false};

/// How often the thread has slept.
thread_local int sleeps = 0;

}  // namespace

// NOLINTBEGIN: a replacement has the name and the type of what it replaces.
extern "C" long syscall(long number, ...) noexcept {
  if (number == SYS_membarrier && without_membarrier) {
    errno = ENOSYS;
    return -1;
  }
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  return VERGE_ORIGINAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
extern "C" int nanosleep(const timespec* wanted, timespec* left) {
  ++sleeps;
  return VERGE_ORIGINAL(nanosleep)(wanted, left);
}
// NOLINTEND

namespace verge {
namespace {

/// The end of a file is 0 bytes, and errno may be that of an earlier call.
TEST(a_repeated_system_call, is_repeated_only_if_a_signal_has_interrupted_it) {
  int calls = 0;
  errno = EINTR;
  EXPECT_EQ(detail::uninterrupted([&] { return ++calls, 0; }), 0);
  EXPECT_EQ(calls, 1);
  calls = 0;
  const auto twice_interrupted = [&] {
    errno = EINTR;
    return ++calls < 3 ? -1 : 5;
  };
  EXPECT_EQ(detail::uninterrupted(twice_interrupted), 5);
  EXPECT_EQ(calls, 3);
  calls = 0;
  const auto fails = [&] {
    errno = EBADF;
    return ++calls, -1;
  };
  EXPECT_EQ(detail::uninterrupted(fails), -1);
  EXPECT_EQ(calls, 1);
}

TEST(a_fence_in_all_threads, works_on_this_kernel) {
  EXPECT_TRUE(detail::fence_all_threads());
  without_membarrier = true;
  EXPECT_FALSE(detail::fence_all_threads());
  without_membarrier = false;
}

TEST(a_note, that_was_left_is_found_also_when_the_time_is_over) {
  detail::note n;
  n.leave();
  EXPECT_TRUE(n.wait_until(1)) << "a time long ago";
  EXPECT_FALSE(n.wait_until(1)) << "it is left once";
  n.leave_surely();
  n.leave_surely();
  n.wait();
  EXPECT_FALSE(n.wait_until(1)) << "leaving it twice ends one wait";
}

/// Whether it can be read now, or within that time.
bool readable(const alarm_fd& alarm, int within_ms) {
  pollfd it{.fd = alarm.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&it, 1, within_ms) == 1;
}

TEST(an_alarm, can_be_read_from_its_time_on_and_not_before) {
  constexpr int a_minute = 60'000;
  alarm_fd alarm;
  EXPECT_FALSE(readable(alarm, 0)) << "nothing is set";
  alarm.set(clock::now() - std::chrono::seconds(1));
  EXPECT_TRUE(readable(alarm, a_minute));
  alarm.set(std::nullopt);
  EXPECT_FALSE(readable(alarm, 0)) << "no time";
  alarm.set(clock::time_point::min());
  EXPECT_TRUE(readable(alarm, a_minute)) << "before the clock's first time";
  alarm.set(clock::time_point::max());
  EXPECT_FALSE(readable(alarm, 0)) << "never";
  alarm.set(clock::now() + std::chrono::hours(1));
  EXPECT_FALSE(readable(alarm, 0)) << "the expiry of an earlier time is discarded";
  const auto due = clock::now() + std::chrono::milliseconds(2);
  alarm.set(due);
  EXPECT_TRUE(readable(alarm, a_minute));
  EXPECT_GE(clock::now(), due);
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(a_descriptor, is_closed_by_its_last_owner) {
  detail::file_descriptor a(::eventfd(0, EFD_CLOEXEC));
  detail::file_descriptor b(::eventfd(0, EFD_CLOEXEC));
  const int first = a.get();
  const int second = b.get();
  a = std::move(b);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(a.get(), second);
  EXPECT_FALSE(b);  // NOLINT(bugprone-use-after-move): it is empty
  detail::file_descriptor& same = a;
  a = std::move(same);
  EXPECT_EQ(a.get(), second);
  EXPECT_TRUE(is_open(second));
  { const detail::file_descriptor c(std::move(a)); }
  EXPECT_FALSE(is_open(second));
}

TEST(a_descriptor, that_there_is_none_of_is_not_closed) {
  errno = 0;
  { detail::file_descriptor none; }
  EXPECT_EQ(errno, 0) << "the kernel was not asked";
}

TEST(a_ready_list, is_empty_after_it_was_moved) {
  detail::runnable r;
  detail::ready_list a;
  a.push_back(r);
  detail::ready_list b(std::move(a));
  EXPECT_EQ(b.size(), 1U);
  EXPECT_EQ(a.size(), 0U);  // NOLINT(bugprone-use-after-move): it may be used again
  EXPECT_TRUE(a.empty());
  a = std::move(b);
  EXPECT_EQ(a.size(), 1U);
  EXPECT_EQ(b.size(), 0U);  // NOLINT(bugprone-use-after-move)
  detail::runnable next;
  a.push_back(next);
  EXPECT_EQ(a.pop_front(), &r);
  EXPECT_EQ(a.pop_front(), &next) << "it was put behind the other";
  EXPECT_EQ(a.size(), 0U);
}

TEST(a_ready_list, is_empty_after_it_was_appended_and_can_be_used_again) {
  std::array<detail::runnable, 5> r{};
  detail::ready_list a;
  detail::ready_list b;
  const auto append = [&] { a.append(std::move(b)); };
  append();
  EXPECT_TRUE(a.empty() && a.pop_front() == nullptr);
  b.push_back(r[0]);
  b.push_back(r[1]);
  append();  // to one that is empty
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(b.size(), 0U);
  EXPECT_EQ(b.pop_front(), nullptr);
  b.push_back(r[2]);
  b.push_back(r[3]);
  append();
  EXPECT_TRUE(b.empty());
  a.push_back(r[4]);
  EXPECT_EQ(a.size(), 5U);
  EXPECT_EQ(a.front(), r.data());
  for (std::size_t i = 0; i < r.size(); ++i) {
    EXPECT_EQ(a.size(), r.size() - i);
    EXPECT_EQ(a.pop_front(), &r[i]);
    EXPECT_EQ(r[i].next, nullptr) << "it may be put into another list";
  }
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(a.front(), nullptr);
  a.push_back(r[0]);
  EXPECT_EQ(a.pop_front(), r.data()) << "after the last was taken";
}

/// The ring has one place, which is always being written.
TEST(a_ring_of_events, gives_no_event_that_is_a_mixture_of_two) {
  detail::trace_ring ring(1);
  std::atomic<bool> enough{false};
  std::thread writer([&] {
    for (std::int64_t i = 1; !enough; ++i) ring.add({.time = i, .value = i});
  });
  int seen = 0;
  int mixed = 0;
  const int wanted = test::scale(20'000, 5'000);
  while (seen < wanted && mixed == 0) {
    for (const detail::trace_event& e : ring.since(0).events) {
      ++seen;
      mixed += e.time != e.value;
    }
  }
  enough = true;
  writer.join();
  EXPECT_EQ(mixed, 0);
}

TEST(a_ring_of_events, loses_what_no_longer_fits_and_not_what_was_before_the_recording) {
  detail::trace_ring ring(4);
  const auto add = [&](int n) {
    for (int i = 0; i < n; ++i) ring.add({.time = 1});
  };
  add(2);
  ring.forget();
  add(1);
  EXPECT_EQ(ring.since(0).events.size(), 1U);
  EXPECT_EQ(ring.since(0).lost, 0U);
  add(6);
  EXPECT_EQ(ring.since(0).events.size(), 4U);
  EXPECT_EQ(ring.since(0).lost, 3U);
}

TEST(a_ring_of_events, gives_all_of_an_event_and_only_those_since_a_time) {
  detail::trace_ring ring(8);
  const int id = 0;
  for (std::int64_t i = 1; i <= 5; ++i) {
    ring.add_shared(
        {.time = 10 * i,
         .value = -i,
         .what = i == 3 ? detail::trace_event::kind::reset : detail::trace_event::kind::fire,
         .id = &id,
         .label = "label",
         .written = "written",
         .code = &ring});
  }
  EXPECT_EQ(ring.since(51).events.size(), 0U);
  EXPECT_EQ(ring.since(50).events.size(), 1U);
  EXPECT_EQ(ring.since(49).events.size(), 1U);
  const auto found = ring.since(21);
  EXPECT_EQ(found.lost, 0U) << "what is older was not asked for";
  ASSERT_EQ(found.events.size(), 3U);
  const detail::trace_event& e = found.events[0];
  EXPECT_EQ(e.time, 30);
  EXPECT_EQ(e.value, -3);
  EXPECT_EQ(e.what, detail::trace_event::kind::reset);
  EXPECT_EQ(e.id, &id);
  EXPECT_STREQ(e.label, "label");
  EXPECT_STREQ(e.written, "written");
  EXPECT_EQ(e.code, &ring);
}

/// As of a processor that was idle when a recording began.
TEST(a_ring_of_events, gives_what_began_before_a_time_and_ended_later) {
  using kind = detail::trace_event::kind;
  for (const kind what :
       {kind::callback, kind::task, kind::idle, kind::fire, kind::start, kind::stop, kind::reset}) {
    detail::trace_ring ring(8);
    ring.add({.time = 10, .value = 5, .what = what});
    const bool lasts = what == kind::callback || what == kind::task || what == kind::idle;
    EXPECT_EQ(ring.since(10).events.size(), 1U);
    EXPECT_EQ(ring.since(11).events.size(), lasts ? 1U : 0U);
    EXPECT_EQ(ring.since(15).events.size(), lasts ? 1U : 0U);
    EXPECT_EQ(ring.since(16).events.size(), 0U);
  }
}

TEST(a_text_in_json, has_what_json_does_not_allow_as_numbers) {
  EXPECT_EQ(detail::json_string(""), "\"\"");
  EXPECT_EQ(detail::json_string("a \"b\" \\ c"), R"("a \"b\" \\ c")");
  EXPECT_EQ(detail::json_string(std::string_view("\0\x01\t\x1f ~", 6)),
            R"("\u0000\u0001\u0009\u001f ~")");
  EXPECT_EQ(detail::json_string("\x7f\xc3\xa4"), "\"\x7f\xc3\xa4\"") << "is not changed";
}

/// How many pieces of memory there are.
std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

extern "C" void a_function() {}

/// By the file of this program.
std::string symbol_at(void (*f)()) {
  const auto* const address = reinterpret_cast<const void*>(f);
  Dl_info info{};
  EXPECT_NE(::dladdr(address, &info), 0);
  const auto found =
      detail::find_elf_symbol("/proc/self/exe", reinterpret_cast<std::uintptr_t>(address),
                              reinterpret_cast<std::uintptr_t>(info.dli_fbase));
  return found && found->offset == 0 ? found->name : "";
}

/// A program that has closed its standard input gets that number for the next descriptor.
TEST(a_descriptor, may_have_the_number_zero) {
  const int input = ::dup(0);
  ::close(0);
  {
    std::optional<alarm_fd> alarm;
    EXPECT_TRUE(detail::is_computing(::gettid())) << "reads a file of the kernel's";
    EXPECT_EQ(symbol_at(&a_function), "a_function");
    EXPECT_NO_THROW(alarm.emplace());
    EXPECT_EQ(alarm->fd(), 0);
    alarm->set(clock::now());
    EXPECT_TRUE(readable(*alarm, 60'000));
  }
  if (input >= 0) {
    ::dup2(input, 0);
    ::close(input);
  }
}

/// A file with two functions: a table of sections, which is all that its header counts, symbols and
/// their names.
struct small_file {
  Elf64_Ehdr header{};
  std::array<Elf64_Shdr, 3> sections{};
  std::array<Elf64_Sym, 3> symbols{};
  std::array<char, 32> names{"\0first\0second"};

  static constexpr std::uint64_t first = 0x1000;
  static constexpr std::uint64_t second = 0x2000;
  static constexpr std::uint64_t length = 0x80;

  small_file() {
    std::copy_n(ELFMAG, SELFMAG, header.e_ident);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_type = ET_DYN;
    header.e_shoff = offsetof(small_file, sections);
    header.e_shnum = 3;
    sections[1].sh_type = SHT_STRTAB;
    sections[1].sh_offset = offsetof(small_file, names);
    sections[1].sh_size = sizeof names;
    sections[2].sh_type = SHT_SYMTAB;
    sections[2].sh_offset = offsetof(small_file, symbols);
    sections[2].sh_size = sizeof symbols;
    sections[2].sh_link = 1;
    for (Elf64_Sym& s : symbols) s.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbols[1].st_name = 1;
    symbols[1].st_value = first;
    symbols[2].st_name = 7;
    symbols[2].st_value = second;
    symbols[1].st_size = symbols[2].st_size = length;
  }

  /// The name of what is at an address, where the file lies at `base`: "first+5", or nothing.
  [[nodiscard]] std::string name_of(std::uint64_t address, std::uint64_t base = 0,
                                    std::size_t size = sizeof(small_file)) const {
    const int memory = ::memfd_create("symbols", MFD_CLOEXEC);
    EXPECT_EQ(::write(memory, this, size), static_cast<ssize_t>(size));
    const std::string path = "/proc/self/fd/" + std::to_string(memory);
    const auto found = detail::find_elf_symbol(path.c_str(), address, base);
    ::close(memory);
    return found ? found->name + '+' + std::to_string(found->offset) : "";
  }
};

TEST(a_file_of_symbols, names_each_address_of_a_function_and_no_other) {
  const small_file file;
  EXPECT_EQ(file.name_of(small_file::first - 1), "");
  EXPECT_EQ(file.name_of(small_file::first), "first+0");
  EXPECT_EQ(file.name_of(small_file::first + small_file::length - 1), "first+127");
  EXPECT_EQ(file.name_of(small_file::first + small_file::length), "");
  EXPECT_EQ(file.name_of(small_file::second), "second+0");
  EXPECT_EQ(file.name_of(small_file::second + 3 + 0x555000, 0x555000), "second+3")
      << "it was loaded there";
}

TEST(a_file_of_symbols, that_is_loaded_at_a_fixed_place_has_addresses) {
  small_file file;
  file.header.e_type = ET_EXEC;
  EXPECT_EQ(file.name_of(small_file::second + 3, 0x1000), "second+3");
}

TEST(a_file_of_symbols, is_read_no_further_than_its_header_and_its_tables_say) {
  small_file file;
  file.header.e_shnum = 2;
  EXPECT_EQ(file.name_of(small_file::first), "") << "the third section is none";
  file.header.e_shnum = 3;
  file.sections[2].sh_size = 2 * sizeof(Elf64_Sym);
  EXPECT_EQ(file.name_of(small_file::first), "first+0");
  EXPECT_EQ(file.name_of(small_file::second), "") << "the third symbol is none";
  file.sections[2].sh_size = 3 * sizeof(Elf64_Sym) - 1;
  EXPECT_EQ(file.name_of(small_file::second), "") << "half of it is none either";
  file.sections[2].sh_size = sizeof file.symbols;
  file.symbols[2].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  EXPECT_EQ(file.name_of(small_file::second), "") << "it is no function";
  file.sections[2].sh_type = SHT_PROGBITS;
  EXPECT_EQ(file.name_of(small_file::first), "") << "it is no table of symbols";
}

TEST(a_file_of_symbols, may_have_those_for_the_linker_only) {
  small_file file;
  file.sections[2].sh_type = SHT_DYNSYM;
  EXPECT_EQ(file.name_of(small_file::first + 1), "first+1");
}

TEST(a_file_of_symbols, that_is_damaged_has_none) {
  small_file file;
  for (std::size_t size = 0; size < offsetof(small_file, names); ++size) {
    EXPECT_EQ(file.name_of(small_file::second, 0, size), "") << "of " << size << " bytes";
  }
  EXPECT_EQ(file.name_of(small_file::second, 0, offsetof(small_file, names)), "+0")
      << "its name is not there";
  file.sections[2].sh_link = 1000;
  EXPECT_EQ(file.name_of(small_file::second), "");
  file = {};
  file.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(file.name_of(small_file::second), "");
  file = {};
  file.header.e_ident[0] = 0;
  EXPECT_EQ(file.name_of(small_file::second), "");
}

TEST(a_file_of_symbols, is_in_memory_only_while_it_is_read) {
  EXPECT_EQ(symbol_at(&a_function), "a_function");
  const std::size_t before = mappings();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(symbol_at(&a_function), "a_function");
  EXPECT_LT(mappings(), before + 10);
}

/// A thread with a real-time priority that only yields lets none of lower priority run.
TEST(a_thread_that_waits, sleeps_every_64th_time) {
  const int before = sleeps;
  for (int i = 0; i < 64; ++i) detail::yield_or_sleep();
  EXPECT_EQ(sleeps, before + 1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take some as well

/// How many bytes of address space this process has.
std::size_t address_space() {
  std::array<char, 64> text{};
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  EXPECT_GT(::read(fd, text.data(), text.size() - 1), 0);
  ::close(fd);
  return std::strtoull(text.data(), nullptr, 10) * static_cast<std::size_t>(::getpagesize());
}

TEST(pages, take_no_more_address_space_than_was_asked_for) {
  auto& pages = detail::system_pages();
  constexpr std::size_t mib = std::size_t{1} << 20;
  for (const std::size_t alignment : {std::size_t{4096}, 2 * mib, 8 * mib}) {
    std::array<void*, 5> all{};
    const std::size_t before = address_space();
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = pages.map(mib, alignment);
      ASSERT_NE(all[i], nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(all[i]) % alignment, 0U);
      EXPECT_EQ(address_space(), before + (i + 1) * mib) << "what is cut off is returned";
      *static_cast<char*>(all[i]) = 1;
      static_cast<char*>(all[i])[mib - 1] = 1;
    }
    for (void* const p : all) pages.unmap(p, mib);
    EXPECT_EQ(address_space(), before);
  }
}

#endif

TEST(pages, that_the_system_does_not_have_are_refused) {
  EXPECT_EQ(detail::system_pages().map(std::size_t{1} << 60, 4096), nullptr);
  EXPECT_EQ(detail::system_pages().map(std::size_t{1} << 60, std::size_t{1} << 21), nullptr);
}

TEST(a_thread, has_a_number_of_its_own_and_returns_it) {
  std::uint32_t first = detail::no_thread_slot;
  std::uint32_t second = detail::no_thread_slot;
  const std::uint32_t mine = detail::take_thread_slot();
  ASSERT_NE(mine, detail::no_thread_slot);
  std::thread([&] { first = detail::take_thread_slot(); }).join();
  std::thread([&] { second = detail::take_thread_slot(); }).join();
  ASSERT_NE(first, detail::no_thread_slot);
  EXPECT_NE(first, mine);
  EXPECT_EQ(second, first) << "the lowest that is free";
  EXPECT_GT(detail::thread_slots_used(), first);
}

// ---- Stores of timers ---------------------------------------------------------------------------

/// A store that tells whether it was deleted: what it keeps is released.
class [[gnu::visibility("hidden")]] store final : public detail::node_store {
 public:
  struct [[gnu::visibility("hidden")]] node : detail::timer_node{};

  explicit store(detail::scheduler & s) : node_store(detail::node_layout::of<node>(), s) {}

  detail::timer_node& make() { return *::new (allocate()) node; }
  void free_unseen(detail::timer_node & t) { nodes().free(&static_cast<node&>(t)); }
  using node_store::halt_store;
  /// Returns what is released when the store is deleted.
  std::weak_ptr<int> end(bool hold) {
    auto kept = std::make_shared<int>(0);
    const std::weak_ptr<int> seen = kept;
    close_store();
    end_store(std::move(kept), hold);
    return seen;
  }
};

TEST(a_store_that_ends, is_deleted_at_once_if_it_has_no_nodes) {
  test::stepper s;
  EXPECT_TRUE((new store(s))->end(false).expired());
}

TEST(a_store_that_ends, is_deleted_with_its_last_node) {
  test::stepper s;
  auto* const it = new store(s);
  std::vector<detail::timer_node*> nodes;
  for (int i = 0; i < 300; ++i) nodes.push_back(&it->make());
  const auto kept = it->end(false);
  while (!nodes.empty()) {
    EXPECT_FALSE(kept.expired()) << nodes.size();
    it->free(*nodes.back());
    nodes.pop_back();
  }
  EXPECT_TRUE(kept.expired());
}

/// A thread that found the engine usable just before the store closed frees its node without a
/// visit, and is not seen to do so.
TEST(a_store_that_ends, is_deleted_though_some_nodes_are_freed_unseen) {
  for (const int unseen : {1, 3}) {
    test::stepper s;
    auto* const it = new store(s);
    std::vector<detail::timer_node*> nodes;
    for (int i = 0; i < 5; ++i) nodes.push_back(&it->make());
    const auto kept = it->end(false);
    for (int i = 0; i < unseen; ++i) {
      it->free_unseen(*nodes.back());
      nodes.pop_back();
    }
    while (!nodes.empty()) {
      EXPECT_FALSE(kept.expired()) << nodes.size();
      it->free(*nodes.back());
      nodes.pop_back();
    }
    EXPECT_TRUE(kept.expired());
  }
}

TEST(a_store_that_ends, is_not_deleted_before_it_is_let_go) {
  test::stepper s;
  auto* const it = new store(s);
  detail::timer_node& t = it->make();
  const auto kept = it->end(true);
  it->free(t);
  EXPECT_FALSE(kept.expired());
  it->let_go();
  EXPECT_TRUE(kept.expired());
}

TEST(a_store_that_ends, is_not_deleted_before_its_last_node_if_it_is_let_go_earlier) {
  test::stepper s;
  auto* const it = new store(s);
  detail::timer_node& t = it->make();
  const auto kept = it->end(true);
  it->let_go();
  EXPECT_FALSE(kept.expired());
  it->free(t);
  EXPECT_TRUE(kept.expired());
}

/// Handles that are destroyed with static objects leave all as it is; other threads still run.
TEST(a_store_whose_program_ends, is_given_up_by_the_thread_that_ends_it) {
  test::stepper s;
  auto* const it = new store(s);
  EXPECT_FALSE(it->given_up());
  it->halt_store();
  EXPECT_TRUE(it->given_up());
  std::thread([&] { EXPECT_FALSE(it->given_up()); }).join();
  it->end(false);
}

/// Without fences in all threads it does not know whether another thread is about to use it.
TEST(a_store_that_ends, is_never_deleted_if_threads_may_still_use_it) {
  test::stepper s;
  without_membarrier = true;
  static store* const it = new store(s);  // not a leak, for it can be reached
  detail::timer_node& t = it->make();
  const auto kept = it->end(true);
  without_membarrier = false;
  it->free(t);
  it->let_go();
  EXPECT_FALSE(kept.expired());
  static store* const another = new store(s);
  without_membarrier = true;
  EXPECT_FALSE(another->end(false).expired());
  without_membarrier = false;
}

// ---- Visits of a scheduler ----------------------------------------------------------------------

class [[gnu::visibility("hidden")]] visited final : public test::lone_engine {
 public:
  visited() : lone_engine(engine::hybrid) {}
  using scheduler::wait_for_visitors;
};

TEST(a_visit, by_a_thread_of_the_scheduler_is_not_waited_for) {
  visited s;
  detail::scheduler* const before = std::exchange(detail::this_thread.current, &s);
  {
    const detail::scheduler::visit here(s);
    s.wait_for_visitors();
  }
  detail::this_thread.current = before;
}

TEST(a_visit, by_another_thread_is_waited_for) {
  visited s;
  std::atomic<bool> waits{false};
  std::atomic<bool> over{false};
  std::atomic<bool> returned{false};
  bool was_over = false;
  std::optional<detail::scheduler::visit> here(std::in_place, s);
  std::thread ends([&] {
    waits = true;
    s.wait_for_visitors();
    was_over = over;
    returned = true;
  });
  // Some time in which it could return too early.
  while (!waits) std::this_thread::yield();
  for (int i = 0; i < 100 && !returned; ++i) std::this_thread::yield();
  over = true;
  here.reset();
  ends.join();
  EXPECT_TRUE(was_over);
}

// ---- A signal that asks a thread what it does, in a program that uses this signal itself

#if !defined(__SANITIZE_THREAD__)  // which delays signals

volatile std::sig_atomic_t handled = 0;
const void* handled_for = nullptr;
void handle(int) { handled = 1; }
void handle_with_origin(int, siginfo_t* from, void*) {
  handled = 2;
  handled_for = from;
  errno = 1;
}

/// In a process of its own, as the handler is installed once. True if `check` holds there.
template <class Check>
bool holds_in_a_child(Check check) {
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(check() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool installs_over(void (*handler)(int)) {
  struct sigaction before {};
  before.sa_handler = handler;
  ::sigaction(SIGURG, &before, nullptr);
  return detail::thread_probe::install();
}

TEST(a_signal_that_was_not_sent_to_ask_a_thread, is_for_the_handler_that_was_there_before) {
  EXPECT_TRUE(holds_in_a_child([] {
    if (!installs_over(&handle)) return false;
    ::kill(::getpid(), SIGURG);
    return handled == 1;
  }));
  EXPECT_TRUE(holds_in_a_child([] {
    struct sigaction before {};
    before.sa_sigaction = &handle_with_origin;
    before.sa_flags = SA_SIGINFO;
    ::sigaction(SIGURG, &before, nullptr);
    errno = 77;
    const bool installed = detail::thread_probe::install();
    ::kill(::getpid(), SIGURG);
    return installed && handled == 2 && handled_for != nullptr && errno == 77;
  }));
  for (const auto none : {SIG_DFL, SIG_IGN}) {
    EXPECT_TRUE(holds_in_a_child([none] {
      if (!installs_over(none)) return false;
      ::kill(::getpid(), SIGURG);
      return handled == 0;
    }));
  }
}

TEST(a_signal_that_comes_too_late, is_ignored) {
  EXPECT_TRUE(holds_in_a_child([] {
    if (!installs_over(&handle)) return false;
    // As one does that was asked, and answers when the asker has given up.
    ::syscall(SYS_tgkill, ::getpid(), ::gettid(), SIGURG);
    detail::thread_probe::answer none;
    return handled == 0 && !detail::thread_probe::take(none);
  }));
}

TEST(a_thread_that_is_asked, answers_once_and_one_asks_at_a_time) {
  EXPECT_TRUE(holds_in_a_child([] {
    using detail::thread_probe;
    if (!thread_probe::install()) return false;
    thread_probe::listen();
    thread_probe::answer answer;
    if (thread_probe::take(answer)) return false;
    if (!thread_probe::ask(::gettid())) return false;  // answers within the call
    if (thread_probe::ask(::gettid())) return false;   // the answer was not taken
    const bool answered = thread_probe::take(answer) && answer.count != 0;
    const bool again = thread_probe::take(answer);
    return answered && !again && thread_probe::sent() == 1;
  }));
}

TEST(a_thread_that_is_asked, says_all_that_is_known_of_what_it_runs) {
  EXPECT_TRUE(holds_in_a_child([] {
    using detail::thread_probe;
    if (!thread_probe::install()) return false;
    thread_probe::listen();
    thread_probe::answer answer{};
    detail::job task;
    task.label = "label";
    task.written = "type";
    task.code = &answer;
    detail::this_thread.running = &task;
    if (!thread_probe::ask(::gettid()) || !thread_probe::take(answer)) return false;
    if (!answer.is_task || answer.label != task.label || answer.written != task.written ||
        answer.code != task.code || answer.place != nullptr || answer.turn != 0)
      return false;
    detail::this_thread.running = nullptr;
    return thread_probe::ask(::gettid()) && thread_probe::take(answer) && !answer.is_task &&
           answer.label == nullptr && answer.written == nullptr && answer.code == nullptr &&
           answer.place == nullptr;
  }));
}

TEST(a_thread_that_is_asked, says_which_timers_callback_it_runs) {
  EXPECT_TRUE(holds_in_a_child([] {
    using detail::thread_probe;
    if (!thread_probe::install()) return false;
    simulation sim;
    thread_probe::answer answer{};
    std::atomic<bool> answered{false};
    const auto t = after_func(std::chrono::seconds(1),
                              [&] {
                                thread_probe::listen();
                                answered =
                                    thread_probe::ask(::gettid()) && thread_probe::take(answer);
                              },
                              {.label = "label"});
    sim.run_for(std::chrono::seconds(2));
    return answered && !answer.is_task && answer.label != nullptr && answer.place != nullptr &&
           answer.written != nullptr && answer.code == nullptr &&
           std::string_view(answer.label) == "label" &&
           std::string_view(answer.place).find("small_parts_test") != std::string_view::npos;
  }));
}

TEST(a_thread_that_is_asked, and_answers_when_the_asker_has_given_up_can_be_asked_again) {
  EXPECT_TRUE(holds_in_a_child([] {
    using detail::thread_probe;
    if (!thread_probe::install()) return false;
    thread_probe::listen();
    static bool any = false;
    thread_probe::before_unwinding = []() noexcept {
      thread_probe::answer first;
      any = thread_probe::give_up(first) && first.count == 1;
    };
    thread_probe::answer none;
    if (!thread_probe::ask(::gettid()) || !any || thread_probe::take(none)) return false;
    thread_probe::before_unwinding = nullptr;
    thread_probe::answer answer;
    return thread_probe::ask(::gettid()) && thread_probe::take(answer) && answer.count > 1;
  }));
}

TEST(a_thread_that_is_asked, and_has_ended_leaves_no_question) {
  EXPECT_TRUE(holds_in_a_child([] {
    using detail::thread_probe;
    if (!thread_probe::install()) return false;
    thread_probe::listen();
    constexpr pid_t no_thread = 0x3fffffff;
    if (thread_probe::ask(no_thread) || thread_probe::ask(no_thread)) return false;
    thread_probe::answer answer;
    return thread_probe::ask(::gettid()) && thread_probe::take(answer);
  }));
}

#endif

TEST(a_table_of_descriptors, has_an_entry_for_each_number_and_passes_over_none) {
  detail::source_table<int> table;
  EXPECT_EQ(table.find(-1), nullptr);
  EXPECT_EQ(table.find_or_make(-1), nullptr);
  for (const int highest : {0, 63, 64, 127, 128, 1000, 1024}) {
    ASSERT_NE(table.find_or_make(highest), nullptr);
    // Each of those that were made with it is another one.
    const int all = std::max(64, 1 << std::bit_width(static_cast<unsigned>(highest)));
    for (int fd = 0; fd < all; ++fd) {
      auto* const e = table.find_or_make(fd);
      ASSERT_NE(e, nullptr) << fd;
      e->generation = static_cast<std::uint32_t>(fd);
    }
    EXPECT_EQ(table.find(all), nullptr);
    std::uint32_t next = 0;
    table.for_each([&](auto& e) { EXPECT_EQ(e.generation, next++); });
    EXPECT_EQ(next, static_cast<std::uint32_t>(all));
    for (int fd = 0; fd < all; ++fd) {
      ASSERT_EQ(table.find(fd)->generation, static_cast<std::uint32_t>(fd));
    }
  }
}

TEST(lateness, of_more_than_the_last_bucket_is_for_counts_there) {
  using verge::lateness_histogram;
  constexpr std::int64_t forever = std::numeric_limits<std::int64_t>::max();
  const std::size_t last = lateness_histogram::bucket_count - 1;
  volatile std::int64_t late = forever;  // not by the compiler
  EXPECT_EQ(lateness_histogram::bucket_of(late), last);
  late = lateness_histogram::upper_bound(last);
  EXPECT_EQ(lateness_histogram::bucket_of(late), last);
  EXPECT_EQ(lateness_histogram::bucket_of(late - 1), last);
  for (std::size_t b = 0; b < last; ++b) {
    late = lateness_histogram::upper_bound(b);
    EXPECT_EQ(lateness_histogram::bucket_of(late - 1), b);
    EXPECT_EQ(lateness_histogram::bucket_of(late), b + 1);
  }
  late = -1;
  EXPECT_EQ(lateness_histogram::bucket_of(late), 0U);
}

TEST(lateness, has_its_percentiles_in_order) {
  lateness_histogram::recorder all;
  for (int i = 0; i < 90; ++i) all.record(1'000);
  for (int i = 0; i < 9; ++i) all.record(1'000'000);
  all.record(1'000'000'000);
  const lateness_histogram h = all.read();
  EXPECT_EQ(h.count(), 100U);
  const auto about = [](std::int64_t is, std::int64_t exact) {
    return is >= exact && is <= exact + exact / 2;
  };
  EXPECT_TRUE(about(h.percentile(0), 1'000)) << h.percentile(0);
  EXPECT_TRUE(about(h.percentile(0.5), 1'000)) << h.percentile(0.5);
  EXPECT_TRUE(about(h.percentile(0.95), 1'000'000)) << h.percentile(0.95);
  EXPECT_TRUE(about(h.percentile(1), 1'000'000'000)) << h.percentile(1);
  EXPECT_EQ(lateness_histogram().percentile(0.5), 0);
}

TEST(lateness, adds_up) {
  lateness_histogram::recorder a;
  lateness_histogram::recorder b;
  a.record(1'000);
  b.record(1'000);
  b.record(2'000'000);
  lateness_histogram sum = a.read();
  sum += b.read();
  EXPECT_EQ(sum.count(), 3U);
  EXPECT_EQ(sum[lateness_histogram::bucket_of(1'000)], 2U);
}

/// Their own threads fire their timers, under the machine's clock.
TEST(engines, that_have_threads_leave_nothing_to_the_processors) {
  class host final : public bench::bare_host {
   public:
    explicit host(verge::engine which) : bare_host(which, true) { engine().grow(1); }
    ~host() { end(); }
    host(const host&) = delete;
    host& operator=(const host&) = delete;
    std::int64_t now() noexcept override { return detail::true_now(); }
    std::int64_t cheap_now() noexcept override { return detail::true_now(); }
    unsigned home_processor() noexcept override { return 0; }
    void timer_fired(std::int64_t, std::int64_t) noexcept override {}
  };
  for (const verge::engine which :
       {engine::global_heap, engine::sharded_heap, engine::simple_wheel, engine::timing_wheel}) {
    host h(which);
    detail::timer_node& t = detail::make_func_timer(h.timers(), [] {});
    h.timers().start(t, h.now() + 30 * test::second, 0);
    const detail::timer_check c = h.engine().check_timers(0, h.now(), true);
    EXPECT_EQ(c.next, 0) << name_of(which);
    EXPECT_EQ(c.ran, 0U);
    detail::destroy_timer(t);
  }
}

TEST(engines, are_found_by_their_names) {
  for (const engine e : engines()) EXPECT_EQ(engine_named(name_of(e)), e);
  try {
    engine_named("heap");
    ADD_FAILURE() << "there is none of that name";
  } catch (const std::invalid_argument& e) {
    const std::string text = e.what();
    EXPECT_TRUE(text.starts_with("verge: there is no engine 'heap'; there are: ")) << text;
    EXPECT_TRUE(text.ends_with(", hybrid")) << text;
    for (const engine each : engines()) {
      EXPECT_NE(text.find(name_of(each)), std::string::npos) << text;
    }
  }
}

TEST(endpoints, are_equal_if_address_and_port_are) {
  EXPECT_TRUE(endpoint::loopback(80) == endpoint::loopback(80));
  EXPECT_FALSE(endpoint::loopback(80) == endpoint::loopback(81));
  EXPECT_FALSE(endpoint::loopback(80) == endpoint::loopback_v6(80));
  EXPECT_FALSE(endpoint::loopback(80) == endpoint());
  EXPECT_TRUE(endpoint() == endpoint());
}

TEST(a_channel_that_was_closed_twice, can_still_be_used) {
  chan<int> ch(2);
  ch.send(1);
  ch.close();
  EXPECT_THROW(ch.close(), chan_closed);
  EXPECT_EQ(ch.size(), 1U);
  EXPECT_EQ(ch.recv(), 1);
  EXPECT_EQ(ch.recv(), std::nullopt);
}

/// Without waiting, from several threads: no value is lost, and none comes twice.
TEST(a_channel_that_is_only_tried, loses_nothing) {
  const int n = test::scale(200'000, 50'000);
  chan<int> ch(4);
  std::atomic<std::int64_t> sum{0};
  std::atomic<int> received{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < n; i += 2) {
        while (!ch.try_send(i)) std::this_thread::yield();
      }
    });
    threads.emplace_back([&] {
      while (received < n) {
        if (const auto v = ch.try_recv()) {
          sum += *v;
          ++received;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(received, n);
  EXPECT_EQ(sum, std::int64_t{n} * (n - 1) / 2);
}

/// Several threads at both ends of the same two channels.
TEST(a_select_of_two, loses_nothing) {
  const int n = test::scale(20'000, 4'000);
  chan<int> a(2);
  chan<int> b(2);
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < n; i += 2) select(send(a, i), send(b, i)).wait();
    });
    threads.emplace_back([&] {
      for (int i = 0; i < n / 2; ++i) {
        select(recv(a, [&](std::optional<int> v) { sum += *v; }),
               recv(b, [&](std::optional<int> v) { sum += *v; }))
            .wait();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(sum, std::int64_t{n} * (n - 1) / 2);
}

TEST(a_select_of_two, chooses_each_if_both_are_ready) {
  chan<int> a(1);
  chan<int> b(1);
  int times[2] = {0, 0};
  for (int i = 0; i < 200; ++i) {
    a.try_send(1);
    b.try_send(1);
    ++times[select(recv(a), recv(b)).wait()];
  }
  // Fewer than 20 of 200 come once in 10^30 runs.
  EXPECT_GE(times[0], 20);
  EXPECT_GE(times[1], 20);
}

}  // namespace
}  // namespace verge
