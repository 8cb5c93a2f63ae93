// SPDX-License-Identifier: Apache-2.0

#include "shard_service.h"

#include <ctime>
#include <utility>

#include "../postgres/fault.h"

namespace verge::server::cluster {

namespace {

/// The client that the broker sees for a lane. Its leases are known by their tokens: they outlast
/// the servers that they were given by and through.
class agent final : public client {
 public:
  agent(std::uint64_t number, std::weak_ptr<lane_listener> to)
      : client(leases::by_token), number_(number), to_(std::move(to)) {}

  void deliver(reply r) override {
    if (const auto to = to_.lock()) to->heard(number_, std::move(r));
  }
  void flush() noexcept override {
    if (const auto to = to_.lock()) to->heard_all();
  }
  void left() noexcept override {}

 private:
  const std::uint64_t number_;
  const std::weak_ptr<lane_listener> to_;
};

class local_lane final : public lane {
 public:
  local_lane(std::shared_ptr<shard_service> at, std::shared_ptr<agent> me)
      : at_(std::move(at)), me_(std::move(me)) {}
  ~local_lane() override { static_cast<void>(at_->submit({me_, command(verb::leave)})); }

  void submit(command c) override {
    const bool silent = is_silent(c.what);
    if (at_->submit({me_, std::move(c)}) || silent) return;
    reply r;
    r.what = answer::moved;
    me_->deliver(std::move(r));
    me_->flush();
  }

 private:
  const std::shared_ptr<shard_service> at_;
  const std::shared_ptr<agent> me_;
};

}  // namespace

std::chrono::nanoseconds since_boot() noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

shard_service::shard_service(runtime& rt, postgres::joint_commits& commits, held_shard which,
                             lease_times times, broker_options options,
                             const push::push_options& push)
    : runtime_(rt),
      which_(which),
      times_(times),
      push_options_(push),
      store_(postgres::open_postgres_store(commits, {.shard = which.shard, .epoch = which.epoch})),
      committer_(*store_, std::move(options)) {}

void shard_service::start(std::function<void(const std::string&)> on_failure, command_sink& all) {
  committer_.on_failure = [this, told = std::move(on_failure)](const std::string& why) {
    failed_.store(true);
    told(why);
  };
  committer_.still_ours = [this] { return is_trusted(); };
  pusher_ = std::make_unique<push::pusher>(runtime_, committer_, push_options_);
  courier_ = std::make_unique<courier>(runtime_, committer_, all);
  committing_ = runtime_.spawn([self = shared_from_this()] { return self->committer_.run(); });
}

bool shard_service::submit(request r) {
  std::lock_guard held(lock_);
  if (closed_) return false;
  if (postgres::faulty("lease-by-local-clock") && !is_trusted()) return false;
  committer_.submit(std::move(r));
  return true;
}

verge::task<> shard_service::close() {
  const auto self = shared_from_this();
  {
    std::lock_guard held(lock_);
    closed_ = true;
  }
  blocking([this] { pusher_->stop(); });
  co_await courier_->stop();
  committer_.stop();
  co_await committing_;
  committer_.dismiss();
}

std::unique_ptr<lane> shard_service::open_lane(std::uint64_t number,
                                               std::weak_ptr<lane_listener> to) {
  return std::make_unique<local_lane>(shared_from_this(),
                                      std::make_shared<agent>(number, std::move(to)));
}

}  // namespace verge::server::cluster
