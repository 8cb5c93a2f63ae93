// SPDX-License-Identifier: Apache-2.0
// A bar on the terminal: what is being done, how much of it is done, and how long it still takes.
#pragma once

#include <string>

namespace verge::tool {

class progress {
 public:
  progress();
  /// Erases the bar.
  ~progress() { wipe(); }
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  /// `share` is from 0 to 1.
  void show(const std::string& what, double share, double seconds_left);
  /// A line that stays.
  void note(const std::string& line);

 private:
  void wipe();

  bool watched_;  ///< whether standard error is a terminal
};

}  // namespace verge::tool
