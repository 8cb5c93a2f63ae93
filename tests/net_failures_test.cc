// SPDX-License-Identifier: Apache-2.0

// Sockets for which there is no memory, or no descriptor: each request is refused in its turn, and
// each operation either says so or has done all that it should.

#include <gtest/gtest.h>
#include <verge/fd.h>
#include <verge/net.h>
#include <verge/runtime.h>

#include <array>
#include <filesystem>
#include <iterator>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include <support/as_default.h>
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

}  // namespace
}  // namespace verge::test
