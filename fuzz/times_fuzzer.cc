// SPDX-License-Identifier: Apache-2.0

// Lengths and points of time: as text, there and back; as numbers, without overflow and never
// early.

#include <verge/duration.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <ratio>
#include <string>
#include <string_view>

#include "../server/text/time_text.h"
#include "input.h"

using verge::fuzz::expect;

namespace {

using wide = verge::detail::int128;

template <class Period>
void converts(std::int64_t count) {
  const std::int64_t got =
      verge::saturate(std::chrono::duration<std::int64_t, Period>(count)).count();
  const wide exact = wide{count} * Period::num * 1'000'000'000;
  constexpr wide least = std::numeric_limits<std::int64_t>::min();
  constexpr wide most = std::numeric_limits<std::int64_t>::max();
  // Rounded up, so that nothing is early, and by less than one.
  if (got == most) {
    expect(exact > (most - 1) * Period::den, "only what does not fit is the longest");
  } else if (got == least) {
    expect(exact <= (least + 1) * Period::den, "only what does not fit is the shortest");
  } else {
    expect(wide{got} * Period::den >= exact - (count < 0 ? Period::den : 0), "never early");
    expect((wide{got} - 1) * Period::den < exact + (count < 0 ? Period::den : 0),
           "by less than one");
  }
}

void floating(double x) {
  const std::int64_t got = verge::saturate(std::chrono::duration<double>(x)).count();
  if (std::isnan(x)) return expect(got == 0, "what is no number is zero");
  if (x > 0) expect(got > 0, "what is positive stays positive");
  if (x <= 0) expect(got <= 0, "and what is not stays so");
  expect(std::abs(x) > 1e6 || std::abs(static_cast<double>(got) - x * 1e9) <= 2,
         "what fits is kept");
}

void texts(std::string_view text) {
  using namespace verge::server;
  if (const auto d = parse_duration(text, 1'000'000'000)) {
    expect(*d >= 0, "no length is negative");
  }
  if (const auto t = parse_rfc3339(text)) {
    const std::string again = format_rfc3339(*t);
    const auto back = parse_rfc3339(again);
    expect(back.has_value(), "what is printed is parsed");
    expect(*back == *t, "and is the same");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verge::fuzz::input in(data, size);
  texts(in.rest());
  const auto count = static_cast<std::int64_t>(in.number());
  converts<std::nano>(count);
  converts<std::micro>(count);
  converts<std::ratio<1>>(count);
  converts<std::ratio<3600>>(count);
  converts<std::ratio<86400>>(count);
  converts<std::pico>(count);
  converts<std::ratio<1, 30>>(count);
  double x = 0;
  std::memcpy(&x, &count, sizeof x);
  floating(x);
  return 0;
}
