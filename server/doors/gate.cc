// SPDX-License-Identifier: Apache-2.0

#include "gate.h"

#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace verge::server {

namespace {

/// How often the file is looked at: a revoked token is refused after so long.
constexpr std::chrono::seconds look_again{1};

/// When the file was changed; another inode is a change as well.
std::int64_t change_of(const std::string& path) noexcept {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return 0;
  return s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec +
         static_cast<std::int64_t>(s.st_ino) * 7919;
}

}  // namespace

caller::caller(token_record r) : record_(std::move(r)) {
  if (!record_.tubes.empty()) {
    tubes_ = std::make_shared<const tube_filter>(tube_filter{record_.tubes});
  }
}

bool caller::may(scope s) const noexcept {
  return s == scope::open ||
         std::find(record_.scopes.begin(), record_.scopes.end(), s) != record_.scopes.end();
}

bool caller::may_touch(std::string_view tube) const noexcept {
  return tubes_ == nullptr || tubes_->covers(tube);
}

bool caller::has_expired(wall_time now) const noexcept {
  return record_.expires != 0 && record_.expires <= now;
}

bool caller::take(clock::time_point now) const {
  if (record_.per_second == 0) return true;
  const double most = record_.per_second;
  std::lock_guard held(lock_);
  if (counted_ == clock::time_point{}) {
    allowance_ = most;
  } else {
    const std::chrono::duration<double> passed = now - counted_;
    allowance_ = std::min(most, allowance_ + std::max(0.0, passed.count()) * most);
  }
  counted_ = now;
  if (allowance_ < 1) return false;
  allowance_ -= 1;
  return true;
}

gate::gate(std::string path) : path_(std::move(path)) {
  changed_ = change_of(path_);
  callers_ = read(path_);
  looked_ = clock::now();
}

std::shared_ptr<const gate::table> gate::read(const std::string& path) {
  auto made = std::make_shared<table>();
  const token_file file = token_file::read(path);
  for (const token_record& r : file.tokens()) {
    (*made)[r.id] = std::make_shared<const caller>(r);
  }
  return made;
}

bool gate::reload(std::string& why) {
  const std::int64_t changed = change_of(path_);
  try {
    auto next = read(path_);
    std::lock_guard held(lock_);
    callers_ = std::move(next);
    changed_ = changed;
    return true;
  } catch (const std::exception& e) {
    why = e.what();
    return false;
  }
}

std::shared_ptr<const gate::table> gate::current() {
  bool changed = false;
  {
    std::lock_guard held(lock_);
    const auto now = clock::now();
    if (now - looked_ >= look_again) {
      looked_ = now;
      changed = change_of(path_) != changed_;
    }
  }
  if (changed) {
    // A file that cannot be used leaves those that were admitted.
    std::string ignored;
    static_cast<void>(reload(ignored));
  }
  std::lock_guard held(lock_);
  return callers_;
}

shared_caller gate::admit(std::string_view token, wall_time now) {
  const auto parts = parse_token(token);
  if (!parts) return nullptr;
  const auto callers = current();
  const auto found = callers->find(std::string(parts->id));
  // The hash is computed and compared in any case: how long it takes does not tell which ids exist.
  const auto given = hash_of(parts->secret);
  static const std::array<unsigned char, 32> none{};
  const bool same = same_hash(given, found != callers->end() ? found->second->record().hash : none);
  if (!same || found == callers->end() || found->second->has_expired(now)) return nullptr;
  return found->second;
}

shared_caller gate::again(const shared_caller& who, wall_time now) {
  const auto callers = current();
  const auto found = callers->find(who->record().id);
  if (found == callers->end() || found->second->has_expired(now) ||
      !same_hash(found->second->record().hash, who->record().hash)) {
    return nullptr;
  }
  return found->second;
}

scope scope_of(verb v) noexcept {
  switch (v) {
    case verb::put:
    case verb::put_many:
    case verb::cancel:
    case verb::reschedule:
    case verb::set_schedule:
    case verb::remove_schedule:
      return scope::put;
    case verb::reserve:
    case verb::reserve_task:
    case verb::remove:
    case verb::release:
    case verb::bury:
    case verb::touch:
    case verb::kick:
    case verb::kick_task:
      return scope::work;
    case verb::peek:
    case verb::peek_ready:
    case verb::peek_delayed:
    case verb::peek_buried:
    case verb::stats:
    case verb::stats_task:
    case verb::stats_tube:
    case verb::survey:
    case verb::list_tasks:
    case verb::forecast:
    case verb::show_cluster:
    case verb::list_tubes:
    case verb::show_push:
    case verb::show_schedule:
    case verb::list_schedules:
      return scope::read;
    case verb::pause:
    case verb::limit:
    case verb::set_push:
    case verb::clear_push:
    case verb::follow_push:
    case verb::undelivered:
    case verb::postpone:
    case verb::give_back:
    case verb::drain:
    case verb::backup:
      return scope::admin;
    case verb::use:
    case verb::used:
    case verb::watch:
    case verb::ignore:
    case verb::list_watched:
    case verb::auth:
    case verb::arrive:
    case verb::say:
    case verb::give_up:
    case verb::half_close:
    case verb::go_on:
    case verb::quit:
    case verb::leave:
      break;
  }
  return scope::open;
}

bool may_give(const caller& who, command& c) {
  if (!who.may(scope_of(c.what))) return false;
  c.within = who.tubes();
  if (c.within == nullptr) return true;
  const bool names_tube = c.what == verb::use || c.what == verb::watch || c.what == verb::pause ||
                          c.what == verb::stats_tube;
  if (names_tube && !c.within->covers(c.text)) return false;
  return std::all_of(c.tasks.begin(), c.tasks.end(), [&](const new_task& t) {
    return t.dead_letter.empty() || c.within->covers(t.dead_letter);
  });
}

}  // namespace verge::server
