// SPDX-License-Identifier: Apache-2.0

#include "bad_days.h"

#include <stdexcept>
#include <thread>

namespace verge::cluster_test {

namespace {

using namespace std::chrono_literals;
using server::test::database;
using std::chrono::milliseconds;

milliseconds some(std::mt19937_64& random, std::uint64_t least, std::uint64_t more) {
  return milliseconds(least + random() % more);
}

void nap(milliseconds d) { std::this_thread::sleep_for(d); }

/// Clients that are joined when all has happened.
class siege {
 public:
  siege() = default;
  siege(const siege&) = delete;
  siege& operator=(const siege&) = delete;
  ~siege() {
    for (std::thread& t : all_) t.join();
  }
  void join(std::vector<std::thread> more) {
    for (std::thread& t : more) all_.push_back(std::move(t));
  }

 private:
  std::vector<std::thread> all_;
};

/// Clients of sound servers pass the server by.
class absence {
 public:
  explicit absence(std::atomic<bool>& of) : of_(of) { of_.store(true); }
  absence(const absence&) = delete;
  absence& operator=(const absence&) = delete;
  ~absence() { of_.store(false); }

 private:
  std::atomic<bool>& of_;
};

}  // namespace

bad_days::bad_days(const std::string& fault, int lease) : lease_(lease) {
  for (std::size_t i = 0; i < servers; ++i) {
    proxies_.push_back(std::make_unique<proxy>(base_.directory()));
    nodes_.push_back(
        std::make_unique<node>(database::url_at(proxies_.back()->directory()), lease, fault));
    if (!nodes_.back()->start()) throw std::runtime_error("a server does not start");
    ports_[i].store(nodes_.back()->port());
  }
}

std::uint16_t bad_days::any(std::uint64_t random) const { return ports_[random % servers].load(); }

std::uint16_t bad_days::sound(std::uint64_t random) const {
  for (std::size_t i = 0; i < servers; ++i) {
    const std::size_t which = (random + i) % servers;
    if (!away_[which].load()) return ports_[which].load();
  }
  return any(random);
}

/// A server does not start while its database does not answer.
void bad_days::start(std::size_t which) {
  while (!nodes_[which]->start()) nap(100ms);
  ports_[which].store(nodes_[which]->port());
}

void bad_days::disturb_database(std::mt19937_64& random) {
  ++restarts_;
  if (random() % 2 == 0) {
    base_.stop();
  } else {
    base_.crash();
  }
  base_.start();
}

void bad_days::happen(std::mt19937_64& random, int longest) {
  const std::size_t which = random() % servers;
  node& n = *nodes_[which];
  proxy& p = *proxies_[which];
  const auto length = some(random, 200, static_cast<std::uint64_t>(longest) * 1000);
  switch (random() % 8) {
    case 0:
    case 1:
      ++kills_;
      n.kill();
      nap(some(random, 0, 2500));
      return start(which);
    case 2:
    case 3:
      ++stops_;
      n.stop(true);
      nap(length);
      return n.stop(false);
    case 4:
    case 5:
      ++holds_;
      p.hold(true);
      nap(length);
      return p.hold(false);
    case 6:
      ++cuts_;
      return p.cut();
    default:
      if (random() % 3 == 0) return disturb_database(random);
      ++ends_;
      n.end();
      start(which);
  }
}

void bad_days::mislead(std::mt19937_64& random, load& clients) {
  const std::size_t which = random() % servers;
  ++misled_;
  switch (random() % 3) {
    case 0:
      return hold_back(which, random, clients);
    case 1:
      return stop(which, random, clients);
    default:
      return outdate(which, random, clients);
  }
}

void bad_days::hold_back(std::size_t which, std::mt19937_64& random, load& clients) {
  ++holds_;
  siege all;
  const absence from(away_[which]);
  proxies_[which]->hold(true);
  // Its leases are good for a while: what is asked now is written, into the proxy.
  if (random() % 2 == 0) all.join(clients.besiege(ports_[which].load()));
  nap(milliseconds(lease_) + some(random, 1000, 2000));
  all.join(clients.besiege(ports_[which].load()));
  nap(some(random, 0, 300));
  proxies_[which]->hold(false);
}

void bad_days::stop(std::size_t which, std::mt19937_64& random, load& clients) {
  ++stops_;
  siege all;
  const absence from(away_[which]);
  nodes_[which]->stop(true);
  nap(milliseconds(lease_) + some(random, 1000, 2000));
  const bool early = random() % 2 == 0;
  if (early) all.join(clients.besiege(ports_[which].load()));
  nap(some(random, 0, 200));
  nodes_[which]->stop(false);
  if (early) return;
  nap(some(random, 20, 300));
  all.join(clients.besiege(ports_[which].load()));
}

/// One server is ended, and the others share its shards. Then `which` hears nothing any more, and
/// that one comes back: `which` takes the third to have what that has given back.
void bad_days::outdate(std::size_t which, std::mt19937_64& random, load& clients) {
  ++ends_;
  ++holds_;
  const std::size_t other = (which + 1 + random() % 2) % servers;
  siege all;
  const absence from(away_[which]);
  {
    const absence of_other(away_[other]);
    nodes_[other]->end();
    nap(some(random, 500, 500));
    proxies_[which]->hold(true);
    start(other);
  }
  nap(milliseconds(lease_) + some(random, 500, 1000));
  for (int i = 0; i < 5; ++i) {
    all.join(clients.besiege(ports_[which].load()));
    nap(some(random, 50, 200));
  }
  proxies_[which]->hold(false);
}

std::string bad_days::summary() const {
  std::string text;
  const auto add = [&text](int n, const char* what) {
    text += text.empty() ? "" : ", ";
    text += std::to_string(n);
    text += what;
  };
  add(kills_, " kills");
  add(stops_, " stops");
  add(holds_, " holds");
  add(cuts_, " cuts");
  add(ends_, " ends");
  add(restarts_, " restarts of the database");
  add(misled_, " servers misled");
  return text;
}

}  // namespace verge::cluster_test
