// SPDX-License-Identifier: Apache-2.0

// Sockets for which there is no memory, or no descriptor: each request is refused in its turn, and
// each operation either says so or has done all that it should.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <verge/fd.h>
#include <verge/net.h>
#include <verge/runtime.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <base/this_thread.h>
#include <net/descriptor.h>
#include <support/as_default.h>
#include <support/counting_waiter.h>
#include <support/lone_engine.h>

// After the headers that declare what it replaces.
#include <support/failures.h>

namespace verge::test {
namespace {

std::ptrdiff_t open_descriptors() {
  using std::filesystem::directory_iterator;
  return std::distance(directory_iterator("/proc/self/fd"), directory_iterator());
}

/// Does it again and again, with the first request refused, with the second, and so on until there
/// are no more. Returns how many there were.
template <class F>
long refuse_each(resource kind, F&& once) {
  for (long nth = 1;; ++nth) {
    SCOPED_TRACE(testing::Message() << "request " << nth);
    fail(kind, nth, 1);
    once();
    fail_no_more();
    if (!has_failed()) return nth - 1;
  }
}

/// The result of f; an error if it throws for want of memory.
template <class F>
auto result_of(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return {{}, std::make_error_code(std::errc::not_enough_memory)};
  }
}

template <class From, class To>
void expect_connected(From& from, To& to) {
  std::array<char, 4> got{};
  EXPECT_TRUE(from.write_all("ping").wait());
  EXPECT_TRUE(to.read_full(got).wait());
  EXPECT_EQ(std::string_view(got.data(), got.size()), "ping");
}

class without_resources : public testing::TestWithParam<resource> {
 protected:
  /// Runs `once` as above; none of its descriptors stays open.
  template <class F>
  void try_all(F&& once) {
    once();  // what is made once and kept
    const std::ptrdiff_t before = open_descriptors();
    refuse_each(GetParam(), once);
    EXPECT_EQ(open_descriptors(), before);
  }

  runtime rt_{{.processors = 1}};
  as_default here_{rt_};
};
INSTANTIATE_TEST_SUITE_P(each, without_resources,
                         testing::Values(resource::memory, resource::mapping,
                                         resource::descriptor));

TEST_P(without_resources, both_ends_of_a_pair_are_there_or_none) {
  try_all([] {
    auto made = result_of([] { return unix_conn::pair(); });
    fail_no_more();
    if (made.error) return;
    expect_connected(made.value.first, made.value.second);
    expect_connected(made.value.second, made.value.first);
  });
  try_all([] {
    auto made = result_of([] { return unix_datagram::pair(); });
    fail_no_more();
    if (made.error) return;
    EXPECT_TRUE(made.value.first.send("ping").wait());
    std::array<char, 8> got{};
    EXPECT_EQ(made.value.second.receive(got).wait().bytes, 4U);
  });
  try_all([] {
    auto made = result_of([] { return make_pipe(); });
    fail_no_more();
    if (made.error) return;
    expect_connected(made.value.to, made.value.from);
  });
}

TEST_P(without_resources, a_connection_is_accepted_or_the_error_is_told) {
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const endpoint at = listener.local().or_throw();
  if (GetParam() == resource::descriptor) return;  // then it waits until there are some
  try_all([&] {
    const bool fails = failures.kind != resource::none;
    const long first = failures.first;
    fail_no_more();
    auto near = tcp_conn::connect(at).wait().or_throw();
    if (fails) fail(GetParam(), first, 1);
    auto far = result_of([&] { return listener.accept().wait(); });
    fail_no_more();
    if (!far.error) expect_connected(near, far.value);
  });
}

TEST_P(without_resources, a_connection_is_made_or_the_error_is_told) {
  auto listener = tcp_listener::listen(endpoint::loopback(0)).or_throw();
  const endpoint at = listener.local().or_throw();
  try_all([&] {
    auto near = result_of([&] { return tcp_conn::connect(at).wait(); });
    fail_no_more();
    if (near.error) return;
    auto far = listener.accept().wait().or_throw();
    expect_connected(near.value, far);
  });
}

// ---- Without a runtime, under a clock that the test moves -------------------------------------

using detail::io_descriptor;
using detail::io_direction;

/// A descriptor that goes by the timers of one engine, and nothing else.
class lone_descriptor final : public lone_engine {
 public:
  lone_descriptor(verge::engine which, int fd, io_descriptor::traits kind)
      : lone_engine(which), handle_(io_descriptor::make(fd, kind, {this, poller_})) {
    EXPECT_FALSE(get()->attach());
  }

