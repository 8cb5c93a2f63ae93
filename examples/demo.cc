// The demonstration: a shop reminds each customer three minutes after the order, unless it is paid.
//
//   ./dev demo [ORDERS]
//
// Ten minutes of the shop pass on a manual clock. Meanwhile two threads start, stop and reset
// reminders, and the main thread moves the clock on and runs what is due, in the way a processor
// does: all three on one heap, and on the same timers. At the end the books have to balance: each
// reminder that was started was either stopped or fired, never both, in order and never early.
//
// There is no public timer API yet, so this is written against the inside of the library.

#include <timer/bad_timer.h>
#include <timer/state_machine.h>
#include <verge/clock.h>
#include <verge/version.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <locale>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

/// What the state machine is told to use: real atomics, a real lock.
struct policy {
  template <class T>
  using atomic = std::atomic<T>;
  using lock = std::mutex;

  static void yield() { std::this_thread::yield(); }
  // Nobody sleeps here: the main thread looks at the timers whenever it has moved the clock.
  static void wake_net_poller(verge::detail::basic_timers<policy>&, std::int64_t) {}
  // The orders outlive the heap.
  static void acquire(verge::detail::basic_timer<policy>&) {}
  static void release(verge::detail::basic_timer<policy>&) {}
  [[noreturn]] static void bad_timer(const char* operation,
                                     const verge::detail::basic_timer<policy>& t,
                                     verge::detail::timer_state state) {
    verge::detail::abort_on_bad_timer(operation, &t, state, t.when);
  }
};

using timer = verge::detail::basic_timer<policy>;
using timers = verge::detail::basic_timers<policy>;

constexpr nanoseconds opening_hours = 10min;
constexpr nanoseconds last_order = 6min;
constexpr nanoseconds patience = 3min;
constexpr nanoseconds clock_step = 1s;
constexpr unsigned clerks = 2;

/// The shop's books. Each figure is written by one thread or atomically, and read by the main one.
struct books {
  std::atomic<std::uint64_t> placed{0}, paid{0}, paid_late{0}, put_off{0};
  std::uint64_t reminded{0}, early{0}, out_of_order{0};
  std::int64_t last_due{0};
};

struct order : timer {
  books* shop{nullptr};
  int armed{0}, stopped{0};  ///< by its clerk
  int reminded{0};           ///< by the main thread
};

/// The reminder's callback. `due` is the time that this arming of the timer was given.
void remind(timer& t, std::uint64_t due, std::int64_t now) noexcept {
  auto& o = static_cast<order&>(t);
  const auto when = static_cast<std::int64_t>(due);
  ++o.reminded;
  ++o.shop->reminded;
  o.shop->early += now < when;
  o.shop->out_of_order += when < o.shop->last_due;
  o.shop->last_due = when;
}

/// Something a customer does.
struct event {
  enum kind { places, pays, puts_off };
  nanoseconds at;
  kind what;
  order* who;
};

/// What the customers are going to do, in order of time. Four in five pay in time and one in ten
/// puts the payment off before; the same orders give the same plan.
std::vector<event> make_plan(std::vector<order>& orders, unsigned clerk) {
  std::mt19937_64 random(clerk);
  std::uniform_int_distribution<std::int64_t> placed(0, last_order.count());
  std::uniform_int_distribution<std::int64_t> takes(0, patience.count() * 5 / 4);
  std::vector<event> plan;
  for (std::size_t i = clerk; i < orders.size(); i += clerks) {
    const nanoseconds start(placed(random));
    const nanoseconds pay(takes(random));
    plan.push_back({start, event::places, &orders[i]});
    plan.push_back({start + pay, event::pays, &orders[i]});
    if (random() % 10 == 0) plan.push_back({start + pay / 2, event::puts_off, &orders[i]});
  }
  std::sort(plan.begin(), plan.end(), [](const event& a, const event& b) { return a.at < b.at; });
  return plan;
}

class shop {
 public:
  explicit shop(std::size_t n) : orders_(n) {
    for (auto& o : orders_) o.shop = &books_;
  }

  bool open() {
    std::vector<std::thread> threads;
    for (unsigned c = 0; c < clerks; ++c)
      threads.emplace_back([this, c, plan = make_plan(orders_, c)] { serve(plan, progress_[c]); });

    print_heading();
    const auto start = std::chrono::steady_clock::now();
    for (nanoseconds passed{0}; passed < opening_hours; passed += clock_step) {
      if (passed > 0s && passed % 1min == 0s) print_row(passed);
      clock_.advance(clock_step);
      run_due_timers();
      // The clerks keep pace: none is more than one step of the clock behind.
      for (const auto& p : progress_)
        while (p.load(std::memory_order_acquire) < passed.count()) std::this_thread::yield();
    }
    for (auto& t : threads) t.join();
    run_due_timers();
    print_row(opening_hours);
    took_ = std::chrono::steady_clock::now() - start;
    return balance();
  }

