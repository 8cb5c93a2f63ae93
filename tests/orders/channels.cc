// SPDX-License-Identifier: Apache-2.0

// Channels and select, on threads.

#include <orders/scene.h>

#include <verge/chan.h>
#include <verge/select.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace verge::orders {
namespace {

/// What is sent: its maker has written to it, and the receiver frees it.
using letter = std::unique_ptr<int>;

void open(std::optional<letter> got) {
  require(got.has_value() && **got == 7, "the letter is whole");
}

/// One sends, one receives; with room for so many in between.
template <std::size_t Room>
class send_and_receive : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    for (int n = 0; n < 2; ++n) {
      if (i == 0) {
        chan_.send(std::make_unique<int>(7));
      } else {
        open(chan_.recv());
      }
    }
  }
  void finish() override { require(chan_.size() == 0, "nothing is left"); }

 private:
  verge::chan<letter> chan_{Room};
};

/// Two senders, one receiver.
class two_senders : public scene_of<3> {
 public:
  void run(std::size_t i) override {
    if (i != 0) {
      chan_.send(std::make_unique<int>(7));
    } else {
      open(chan_.recv());
      open(chan_.recv());
    }
  }

 private:
  verge::chan<letter> chan_{0};
};

/// A close wakes the receiver, which sees what was written before.
class closing : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      text_ = 1;
      chan_.close();
    } else {
      require(!chan_.recv().has_value(), "it is closed and empty");
      require(text_ == 1, "what was written before the close");
    }
  }

 private:
  verge::chan<letter> chan_{0};
  int text_ = 0;
};

/// The last handle destroys the channel, and what is in it: whichever thread has that.
class last_handle : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    verge::chan<letter> mine = std::move(i == 0 ? a_ : b_);
    if (i == 0) mine.try_send(std::make_unique<int>(7));
    if (i == 1) {
      if (auto got = mine.try_recv()) open(std::move(got));
    }
  }

 private:
  verge::chan<letter> a_{1};
  verge::chan<letter> b_ = a_;
};

/// With two channels. A select locks channels in the order of their addresses, which must be the
/// same in every run of a schedule: `a_` has the lower one.
template <std::size_t Threads>
class scene_of_two_channels : public scene_of<Threads> {
 protected:
  scene_of_two_channels() {
    using detail::chan_access;
    if (std::less<>()(&chan_access::state(b_), &chan_access::state(a_))) std::swap(a_, b_);
  }

  verge::chan<letter> a_{0}, b_{0};
};

/// A select over two channels, to each of which a thread sends.
class select_of_two : public scene_of_two_channels<3> {
 public:
  void run(std::size_t i) override {
    if (i == 1) return send(a_);
    if (i == 2) return send(b_);
    for (int n = 0; n < 2; ++n) {
      verge::select(verge::recv(a_, &open), verge::recv(b_, &open)).wait();
    }
  }

 private:
  static void send(verge::chan<letter>& c) { c.send(std::make_unique<int>(7)); }
};

/// Two selects that can only serve each other.
class select_and_select : public scene_of_two_channels<2> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      verge::select(verge::recv(a_, &open), verge::recv(b_, &open)).wait();
    } else {
      verge::select(verge::send(b_, std::make_unique<int>(7), [] {}),
                    verge::send(a_, std::make_unique<int>(7), [] {}))
          .wait();
    }
  }
};

}  // namespace

std::vector<scene_kind> channel_scenes() {
  return {
      kind<send_and_receive<0>>("chan, no room", 2, 1),
      kind<send_and_receive<1>>("chan, room for one", 2, 1),
      kind<two_senders>("chan, two senders", 1, 1),
      kind<closing>("chan, closed", 3),
      kind<last_handle>("chan, the last handle", 3),
      kind<select_of_two>("select, two senders", 1, 1),
      kind<select_and_select>("select, against select", 2, 1),
  };
}

}  // namespace verge::orders
