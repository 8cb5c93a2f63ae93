// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

namespace verge::server::test {

/// Says what the test was doing if an assertion of a library ends the process, which does not know.
class last_words {
 public:
  last_words() { std::signal(SIGABRT, say); }
  last_words(const last_words&) = delete;
  last_words& operator=(const last_words&) = delete;
  ~last_words() { std::signal(SIGABRT, SIG_DFL); }

  void set(std::string text) { text_ = std::move(text) + "\n"; }
  const std::string& text() const noexcept { return text_; }

 private:
  static void say(int) {
    static_cast<void>(!::write(2, text_.data(), text_.size()));
    std::signal(SIGABRT, SIG_DFL);
  }
  static inline std::string text_;
};

}  // namespace verge::server::test
