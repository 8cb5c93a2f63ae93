#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include <verge/clock.h>

#include "../model/task.h"

/// How many deliveries each receiver has under way, and whether it may have another one.
///
/// A receiver (a host with its port) has a limit, and all together have one. As room gets scarce a
/// receiver gets less of it, an eighth of what is left: receivers that hang, however many, leave
/// room for those that do not. What may not be sent now is told when to come back: after those that
/// were told so before, one turn after the other. So a million tasks for a receiver that is slow
/// are not tried again and again.
///
/// Ground rules: everything is under `lock_`. enter() that is true and leave() come in pairs.
namespace verge::server::push {

struct host_limits {
  std::size_t all{4'096};
  std::size_t each{64};
  std::uint32_t rate{0};  ///< of each, a second; 0: no limit
};

class host_table {
 public:
  explicit host_table(host_limits l) : limits_(l) {}

  /// May a delivery begin? If not, `come_back` is in how long to ask again.
  bool enter(const std::string& host, clock::time_point now, nanoseconds& come_back);
  /// It has ended, and took so long.
  void leave(const std::string& host, clock::time_point now, nanoseconds took);

  std::size_t under_way() const;

 private:
  struct state {
    std::size_t under_way{0};
    double usual{0};                 ///< how long a delivery takes, in nanoseconds
    clock::time_point next_start{};  ///< by the rate
    clock::time_point last_turn{};   ///< that was given to one that has to come back
  };
  void forget_idle(clock::time_point now);

  const host_limits limits_;
  mutable std::mutex lock_;
  std::unordered_map<std::string, state> hosts_;
  std::size_t under_way_{0};
  std::size_t sweep_at_{1'024};
};

}  // namespace verge::server::push
