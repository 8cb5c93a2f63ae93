// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <limits>

#include "../store/store.h"
#include "entry.h"

/// The front of an ordered index of a tube, in memory.
///
/// The store has the index, which may be of any length. A window holds all tasks of it that stand
/// before `end`, and nothing of what stands after: so the first in the window is the first of all,
/// until the window is empty and is filled again from `end` on. A window that is complete holds
/// everything.
///
///     store   |--------------------------------------------------------|
///     window  |###############|
///                            end
///
/// A task that is added before `end` stays in memory; one that is added after it is written to the
/// store and forgotten. When memory is short the last task of the window is given up, and `end`
/// moves to it.
namespace verge::server {

/// The three orders: what they compare, and where in the store they are.
struct delayed_window_order {
  using key = due_order;
  static key of(const entry& e) noexcept { return due_order_of(e.fields); }
  static key of(const position& p) noexcept { return {.due = p.where.at, .id = p.id}; }
  static position at(const key& k) noexcept {
    return {.where = {.kind = place_kind::delayed, .priority = 0, .at = k.due}, .id = k.id};
  }
  static constexpr place_kind kind = place_kind::delayed;
};
struct ready_window_order {
  using key = ready_order;
  static key of(const entry& e) noexcept { return ready_order_of(e.fields); }
  static key of(const position& p) noexcept {
    return {.priority = p.where.priority, .due = p.where.at, .id = p.id};
  }
  static position at(const key& k) noexcept {
    return {.where = {.kind = place_kind::ready, .priority = k.priority, .at = k.due}, .id = k.id};
  }
  static constexpr place_kind kind = place_kind::ready;
};
struct buried_window_order {
  using key = burial_order;
  static key of(const entry& e) noexcept { return burial_order_of(e.fields); }
  static key of(const position& p) noexcept {
    return {.burial = static_cast<std::uint64_t>(p.where.at), .id = p.id};
  }
  static position at(const key& k) noexcept {
    return {.where = {.kind = place_kind::buried,
                      .priority = 0,
                      .at = static_cast<std::int64_t>(k.burial)},
            .id = k.id};
  }
  static constexpr place_kind kind = place_kind::buried;
};

template <class Order>
class window {
 public:
  using key = typename Order::key;

  /// Of a tube that has nothing in the store.
  window() = default;
  window(const window&) = delete;
  window& operator=(const window&) = delete;
  ~window() { set_.clear(); }

  /// The store has something, and nothing of it is in memory.
  void forget() noexcept {
    complete_ = false;
    started_ = false;
  }

  /// Whether a task that stands there belongs into memory.
  bool covers(const key& k) const noexcept { return complete_ || (started_ && k < end_); }
  void insert(entry& e) { set_.insert(e); }
  void erase(entry& e) noexcept { set_.erase(set_.iterator_to(e)); }
  bool empty() const noexcept { return set_.empty(); }
  std::size_t size() const noexcept { return set_.size(); }
  entry& first() noexcept { return *set_.begin(); }
  /// Whether it must be filled before first() can be asked.
  bool is_hungry() const noexcept { return set_.empty() && !complete_; }

  /// Gives up the last one.
  entry& drop_last() noexcept {
    entry& last = *set_.rbegin();
    complete_ = false;
    started_ = true;
    end_ = Order::of(last);
    set_.erase(set_.iterator_to(last));
    return last;
  }

  /// Where the store is to be read from.
  position next() const noexcept { return started_ ? Order::at(end_) : beginning_of(Order::kind); }
  /// Everything before `end` has been read.
  void read_up_to(const key& end) noexcept {
    started_ = true;
    end_ = end;
  }
  void read_all() noexcept { complete_ = true; }

  /// The first that does not stand before `k`.
  auto from(const key& k) noexcept { return set_.lower_bound(k); }
  /// Whether the store has more behind what is here; then where it begins.
  bool is_complete() const noexcept { return complete_; }
  auto begin() noexcept { return set_.begin(); }
  auto end() noexcept { return set_.end(); }

 private:
  struct key_of_entry {
    using type = key;
    key operator()(const entry& e) const noexcept { return Order::of(e); }
  };
  using hook = boost::intrusive::member_hook<
      entry, boost::intrusive::set_member_hook<boost::intrusive::optimize_size<true>>,
      &entry::order>;

  boost::intrusive::set<entry, hook, boost::intrusive::key_of_value<key_of_entry>> set_;
  bool complete_{true};
  bool started_{false};
  key end_{};
};

}  // namespace verge::server
