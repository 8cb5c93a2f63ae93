// SPDX-License-Identifier: Apache-2.0

// Descriptors and their deadlines, on the default engine, with a poller of the kernel's: what of
// reading, an event, a deadline, its firing, a close and the end of the runtime may happen at the
// same time. The kernel gives no order between threads; what there is comes from the library.

#include <orders/engine_host.h>
#include <orders/scene.h>

#include <fcntl.h>
#include <net/descriptor.h>
#include <unistd.h>
#include <verge/errors.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace verge::orders {
namespace {

using detail::io_descriptor;
using detail::io_direction;

/// A pipe, of which the scene reads. After it, what had a reference to its descriptor has none.
template <std::size_t Threads = 2>
class descriptor_scene : public scene_of<Threads> {
 public:
  ~descriptor_scene() override { hang_up(); }
  void finish() override {
    judge();
    owner_.reset();
    require(poller_.use_count() == 1, "the descriptor is destroyed");
    require(::fcntl(ends_[0], F_GETFD) < 0, "its number is closed");
  }

 protected:
  explicit descriptor_scene(io_descriptor::traits kind = {.pipe = true}) {
    require(::pipe2(ends_.data(), O_NONBLOCK | O_CLOEXEC) == 0, "there is a pipe");
    owner_.emplace(io_descriptor::make(ends_[0], kind, {&host_, poller_}));
    it_ = owner_->get();
    require(!it_->attach(), "the poller takes it");
  }

  virtual void judge() {}

  /// Reads so many bytes at most, on a thread.
  io_result read(std::size_t most = 1) {
    std::array<char, 2> bytes{};
    return detail::io_operation<detail::read_action>({it_, buffer(bytes.data(), most), false})
        .wait();
  }
  void write() const { require(::write(ends_[1], "x", 1) == 1, "there is room"); }
  void hang_up() {
    if (const int end = std::exchange(ends_[1], -1); end >= 0) ::close(end);
  }
  /// As a worker that has nothing to do.
  void poll() const { static_cast<void>(poller_->poll(0)); }
  void set_deadline(std::int64_t after) const {
    require(!it_->set_deadline(true, false, start_of_time + after), "a deadline can be set");
  }
  /// As the worker of processor 0, at that time.
  void check(std::int64_t after) {
    this_processor = 0;
    host_.engine().check_timers(0, start_of_time + after, true);
  }
  /// As each of the workers, one after the other: a thread that finds a processor's lock taken puts
  /// its timer elsewhere.
  void check_both(std::int64_t after) {
    for (const unsigned p : {1U, 0U}) host_.engine().check_timers(p, start_of_time + after, true);
  }
  /// Whether a read would be refused as late.
  bool is_late() const {
    const auto entered = it_->enter(io_direction::read, true);
    if (entered == io_descriptor::entry::entered) it_->leave(io_direction::read, true, true);
    return entered == io_descriptor::entry::expired;
  }

  engine_host host_;
  const std::shared_ptr<detail::poller> poller_ = std::make_shared<detail::poller>();
  std::array<int, 2> ends_{};
  std::optional<detail::descriptor_handle> owner_;
  io_descriptor* it_ = nullptr;
};

/// No event is lost: a read that finds nothing is woken.
class read_and_event : public descriptor_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      require(bool{read()}, "the byte is read");
    } else {
      write();
      poll();
    }
  }
};

/// A read of which the deadline passes, before it begins or while it waits.
class read_and_deadline : public descriptor_scene<> {
 public:
  read_and_deadline() { set_deadline(second); }
  void run(std::size_t i) override {
    if (i == 1) return check(2 * second);
    require(read().error == net_errc::deadline_exceeded, "it ends as it is late");
  }
};

/// What comes first ends the read.
class read_event_and_deadline : public descriptor_scene<3> {
 public:
  read_event_and_deadline() { set_deadline(second); }
  void run(std::size_t i) override {
    if (i == 2) return check(2 * second);
    if (i == 1) {
      write();
      return poll();
    }
    const auto [n, error] = read();
    require(error ? error == net_errc::deadline_exceeded && n == 0 : n == 1, "in time or late");
  }
};

/// A deadline is put off while it fires: it is the new one from then on.
class put_off_and_firing : public descriptor_scene<> {
 public:
  put_off_and_firing() { set_deadline(second); }
  void run(std::size_t i) override {
    if (i == 1) return check(2 * second);
    set_deadline(10 * second);
    require(!is_late(), "the deadline is later");
  }

 private:
  void judge() override {
    require(!is_late(), "the deadline is later");
    check_both(11 * second);
    require(is_late(), "it is kept");
  }
};

/// A deadline is moved to earlier while its timer fires: each arming has its reference.
class earlier_and_firing : public descriptor_scene<> {
 public:
  earlier_and_firing() { set_deadline(10 * second); }
  void run(std::size_t i) override {
    if (i == 1) return check(11 * second);
    set_deadline(5 * second);
  }

