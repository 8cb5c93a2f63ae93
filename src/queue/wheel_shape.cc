// SPDX-License-Identifier: Apache-2.0

#include <queue/wheel_shape.h>

#include <stdexcept>
#include <string>

namespace verge::detail {

void check_shape(const char* wheel, wheel_shape shape) {
  constexpr std::int64_t shortest = 1'000;
  constexpr std::int64_t longest = 3'600'000'000'000;
  constexpr std::size_t most = std::size_t{1} << 24;
  if (shape.tick < shortest || shape.tick > longest) {
    throw std::invalid_argument(std::string("verge: the tick of a ") + wheel +
                                " must be from 1 us to 1 h, and this one is " +
                                std::to_string(shape.tick) + " ns");
  }
  if (shape.size < 2 || shape.size > most) {
    throw std::invalid_argument(std::string("verge: a ") + wheel + " has from 2 to " +
                                std::to_string(most) + " buckets, and not " +
                                std::to_string(shape.size));
  }
}

}  // namespace verge::detail