 private:
  std::int64_t now() const { return clock_.now().time_since_epoch().count(); }
  nanoseconds opened_for() const { return clock_.now() - opening_; }

  /// A clerk does what customers ask for, when the clock says that it is time.
  void serve(const std::vector<event>& plan, std::atomic<std::int64_t>& progress) {
    for (const event& e : plan) {
      for (;;) {
        const nanoseconds passed = opened_for();
        if (e.at < passed) break;
        progress.store(passed.count(), std::memory_order_release);
        std::this_thread::yield();
      }
      handle(e);
    }
    progress.store(INT64_MAX, std::memory_order_release);
  }

  void handle(const event& e) {
    order& o = *e.who;
    const std::int64_t due = now() + patience.count();
    switch (e.what) {
      case event::places:
        ++books_.placed;
        ++o.armed;
        o.when = due;
        o.f = remind;
        o.seq = static_cast<std::uint64_t>(due);
        add_timer(timers_, o);
        break;
      case event::pays:
        if (del_timer(o)) {
          ++books_.paid;
          ++o.stopped;
        } else {
          ++books_.paid_late;
        }
        break;
      case event::puts_off:
        ++books_.put_off;
        // Reminded already? Then this has started the reminder anew.
        if (!mod_timer(timers_, o, due, 0, remind, static_cast<std::uint64_t>(due))) ++o.armed;
        break;
    }
  }

  /// What a processor does each time it looks at its timers.
  void run_due_timers() {
    const std::int64_t t = now();
    std::lock_guard held(timers_.lock);
    adjust_timers(timers_, t);
    while (run_timer(timers_, t) == 0) {
    }
    if (should_clear_deleted(timers_)) clear_deleted_timers(timers_);
  }

  static void print_heading() {
    std::cout << "  minute    started    stopped   too late    put off      fired    on heap\n";
  }

  void print_row(nanoseconds passed) const {
    std::cout << std::setw(8) << passed / 1min;
    for (const std::uint64_t figure :
         {books_.placed.load(), books_.paid.load(), books_.paid_late.load(), books_.put_off.load(),
          books_.reminded, std::uint64_t{timers_.num_timers.load()}})
      std::cout << std::setw(11) << figure;
    std::cout << std::endl;
  }

  /// Whether every reminder was accounted for.
  bool balance() const {
    const auto wrong = static_cast<std::uint64_t>(
        std::count_if(orders_.begin(), orders_.end(),
                      [](const order& o) { return o.armed != o.stopped + o.reminded; }));
    const auto calls = books_.placed + books_.paid + books_.paid_late + books_.put_off;
    std::cout << "\nTen minutes passed in " << std::chrono::duration<double>(took_).count()
              << " s: " << calls << " calls from " << clerks << " threads, " << books_.reminded
              << " reminders fired.\n"
              << "Fired early: " << books_.early << ". Out of order: " << books_.out_of_order
              << ". Lost, or both stopped and fired: " << wrong << ".\n";
    return wrong == 0 && books_.early == 0 && books_.out_of_order == 0 && timers_.heap.empty();
  }

  verge::manual_clock clock_;
  const verge::clock::time_point opening_ = clock_.now();
  books books_;
  timers timers_;
  std::vector<order> orders_;
  /// How far each clerk has come, in nanoseconds after opening. Publishes what the clerk did.
  std::atomic<std::int64_t> progress_[clerks] = {};
  std::chrono::steady_clock::duration took_{};
};

struct thousands : std::numpunct<char> {
  char do_thousands_sep() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

int main(int argc, char** argv) {
  std::size_t orders = 100'000;
  if (argc > 1) {
    const std::string_view text = argv[1];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), orders);
    if (argc > 2 || error != std::errc{} || end != text.data() + text.size() || orders == 0 ||
        orders > 10'000'000) {
      std::cerr << "usage: demo [ORDERS], a number from 1 to 10000000; without it, 100000\n";
      return 2;
    }
  }
  std::cout.imbue(std::locale(std::locale::classic(), new thousands));
  std::cout << "verge " << verge::version() << ": " << orders
            << " orders, a reminder three minutes after each unless it is paid\n\n"
            << std::fixed << std::setprecision(2);
  return shop(orders).open() ? 0 : 1;
}