  io_descriptor* get() const { return handle_.get(); }
  std::error_code set(io_direction d, std::int64_t when) {
    return get()->set_deadline(d == io_direction::read, d == io_direction::write, when);
  }
  bool has_passed(io_direction d) {
    const io_descriptor::entry e = get()->enter(d, false);
    if (e == io_descriptor::entry::entered) get()->leave(d, false, true);
    return e == io_descriptor::entry::expired;
  }
  void pass(std::int64_t time) {
    now_ += time;
    for (unsigned ran = 1; ran != 0;) ran = engine().check_timers(0, now_, true).ran;
  }

 private:
  const std::shared_ptr<detail::poller> poller_ =
      std::make_shared<detail::poller>(detail::poller::wait_method::automatic);
  detail::descriptor_handle handle_;
};

class descriptors : public testing::TestWithParam<engine> {};
INSTANTIATE_TEST_SUITE_P(engines, descriptors,
                         testing::ValuesIn(engines().begin(), engines().end()),
                         [](const auto& e) { return std::string(name_of(e.param)); });

/// A deadline for which there is no timer is none: it does not pass with a later one either.
TEST_P(descriptors, have_no_deadline_after_one_that_could_not_be_set) {
  int refusals = 0;
  for (const resource kind : {resource::memory, resource::mapping}) {
    bool made = true;
    for (long nth = 1; made; ++nth) {
      SCOPED_TRACE(testing::Message() << "request " << nth);
      lone_descriptor of(GetParam(), ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), {});
      fail(kind, nth, 1);
      const std::error_code error = of.set(io_direction::read, of.now() + second);
      fail_no_more();
      made = has_failed();
      const bool refused = error == std::errc::not_enough_memory;
      EXPECT_TRUE(!error || (made && refused)) << error.message();
      refusals += refused ? 1 : 0;
      EXPECT_FALSE(of.set(io_direction::write, of.now() + 2 * second));
      of.pass(3 * second);
      EXPECT_EQ(of.has_passed(io_direction::read), !refused);
      EXPECT_TRUE(of.has_passed(io_direction::write));
      ASSERT_LT(nth, 100);
    }
  }
  EXPECT_GT(refusals, 0);
}

/// An accept of which the test is the waiter.
class lone_accept final : public detail::accept_action {
 public:
  explicit lone_accept(io_descriptor* listener) noexcept : accept_action(listener) {}
  std::error_code end() {
    EXPECT_EQ(conclude_accept(detail::waiter::no_event).get(), nullptr);
    return error_;
  }
};

/// During its lifetime there are none left.
class no_descriptors {
 public:
  no_descriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~no_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  no_descriptors(const no_descriptors&) = delete;
  no_descriptors& operator=(const no_descriptors&) = delete;

 private:
  rlimit before_{};
};

/// An accept that finds no descriptor left waits for a timer. If there is none it says what it
/// lacks, unless an event has ended the wait meanwhile.
TEST_P(descriptors, that_listen_say_so_if_there_is_neither_a_descriptor_nor_a_timer) {
  int refusals = 0;
  for (const resource kind : {resource::memory, resource::mapping}) {
    for (const bool has_event : {false, true}) {
      bool made = true;
      for (long nth = 1; made; ++nth) {
        SCOPED_TRACE(testing::Message() << "request " << nth << (has_event ? ", an event" : ""));
        const int number = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        ASSERT_EQ(::listen(number, 8), 0);
        lone_descriptor of(GetParam(), number, {.socket = true, .tcp = true, .stream = true});
        auto* const before = std::exchange(detail::this_thread.current, &of);
        {
          counting_waiter w;
          lone_accept accept(of.get());
          if (has_event) {
            EXPECT_TRUE(w.claim(detail::waiter::by_hint));
          }
          bool waits = false;
          {
            const no_descriptors left;
            fail(kind, nth, 1);
            waits = accept.start(w);
            fail_no_more();
          }
          made = has_failed();
          EXPECT_TRUE(waits || (made && !has_event));
          refusals += waits ? 0 : 1;
          EXPECT_EQ(of.get()->awaited(io_direction::read), waits);
          if (waits) {
            accept.withdraw();
          } else {
            EXPECT_EQ(accept.end(), std::errc::too_many_files_open);
          }
          EXPECT_EQ(w.woken, 0);
        }
        detail::this_thread.current = before;
        EXPECT_FALSE(of.get()->awaited(io_direction::read));
        EXPECT_EQ(of.engine().counts(0).live, 0U);
        ASSERT_LT(nth, 100);
      }
    }
  }
  EXPECT_GT(refusals, 0);
}

}  // namespace
}  // namespace verge::test
