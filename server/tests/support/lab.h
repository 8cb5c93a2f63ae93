// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "beanstalk/format.h"
#include "beanstalk/parser.h"
#include "broker/broker.h"

/// A broker with a store, clients that keep what they are told, and time that stands still until it
/// is moved.
namespace verge::server::test {

class recording_client final : public client {
 public:
  void deliver(reply r) override {
    if (r.shown != nullptr && std::holds_alternative<tube_view>(*r.shown) && only_counts) {
      const auto& t = std::get<tube_view>(*r.shown);
      said += "urgent " + std::to_string(t.urgent) + " ready " + std::to_string(t.ready) +
              " reserved " + std::to_string(t.reserved) + " delayed " + std::to_string(t.delayed) +
              " buried " + std::to_string(t.buried) + "\r\n";
      return;
    }
    beanstalk::append_reply(said, r, {});
  }
  void flush() noexcept override {}
  void left() noexcept override { gone = true; }

  /// What was said since the last call.
  std::string heard() { return std::exchange(said, {}); }

  std::string said;
  bool gone{false};
  bool only_counts{false};  ///< of what stats-tube says
};

class lab {
 public:
  explicit lab(broker_options options = {}, std::unique_ptr<store> s = make_memory_store())
      : options_(options), store_(std::move(s)) {
    restart();
  }

  /// As after kill -9: what is only in memory is lost.
  void restart() {
    broker_.reset();
    broker_ = std::make_unique<broker>(*store_, options_);
    broker_->recover(now, wall);
    round();
  }

  std::shared_ptr<recording_client> connect() {
    auto c = std::make_shared<recording_client>();
    broker_->begin(now, wall);
    broker_->execute(c, command(verb::arrive));
    finish();
    return c;
  }

  /// One command, or several, as bytes; all in one round.
  std::string say(const std::shared_ptr<recording_client>& c, const std::string& bytes) {
    beanstalk::parser p;
    p.feed(bytes);
    broker_->begin(now, wall);
    while (auto cmd = p.next()) broker_->execute(c, std::move(*cmd));
    finish();
    return c->heard();
  }
  /// One round with these commands, as the committer has them while there is much to do. True if
  /// there is more.
  bool one_round(const std::shared_ptr<recording_client>& c, const std::string& bytes) {
    beanstalk::parser p;
    p.feed(bytes);
    broker_->begin(now, wall);
    while (auto cmd = p.next()) broker_->execute(c, std::move(*cmd));
    return commit();
  }
  void run(const std::shared_ptr<recording_client>& c, command cmd) { run_with(c, std::move(cmd)); }

  void run_with(const std::shared_ptr<client>& c, command cmd) {
    broker_->begin(now, wall);
    broker_->execute(c, std::move(cmd));
    finish();
  }

  template <class Duration>
  void pass(Duration d) {
    now += d;
    wall += std::chrono::nanoseconds(d).count();
    round();
  }
  /// The wall clock is set; the other one goes on.
  void step(std::chrono::nanoseconds d) {
    wall += d.count();
    round();
  }
  void round() {
    broker_->begin(now, wall);
    finish();
  }
  store& disk() { return *store_; }
  broker& it() { return *broker_; }

  clock::time_point now{std::chrono::hours(1)};
  wall_time wall{1'700'000'000'000'000'000};

 private:
  void finish() {
    while (commit()) {
    }
    if (const auto begun = broker_->begun_census()) begun->run();
  }
  bool commit() {
    const bool more = broker_->advance();
    const batch& b = broker_->changes();
    if (!b.empty()) store_->write(b);
    broker_->committed();
    return more;
  }

  broker_options options_;
  std::unique_ptr<store> store_;
  std::unique_ptr<broker> broker_;
};

}  // namespace verge::server::test
