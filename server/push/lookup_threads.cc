// SPDX-License-Identifier: Apache-2.0

#include "lookup_threads.h"

#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <verge/clock.h>
#include <verge/time.h>

namespace verge::server::push {

namespace {

constexpr std::size_t most_names_known = 8'192;
constexpr std::size_t stack_size = 256U << 10;

/// What is known of a name: how its last lookup went.
enum class rank : std::uint8_t { quick, unknown, slow };
constexpr std::size_t ranks = 3;

}  // namespace

struct lookup_threads::core : std::enable_shared_from_this<lookup_threads::core> {
  struct job {
    std::string host;
    std::uint16_t port;
    std::function<void(addresses)> told;
  };
  struct lane {
    std::deque<job> queue;
    std::size_t threads{0};
    std::size_t most{0};
  };
  struct running {
    std::shared_ptr<core> of;
    job what;
    rank as;
    clock::time_point begin;
    bool counted{true};  ///< among those at work
  };

  explicit core(options o) : settings(std::move(o)) {
    lanes[0].most = settings.all;
    lanes[1].most = settings.all - settings.all / 8;
    lanes[2].most = settings.all / 2;
  }

  bool start_next();
  void start_some();
  bool start_thread(running* r) noexcept;
  void look_for_hanging();
  void remember(const std::string& host, rank as) {
    if (known.size() >= most_names_known) known.clear();
    known[host] = as;
  }
  void work(running& r);
  static void* run(void* r);

  const options settings;
  std::mutex lock;
  std::array<lane, ranks> lanes;
  std::unordered_map<std::string, rank> known;
  std::list<running> under_way;
  std::size_t at_work{0};
  bool over{false};
  timer next_look;
};

lookup_threads::lookup_threads(runtime& rt, options o)
    : core_(std::make_shared<core>(std::move(o))) {
  core_->next_look = after_func(rt, std::chrono::hours(24), [weak = std::weak_ptr<core>(core_)] {
    if (const auto self = weak.lock()) self->look_for_hanging();
  });
}

lookup_threads::~lookup_threads() {
  timer last;  // destroyed without the lock, which its function may wait for
  std::lock_guard held(core_->lock);
  core_->over = true;
  for (auto& l : core_->lanes) l.queue.clear();
  std::swap(last, core_->next_look);
}

void lookup_threads::start(std::string host, std::uint16_t port,
                           std::function<void(addresses)> told) {
  core& c = *core_;
  std::lock_guard held(c.lock);
  const auto found = c.known.find(host);
  const rank as = found == c.known.end() ? rank::unknown : found->second;
  c.lanes[static_cast<std::size_t>(as)].queue.push_back({std::move(host), port, std::move(told)});
  c.start_some();
}

/// Under the lock. Starts what may be started.
void lookup_threads::core::start_some() {
  while (!over && start_next()) {
  }
  bool wait = false;
  for (const lane& l : lanes) wait |= !l.queue.empty();
  // A caller waits: those that hang are to be found in time.
  if (wait && !over) next_look.reset(settings.long_time);
}

bool lookup_threads::core::start_next() {
  if (at_work >= settings.at_work || under_way.size() >= settings.all) return false;
  for (std::size_t i = 0; i < ranks; ++i) {
    lane& l = lanes[i];
    if (l.queue.empty() || l.threads >= l.most) continue;
    under_way.push_front({.of = shared_from_this(),
                          .what = std::move(l.queue.front()),
                          .as = static_cast<rank>(i),
                          .begin = clock::now()});
    l.queue.pop_front();
    if (!start_thread(&under_way.front())) {
      l.queue.push_front(std::move(under_way.front().what));  // tried again after a while
      under_way.pop_front();
      return false;
    }
    ++l.threads;
    ++at_work;
    return true;
  }
  return false;
}

bool lookup_threads::core::start_thread(running* r) noexcept {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_size);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t made{};
  const bool started = pthread_create(&made, &attributes, &core::run, r) == 0;
  pthread_attr_destroy(&attributes);
  return started;
}

void lookup_threads::core::look_for_hanging() {
  std::lock_guard held(lock);
  const auto now = clock::now();
  for (running& r : under_way) {
    if (r.counted && now - r.begin >= settings.long_time) {
      r.counted = false;
      --at_work;
      remember(r.what.host, rank::slow);
    }
  }
  start_some();
}

void* lookup_threads::core::run(void* r) {
  auto& mine = *static_cast<running*>(r);
  const std::shared_ptr<core> self = mine.of;
  self->work(mine);
  return nullptr;
}

void lookup_threads::core::work(running& r) {
  addresses a = settings.look_up(r.what.host, r.what.port);
  const auto told = std::move(r.what.told);
  {
    std::lock_guard held(lock);
    const bool quick = clock::now() - r.begin < settings.long_time;
    remember(r.what.host, quick ? rank::quick : rank::slow);
    --lanes[static_cast<std::size_t>(r.as)].threads;
    if (r.counted) --at_work;
    const auto at = std::find_if(under_way.begin(), under_way.end(),
                                 [&](const running& one) { return &one == &r; });
    under_way.erase(at);
    start_some();
  }
  told(std::move(a));
}

addresses system_lookup(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
  addrinfo* list = nullptr;
  addresses a;
  const std::string service = std::to_string(port);
  if (const int error = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &list); error != 0) {
    a.why = ::gai_strerror(error);
    return a;
  }
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    a.found.push_back(endpoint::from(i->ai_addr, i->ai_addrlen));
  }
  ::freeaddrinfo(list);
  if (a.found.empty()) a.why = "the name has no address";
  return a;
}

}  // namespace verge::server::push
