// SPDX-License-Identifier: Apache-2.0
// The two words that are the state of a timer in the hybrid engine. hybrid_timers.h has the rules.
//
//   word     63 ................................. 3   2         1          0
//            when it is due                           stopped   periodic   entering
//                                                               or, with
//                                                               stopped: kept
//
//   tag      31 ............... 14  13 ........... 0
//            hint: where its entry  token of its
//            is, to about 17 ms     entry
//
// The hint is the key of the entry, in units of 2^24 ns, by its last 18 bits. The key is no later
// than the due time, so the latest unit up to that with these bits is no earlier than the key's: a
// time after that unit is covered by the entry, and a reset to such a time needs no new entry, even
// if it is earlier than before. (A timer that is reset at random soon has an entry that covers
// everything.)
#pragma once

#include <algorithm>
#include <cstdint>

namespace verge::detail {

namespace hybrid_word {

inline constexpr std::uint64_t entering = 1;
inline constexpr std::uint64_t periodic = 2;
inline constexpr std::uint64_t stopped = 4;
/// With stopped: the reference for being armed was not dropped.
inline constexpr std::uint64_t kept = periodic;
inline constexpr unsigned flag_bits = 3;
/// 61 bits of nanoseconds are 73 years.
inline constexpr std::int64_t latest = (std::int64_t{1} << 61) - 1;

constexpr std::int64_t clamp(std::int64_t when) noexcept { return std::min(when, latest); }
constexpr std::uint64_t of(std::int64_t when, std::int64_t period) noexcept {
  return static_cast<std::uint64_t>(when) << flag_bits | (period > 0 ? periodic : 0);
}
/// Its time: no earlier than the key of the timer's entry.
constexpr std::int64_t time(std::uint64_t word) noexcept {
  return static_cast<std::int64_t>(word >> flag_bits);
}
/// When it is due; 0 if it is not armed.
constexpr std::int64_t due(std::uint64_t word) noexcept {
  return (word & stopped) != 0 ? 0 : time(word);
}
/// Whether it is stopped and has the reference for being armed.
constexpr bool keeps(std::uint64_t word) noexcept {
  return (word & (stopped | kept)) == (stopped | kept);
}
/// Stopped, with the same entry.
constexpr std::uint64_t stopped_at(std::uint64_t word, bool keep) noexcept {
  return (word & ~periodic) | stopped | (keep ? kept : 0);
}

}  // namespace hybrid_word

namespace hybrid_tag {

inline constexpr unsigned token_bits = 14;
inline constexpr unsigned hint_bits = 32 - token_bits;
inline constexpr unsigned unit_bits = 24;

constexpr std::uint32_t token(std::uint32_t tag) noexcept { return tag & ((1U << token_bits) - 1); }
constexpr std::uint32_t of(std::uint32_t token_, std::int64_t key) noexcept {
  return static_cast<std::uint32_t>(key >> unit_bits) << token_bits | token(token_);
}
/// Whether an entry with this tag, whose key is no later than `time`, is early enough for `when`.
/// Without a branch: the outcome cannot be predicted.
constexpr bool covers(std::uint32_t tag, std::int64_t time, std::int64_t when) noexcept {
  constexpr std::int64_t mask = (std::int64_t{1} << hint_bits) - 1;
  const std::int64_t unit = time >> unit_bits;
  const std::int64_t hint = tag >> token_bits;
  const bool later = when >= time;
  return later | ((when >> unit_bits) > unit - ((unit - hint) & mask));
}
/// Whether the hint of the tag is right for that key.
constexpr bool is_for(std::uint32_t tag, std::int64_t key) noexcept {
  return (tag ^ of(0, key)) >> token_bits == 0;
}

}  // namespace hybrid_tag

}  // namespace verge::detail
