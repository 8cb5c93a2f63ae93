// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <verge/detail/timer_node.h>

/// The behaviours that have a name (named_behaviour()): which there are, for figures by name.
///
/// A timer's name - its label, and the place where it was made - is kept in its behaviour, which a
/// node points to anyway: so it takes no room in the node, and a thread that has no reference on
/// the node can read it.
///
/// Ground rules
///  - A named behaviour is a copy of another with a name, in an array of the library's. It is never
///    changed or destroyed: a pointer to one is always good. Its texts are copies too, as the code
///    that has given them may be unloaded.
///  - What it is found by are the addresses of what was given. Code that is loaded where other code
///    was unloaded may give the same addresses: so the copy must also have the same functions.
///  - One is made under the lock shared by all stores, which a fork waits for, and then published
///    by a release store into the table. A thread that looks it up takes no lock.
namespace verge::detail {

class named_behaviours {
 public:
  /// How many there can be: one less.
  static constexpr std::size_t most = 2048;

  /// They are at(1) to at(size() - 1).
  static std::size_t size() noexcept;
  static const timer_behaviour& at(std::size_t number) noexcept;
  /// The number of one; 0 for every other behaviour. The pointer is not followed.
  static std::size_t number_of(const timer_behaviour* does) noexcept;
  /// What it is a copy of; `does` itself if it is none. The pointer is not followed.
  static const timer_behaviour* unnamed(const timer_behaviour* does) noexcept;
};

/// For people: the label, the place, or what it is. Never null; of a named one it lives as long as
/// the library.
inline const char* name_of(const timer_behaviour& does) noexcept {
  if (does.label != nullptr) return does.label;
  if (does.place != nullptr) return does.place;
  return does.written != nullptr ? does.written : "?";
}

}  // namespace verge::detail
