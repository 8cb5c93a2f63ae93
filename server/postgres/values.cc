// SPDX-License-Identifier: Apache-2.0

#include "values.h"

#include <stdexcept>

namespace verge::server::postgres {

namespace {

// The numbers of types are part of the protocol.
constexpr std::uint32_t oid_of_bytea = 17;
constexpr std::uint32_t oid_of_int8 = 20;

template <class Unsigned>
void append(std::string& out, Unsigned n) {
  for (int shift = static_cast<int>(sizeof n) * 8 - 8; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(n >> shift & 0xff));
  }
}

/// One dimension, which begins at 1, without nulls.
std::string array_of(std::uint32_t type, std::size_t elements, std::size_t bytes) {
  std::string out;
  out.reserve(20 + bytes + 4 * elements);
  append<std::uint32_t>(out, elements == 0 ? 0 : 1);
  append<std::uint32_t>(out, 0);
  append(out, type);
  if (elements == 0) return out;
  append(out, static_cast<std::uint32_t>(elements));
  append<std::uint32_t>(out, 1);
  return out;
}

}  // namespace

parameters& parameters::number(std::int64_t n) {
  append(values_.emplace_back(), static_cast<std::uint64_t>(n));
  return *this;
}

parameters& parameters::bytes(std::string_view b) {
  values_.emplace_back(b);
  return *this;
}

parameters& parameters::numbers(const std::vector<std::int64_t>& all) {
  std::string& out = values_.emplace_back(array_of(oid_of_int8, all.size(), 8 * all.size()));
  for (const std::int64_t n : all) {
    append<std::uint32_t>(out, 8);
    append(out, static_cast<std::uint64_t>(n));
  }
  return *this;
}

parameters& parameters::blobs(const std::vector<std::string_view>& all) {
  std::size_t bytes = 0;
  for (const std::string_view b : all) bytes += b.size();
  std::string& out = values_.emplace_back(array_of(oid_of_bytea, all.size(), bytes));
  for (const std::string_view b : all) {
    append(out, static_cast<std::uint32_t>(b.size()));
    out.append(b);
  }
  return *this;
}

std::int64_t number_at(std::string_view value) {
  if (value.size() != 8) throw std::logic_error("a column of the database is no int8");
  std::uint64_t n = 0;
  for (const char c : value) n = n << 8 | static_cast<unsigned char>(c);
  return static_cast<std::int64_t>(n);
}

}  // namespace verge::server::postgres
