// SPDX-License-Identifier: Apache-2.0

#include "pusher.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include <verge/errors.h>
#include <verge/select.h>
#include <verge/time.h>

#include "../doors/tls_session.h"
#include "addresses.h"

namespace verge::server::push {

namespace {

using namespace std::chrono_literals;

/// A feed reserves no more than this at once: others have their turn.
constexpr std::uint64_t most_at_once = 64;

}  // namespace

/// A tube that is pushed.
struct pusher::feed {
  feed(std::string name, std::size_t beside) : tube(std::move(name)), room(beside) {}

  const std::string tube;
  const std::shared_ptr<inbox> in{std::make_shared<inbox>()};
  std::mutex lock;
  shared_push settings;   ///< under lock: replaced when they change
  bool suspended{false};  ///< under lock: the receiver wants no more, and the broker is being told
  places room;
  std::atomic<bool> ended{false};
  clock::time_point next_start{};  ///< by the tube's rate; of serve() alone

  shared_push current() {
    std::lock_guard held(lock);
    return settings;
  }
  bool may_ask() {
    std::lock_guard held(lock);
    return !ended.load() && !suspended;
  }
  /// Until the settings change, unless they have changed already.
  void suspend(const std::string& url) {
    std::lock_guard held(lock);
    suspended |= settings->url == url;
  }
};

pusher::pusher(runtime& rt, command_sink& to, push_options options)
    : to_(to),
      options_(std::move(options)),
      trust_(make_trust(options_.trust)),
      house_(options_.house != nullptr ? options_.house
                                       : std::make_shared<push_house>(rt, options_)) {
  if (!options_.may_connect) options_.may_connect = &is_public;
  to_.submit({follower_, command(verb::follow_push)});
  following_ = rt.spawn([this] { return follow(); });
}

std::shared_ptr<ssl_ctx_st> pusher::make_trust(const std::string& file) {
  std::shared_ptr<ssl_ctx_st> made(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  if (made == nullptr) throw std::bad_alloc();
  SSL_CTX_set_min_proto_version(made.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(made.get(), SSL_MODE_RELEASE_BUFFERS);
  ERR_clear_error();
  if (file.empty()) {
    SSL_CTX_set_default_verify_paths(made.get());
  } else if (SSL_CTX_load_verify_locations(made.get(), file.c_str(), nullptr) != 1) {
    throw std::runtime_error("the certificates " + file + " cannot be used: " + openssl_error() +
                             "; it has to be a readable file in PEM");
  }
  return made;
}

void pusher::stop() {
  if (std::exchange(stopped_, true)) return;
  stopping_.store(true);
  follower_->wake();
  for (int waited = 0; !following_.done(); ++waited) {
    if (waited >= 1'000) {
      std::lock_guard held(lock_);
      for (auto& [n, handle] : sending_) handle.cancel();
    }
    std::this_thread::sleep_for(1ms);
  }
  following_.join();
  to_.submit({clerk_, command(verb::leave)});
}

/// Keeps a feed for every tube that has a receiver.
verge::task<> pusher::follow() {
  while (!stopping_.load()) {
    co_await follower_->wait();
    for (reply& r : follower_->take()) {
      if (r.what == answer::push_is) change(r.text, std::move(r.push));
    }
    std::erase_if(serving_, [](const join_handle<>& h) { return h.done(); });
  }
  for (auto& [tube, f] : feeds_) {
    f->ended.store(true);
    to_.submit({f->in, command(verb::half_close)});
    f->in->wake();
  }
  for (join_handle<>& h : serving_) co_await h;
  serving_.clear();
  to_.submit({follower_, command(verb::leave)});
}

void pusher::change(const std::string& tube, shared_push settings) {
  const auto found = feeds_.find(tube);
  const bool on = settings != nullptr && settings->disabled.empty();
  if (found != feeds_.end() && on) {
    std::lock_guard held(found->second->lock);
    found->second->settings = std::move(settings);
    found->second->suspended = false;
    found->second->in->wake();
    return;
  }
  if (found != feeds_.end()) {
    feed& old = *found->second;
    old.ended.store(true);
    to_.submit({old.in, command(verb::half_close)});
    old.in->wake();
    feeds_.erase(found);
    return;
  }
  if (!on) return;
  auto made = std::make_shared<feed>(tube, house_->hosts.limits().all / 4);
  made->settings = std::move(settings);
  feeds_[tube] = made;
  serving_.push_back(go(serve(made)));
}

/// Reserves tasks of one tube, as many as may be under way, and has each sent. It leaves when the
/// last of them has ended: what it holds would be given back.
verge::task<> pusher::serve(shared_feed f) {
  bool asked = false;
  for (;;) {
    const shared_push s = f->current();
    const std::size_t most = s->concurrency;
    const std::size_t busy = f->room.taken();
    if (f->ended.load() && !asked && f->room.all() == 0) break;
    if (!asked && f->may_ask() && busy < most) {
      if (s->rate != 0 && f->next_start > clock::now()) {
        co_await sleep(std::min<clock::duration>(f->next_start - clock::now(), 1s));
        continue;
      }
      command reserve(verb::reserve);
      reserve.tube = f->tube;
      reserve.number = s->rate != 0 ? 1 : std::min<std::uint64_t>(most - busy, most_at_once);
      to_.submit({f->in, std::move(reserve)});
      asked = true;
    }
    co_await f->in->wait();
    for (reply& r : f->in->take()) {
      asked = false;
      if (r.what == answer::internal_error || r.what == answer::moved) f->ended.store(true);
      if (r.what != answer::reserved) continue;
      if (s->rate != 0) {
        const std::chrono::nanoseconds step(1'000'000'000 / s->rate);
        f->next_start = std::max(f->next_start, clock::now()) + step;
      }
      start(f, std::move(r.task));
      for (handed_out& t : r.more) start(f, std::move(t));
    }
  }
  to_.submit({f->in, command(verb::leave)});
}

void pusher::start(const shared_feed& f, handed_out t) {
  f->room.take();
  figures_.under_way.fetch_add(1, std::memory_order_relaxed);
  // The task takes its handle out when it ends, which it cannot before this lock is released.
  std::lock_guard held(lock_);
  const std::uint64_t number = next_++;
  sending_.emplace(number, go(send(this, f, std::move(t), number)));
}

verge::task<> pusher::send(pusher* me, shared_feed f, handed_out t, std::uint64_t number) {
  places::ticket place;
  try {
    const shared_push s = f->current();
    co_await me->attempt(f, place, t, *s);
  } catch (const verge::cancelled&) {
    // The server ends: the task is given back when its feed leaves.
  } catch (const std::exception& e) {
    me->give_up(t, e.what());
  }
  {
    std::lock_guard held(me->lock_);
    me->sending_.erase(number);
  }
  me->figures_.under_way.fetch_sub(1, std::memory_order_relaxed);
  f->room.leave(place);
  f->in->wake();  // the last: the pusher may be destroyed once all feeds have ended
}

void pusher::give_up(const handed_out& t, std::string why) {
  command c(verb::undelivered, t.id);
  c.token = t.token;
  c.text = std::move(why);
  c.give_up = true;
  submit(std::move(c));
}

/// One delivery, at the receivers that it is sent and redirected to. Leaves also when its task is
/// cancelled.
class pusher::visitor final : public turnstile {
 public:
  visitor(pusher& me, feed& f, places::ticket& place, const push_settings& s, bool own)
      : me_(me), feed_(f), place_(place), most_(s.concurrency), own_(own) {}
  ~visitor() override { leave(ending::other); }

  bool enter(const url& to, nanoseconds& come_back) override {
    const std::string host = to.receiver();
    host_table& hosts = me_.house_->hosts;
    const auto now = clock::now();
    if (!hosts.enter(host, now, as_, come_back)) return false;
    inside_ = true;
    host_ = host;
    begin_ = now;
    if (feed_.room.enter(place_, host, most_, as_, std::exchange(own_, false))) return true;
    leave(ending::other);
    come_back = hosts.turn(host, now);
    return false;
  }
  void leave(ending how) override {
    if (!std::exchange(inside_, false)) return;
    const auto took = clock::now() - begin_;
    const auto count = std::chrono::nanoseconds(took).count();
    me_.house_->hosts.leave(host_, as_, how, count);
    feed_.room.exit(place_);
    if (how == ending::answered) feed_.room.answered(took);
    me_.figures_.microseconds.fetch_add(static_cast<std::uint64_t>(count / 1000),
                                        std::memory_order_relaxed);
  }

 private:
  pusher& me_;
  feed& feed_;
  places::ticket& place_;
  const std::size_t most_;
  bool own_;  ///< it goes to the tube's own receiver
  bool inside_{false};
  std::string host_;
  standing as_{standing::unknown};
  clock::time_point begin_{};
};

verge::task<> pusher::attempt(const shared_feed& f, places::ticket& place, const handed_out& t,
                              const push_settings& s) {
  const std::string& own = t.fields->push != nullptr ? t.fields->push->url : std::string();
  const std::string where = own.empty() ? s.url : own;
  const auto to = parse_url(where);
  if (!to) {
    give_up(t, where.empty() ? "neither the task nor its tube has a URL" : "the URL is not valid");
    co_return;
  }
  parcel p;
  p.id = t.id;
  p.tube = f->tube;
  p.attempt = t.fields->reserves;
  p.body = t.body;
  p.to = *to;
  p.secrets = s.secrets;
  // It ends before the lease does: otherwise the task might be sent twice.
  p.timeout = std::min(s.timeout, t.fields->ttr / 10 * 9);
  const post_office with{
      .names = house_->names, .trust = *trust_, .may_connect = options_.may_connect};
  receipt got;
  {
    visitor here(*this, *f, place, s, own.empty());
    // The timer is destroyed before `place` is, and then its function does not run.
    const auto patience = every(f->room.patience(), [f, &place] {
      if (f->room.give_up(place)) f->in->wake();
    });
    got = co_await deliver(with, here, std::move(p));
  }
  if (got.postponed) {
    figures_.postponed.fetch_add(1, std::memory_order_relaxed);
    command later(verb::postpone, t.id);
    later.token = t.token;
    later.time = *got.postponed;
    submit(std::move(later));
    co_return;
  }
  figures_.attempts.fetch_add(1, std::memory_order_relaxed);
  if (got.delivered) {
    figures_.delivered.fetch_add(1, std::memory_order_relaxed);
    command ack(verb::remove, t.id);
    ack.token = t.token;
    submit(std::move(ack));
    co_return;
  }
  figures_.failed.fetch_add(1, std::memory_order_relaxed);
  if (got.refused) figures_.refused.fetch_add(1, std::memory_order_relaxed);
  command c(verb::undelivered, t.id);
  c.token = t.token;
  c.text = std::move(got.answer);
  c.time = got.retry_after;
  c.give_up = got.give_up;
  c.disable = got.disable && own.empty();
  if (c.disable) f->suspend(where);
  c.url = where;
  submit(std::move(c));
}

}  // namespace verge::server::push
