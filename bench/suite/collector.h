// SPDX-License-Identifier: Apache-2.0
// Collects the answers of a run and computes figures from them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../peers/peer.h"
#include "results.h"

namespace verge::bench {

class collector {
 public:
  void add(const subject& of, const answer& a);
  /// Adds what has been gathered to a report, in the order in which it came.
  void finish(run_report& report) const;

 private:
  struct gathered {
    subject of;
    std::map<std::string, std::vector<double>> values;
    std::vector<double> late_us;
  };
  gathered& entry(const subject& of);

  std::vector<gathered> all_;
};

}  // namespace verge::bench
