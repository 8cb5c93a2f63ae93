// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "link.h"

namespace verge::server::postgres {

/// Links that are not in use. One is taken for one transaction, so that the shards of a server,
/// most of which have nothing to write at a given time, share a few. A link that has failed comes
/// back closed, and connects again when it is used.
class pool {
 public:
  explicit pool(link_options options) : options_(std::move(options)) { free_.reserve(most_idle); }

  class loan {
   public:
    loan(pool& of, std::unique_ptr<link> l) noexcept : of_(&of), link_(std::move(l)) {}
    loan(loan&&) noexcept = default;
    loan& operator=(loan&&) = delete;
    ~loan() {
      if (link_ != nullptr) of_->give_back(std::move(link_));
    }
    link* operator->() const noexcept { return link_.get(); }
    link& operator*() const noexcept { return *link_; }

   private:
    pool* of_;
    std::unique_ptr<link> link_;
  };

  loan take() {
    std::lock_guard held(lock_);
    if (free_.empty()) return {*this, std::make_unique<link>(options_)};
    std::unique_ptr<link> l = std::move(free_.back());
    free_.pop_back();
    return {*this, std::move(l)};
  }

  const link_options& options() const noexcept { return options_; }

 private:
  static constexpr std::size_t most_idle = 8;

  void give_back(std::unique_ptr<link> l) {
    std::lock_guard held(lock_);
    if (free_.size() < most_idle && l->is_open()) free_.push_back(std::move(l));
  }

  const link_options options_;
  std::mutex lock_;
  std::vector<std::unique_ptr<link>> free_;
};

}  // namespace verge::server::postgres
