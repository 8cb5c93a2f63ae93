// SPDX-License-Identifier: Apache-2.0
// A move-only value that counts its instances.
#pragma once

#include <atomic>
#include <utility>

namespace verge::test {

class token {
 public:
  explicit token(int n = 0) noexcept : number_(n) { living().fetch_add(1); }
  token(token&& other) noexcept : number_(std::exchange(other.number_, moved_from)) {
    living().fetch_add(1);
  }
  token& operator=(token&&) = delete;
  ~token() { living().fetch_sub(1); }

  int number() const noexcept { return number_; }
  /// The number of instances, including moved-from ones.
  static int alive() { return living().load(); }

  static constexpr int moved_from = -1;

 private:
  static std::atomic<int>& living() {
    static std::atomic<int> n{0};
    return n;
  }
  int number_;
};

}  // namespace verge::test
