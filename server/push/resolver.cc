#include "resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

namespace verge::server::push {

namespace {

constexpr std::size_t most_remembered = 4'096;

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

}  // namespace

struct resolver::core {
  struct name {
    std::string host;
    std::uint16_t port;
  };
  struct known {
    addresses answer;
    clock::time_point until;
  };

  explicit core(options o) : settings(std::move(o)) {
    if (!settings.look_up) settings.look_up = &system_lookup;
  }

  options settings;
  std::mutex lock;
  std::condition_variable wake;
  std::deque<name> queue;
  std::unordered_map<std::string, std::vector<chan<addresses>>> waiting;  ///< queued or looked up
  std::unordered_map<std::string, known> remembered;
  std::size_t threads{0};
  std::size_t idle{0};
  bool over{false};
};

resolver::resolver(options o) : core_(std::make_shared<core>(std::move(o))) {}

resolver::~resolver() {
  std::lock_guard held(core_->lock);
  core_->over = true;
  core_->wake.notify_all();
}

chan<addresses> resolver::resolve(const std::string& host, std::uint16_t port) {
  chan<addresses> answer(1);
  // An address is no name: nothing is asked.
  const bool is_v6 = host.find(':') != host.npos;
  std::string numeric(is_v6 ? "[" : "");
  numeric.append(host).append(is_v6 ? "]:" : ":").append(std::to_string(port));
  if (const auto [at, error] = endpoint::parse(numeric); !error) {
    static_cast<void>(answer.try_send({.found = {at}, .why = {}}));
    return answer;
  }
  const std::string key = host + "|" + std::to_string(port);
  core& c = *core_;
  std::lock_guard held(c.lock);
  const auto now = clock::now();
  if (const auto found = c.remembered.find(key); found != c.remembered.end()) {
    if (found->second.until > now) {
      static_cast<void>(answer.try_send(found->second.answer));
      return answer;
    }
    c.remembered.erase(found);
  }
  const auto under_way = c.waiting.find(key);
  if (under_way != c.waiting.end()) {
    under_way->second.push_back(answer);
    return answer;
  }
  if (c.waiting.size() >= c.settings.most_waiting) {
    static_cast<void>(answer.try_send({.found = {}, .why = "too many names are being looked up"}));
    return answer;
  }
  c.waiting[key].push_back(answer);
  c.queue.push_back({host, port});
  if (c.idle == 0 && c.threads < c.settings.threads) {
    ++c.threads;
    std::thread([shared = core_] { work(shared); }).detach();
  }
  c.wake.notify_one();
  return answer;
}

void resolver::work(const std::shared_ptr<core>& shared) {
  core& c = *shared;
  std::unique_lock held(c.lock);
  for (;;) {
    ++c.idle;
    c.wake.wait(held, [&] { return c.over || !c.queue.empty(); });
    --c.idle;
    if (c.over) return;
    const core::name n = std::move(c.queue.front());
    c.queue.pop_front();
    held.unlock();
    addresses a = c.settings.look_up(n.host, n.port);
    held.lock();
    const std::string key = n.host + "|" + std::to_string(n.port);
    const auto asked = c.waiting.extract(key);
    if (!a.found.empty()) {
      if (c.remembered.size() >= most_remembered) c.remembered.clear();
      c.remembered[key] = {a, clock::now() + c.settings.remember};
    }
    if (asked.empty()) continue;
    for (auto& channel : asked.mapped()) static_cast<void>(channel.try_send(a));
  }
}

}  // namespace verge::server::push