 private:
  void judge() override {
    check_both(20 * second);
    require(is_late(), "it is kept");
  }
};

/// A deadline is taken away while it fires.
class none_and_firing : public descriptor_scene<> {
 public:
  none_and_firing() { set_deadline(second); }
  void run(std::size_t i) override {
    if (i == 1) return check(2 * second);
    require(!it_->set_deadline(true, true, detail::never), "it can be taken away");
    require(!is_late(), "there is none");
  }

 private:
  void judge() override { require(!is_late(), "there is none"); }
};

/// Two threads set deadlines of their directions, of which the timer of the one covers the other.
class two_directions : public descriptor_scene<> {
 public:
  void run(std::size_t i) override {
    const std::int64_t after = i == 0 ? second : 2 * second;
    require(!it_->set_deadline(i == 0, i == 1, start_of_time + after), "a deadline can be set");
  }

 private:
  void judge() override {
    check_both(second);
    require(is_late(), "the first is kept");
    require(it_->enter(io_direction::write, true) == io_descriptor::entry::entered, "only that");
    it_->leave(io_direction::write, true, true);
    check_both(2 * second);
    require(it_->enter(io_direction::write, true) == io_descriptor::entry::expired,
            "and then both");
  }
};

/// A close ends a read.
class read_and_close : public descriptor_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      require(read().error == net_errc::closed, "it ends as it is closed");
    } else {
      require(!it_->close(), "it was open");
    }
  }
};

/// The handle ends while its deadline fires, and with a read that has yet to notice.
class end_and_firing : public descriptor_scene<> {
 public:
  end_and_firing() { set_deadline(second); }
  void run(std::size_t i) override {
    if (i == 1) return check(2 * second);
    owner_.reset();
  }
};

/// A thread makes a system call on the number while another closes it: it stays open for that.
class use_and_close : public descriptor_scene<> {
 public:
  void run(std::size_t i) override {
    if (i == 1) return static_cast<void>(it_->close());
    static_cast<void>(it_->use([this](int number) {
      written_ = 1;
      poll();  // others have their turn
      require(::fcntl(number, F_GETFD) >= 0, "it is open while it is used");
      return std::error_code();
    }));
  }

 private:
  void judge() override { require(written_ <= 1, "once at most"); }

  int written_ = 0;
};

/// Two threads close it: one of them has closed it.
class close_and_close : public descriptor_scene<> {
 public:
  void run(std::size_t i) override { closed_[i] = !it_->close(); }

 private:
  void judge() override { require(closed_[0] != closed_[1], "one of the two has closed it"); }

  std::array<bool, 2> closed_{};
};

/// Two threads read one after the other, or one of them is told that this is misuse: what one has
/// noted for the next is seen by that.
class read_and_read : public descriptor_scene<> {
 public:
  read_and_read() {
    write();
    write();
  }
  void run(std::size_t /*i*/) override {
    try {
      require(bool{read()}, "there is a byte for each");
    } catch (const std::logic_error&) {  // the other one reads
    }
  }
};

/// The peer sends a byte and hangs up, which is one event. A reader of a TCP stream that has found
/// less than it has room for does not ask again before the next event, unless it was told of that.
class last_words : public descriptor_scene<> {
 public:
  last_words() : descriptor_scene({.tcp = true, .pipe = true}) {}
  void run(std::size_t i) override {
    if (i == 1) {
      write();
      hang_up();
      return poll();
    }
    require(read(2).bytes == 1, "the byte is read");
    require(read(2).error == net_errc::end_of_stream, "and then the end");
  }
};

/// The runtime ends: a read that waits is told, and so is one that comes later.
class read_and_end : public descriptor_scene<> {
 public:
  read_and_end() { set_deadline(second); }
  void run(std::size_t i) override {
    if (i == 1) return poller_->end();
    require(read().error == net_errc::runtime_ended, "it ends as the runtime does");
  }
};

}  // namespace

std::vector<scene_kind> descriptor_scenes() {
  return {
      kind<read_and_event>("descriptor, read and event", 2, 1),
      kind<read_and_deadline>("descriptor, read and deadline", 2, 1),
      kind<read_event_and_deadline>("descriptor, read, event and deadline", 1, 1),
      kind<put_off_and_firing>("descriptor, put off and firing", 2, 1),
      kind<earlier_and_firing>("descriptor, earlier and firing", 2, 1),
      kind<none_and_firing>("descriptor, no deadline and firing", 2, 1),
      kind<two_directions>("descriptor, two directions", 2, 1),
      kind<read_and_close>("descriptor, read and close", 2, 1),
      kind<end_and_firing>("descriptor, end and firing", 2, 1),
      kind<use_and_close>("descriptor, use and close", 2, 1),
      kind<close_and_close>("descriptor, close and close", 2, 1),
      kind<read_and_read>("descriptor, read and read", 2, 1),
      kind<last_words>("descriptor, last words", 2, 1),
      kind<read_and_end>("descriptor, read and end", 1, 1),
  };
}

}  // namespace verge::orders
