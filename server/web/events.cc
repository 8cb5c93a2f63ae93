// SPDX-License-Identifier: Apache-2.0

#include "events.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <verge/select.h>
#include <verge/time.h>

#include "../text/time_text.h"
#include "task_json.h"

namespace verge::server::web {

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t tubes_in_event = 200;
constexpr std::size_t rounds_between_forecasts = 5;
constexpr std::uint64_t minutes_of_forecast = 60;
/// A tube whose oldest ready task has waited longer has too few workers.
constexpr nanoseconds too_old = 60 * second;
/// For how long it is said that the clock was set.
constexpr nanoseconds news = 600 * second;

ordered_json lateness_json(const lateness_figures& f) {
  ordered_json j;
  j["bounds_us"] = f.bounds;
  j["counts"] = f.counts;
  return j;
}

}  // namespace

std::vector<alert> alerts_of(const survey_view& v, const machine_view& m, const signs* s) {
  std::vector<alert> found;
  if (s != nullptr && s->failed.load()) {
    found.push_back({"write-stopped", "The disk has failed: nothing is written any more"});
  }
  if (m.disk_size != 0 && m.disk_free < std::min<std::uint64_t>(m.disk_size / 20, 1U << 30)) {
    found.push_back({"disk", fmt::format("{} MB are left on the disk", m.disk_free >> 20)});
  }
  for (const tube_view& t : v.tubes) {
    if (t.oldest_ready <= too_old || t.pause_left > 0) continue;
    found.push_back(
        {"lag", fmt::format("{}: a task has been ready for {} s{}", t.name, t.oldest_ready / second,
                            t.waiting == 0 ? ", and no worker waits" : "")});
  }
  if (s != nullptr && s->clock_steps.load() != 0 && v.now - s->last_clock_step.load() < news) {
    found.push_back({"clock", "The clock was set at " +
                                  format_rfc3339(s->last_clock_step.load() / second * second) +
                                  ": due times moved with it"});
  }
  if (v.all.draining) found.push_back({"draining", "The server takes no more tasks"});
  return found;
}

event_source::event_source(command_sink& to, const api_settings& settings)
    : client(leases::by_token), to_(to), settings_(settings) {}

chan<event_text> event_source::subscribe() {
  chan<event_text> made(4);
  std::lock_guard held(lock_);
  if (stopped_) {
    made.close();
  } else {
    subscribers_.push_back(made);
    newcomer_ = true;
  }
  static_cast<void>(wake_.try_send(true));  // the first event comes at once
  return made;
}

void event_source::forget(const chan<event_text>& c) {
  std::lock_guard held(lock_);
  std::erase(subscribers_, c);
}

bool event_source::has_listeners() {
  std::lock_guard held(lock_);
  return !subscribers_.empty();
}

void event_source::stop() {
  std::vector<chan<event_text>> all;
  {
    std::lock_guard held(lock_);
    stopped_ = true;
    all.swap(subscribers_);
  }
  for (auto& c : all) c.close();
  static_cast<void>(wake_.try_send(true));
}

void event_source::deliver(reply r) { static_cast<void>(replies_.try_send(std::move(r))); }

void event_source::left() noexcept {}

void event_source::broadcast(const event_text& text) {
  std::lock_guard held(lock_);
  for (auto& c : subscribers_) static_cast<void>(c.try_send(text));
}

verge::task<> event_source::run(std::shared_ptr<event_source> self) {
  event_source& me = *self;
  for (std::size_t round = 0;; ++round) {
    const bool told = me.has_listeners();
    if (told) co_await me.tell_once(round);
    const auto pause = told ? 1s : 24h;
    static_cast<void>(co_await verge::select(recv(me.wake_), recv(verge::after(pause))));
    bool over = false;
    {
      std::lock_guard held(me.lock_);
      over = me.stopped_;
    }
    if (over) break;
  }
  me.to_.submit({self, command(verb::leave)});
}

verge::task<> event_source::tell_once(std::size_t round) {
  to_.submit({shared_from_this(), command(verb::survey, tubes_in_event)});
  const auto state = co_await recv(replies_);
  if (state && state->what == answer::shown) {
    broadcast(
        std::make_shared<const std::string>(state_event(std::get<survey_view>(*state->shown))));
  } else {
    broadcast(std::make_shared<const std::string>(
        "event: state\ndata: {\"alerts\":[{\"kind\":\"write-stopped\",\"text\":\"The disk has "
        "failed: nothing is written any more\"}]}\n\n"));
  }
  bool asked = round % rounds_between_forecasts == 0;
  {
    std::lock_guard held(lock_);
    asked |= std::exchange(newcomer_, false);
  }
  if (!asked) co_return;
  to_.submit({shared_from_this(), command(verb::forecast, minutes_of_forecast)});
  const auto ahead = co_await recv(replies_);
  if (!ahead || ahead->what != answer::shown) co_return;
  const auto& f = std::get<forecast_view>(*ahead->shown);
  ordered_json j;
  j["minutes"] = f.minutes;
  if (f.known_until) j["known_until"] = format_rfc3339(*f.known_until);
  broadcast(std::make_shared<const std::string>("event: forecast\ndata: " + written(j) + "\n"));
}

std::string event_source::state_event(const survey_view& v) const {
  const machine_view m = look_at_machine(settings_.disk);
  ordered_json j;
  j["now"] = format_rfc3339(v.now);
  j["server"] = shown(v.all);
  j["server"]["disk_free"] = m.disk_free;
  j["server"]["disk_size"] = m.disk_size;
  j["server"]["resident"] = m.resident;
  j["lateness"] = lateness_json(v.all.lateness);
  j["tubes"] = ordered_json::array();
  for (const tube_view& t : v.tubes) j["tubes"].push_back(shown(t));
  j["more"] = v.more;
  j["alerts"] = ordered_json::array();
  for (const alert& a : alerts_of(v, m, settings_.condition)) {
    ordered_json one;
    one["kind"] = a.kind;
    one["text"] = a.text;
    j["alerts"].push_back(std::move(one));
  }
  return "event: state\ndata: " + written(j) + "\n";
}

}  // namespace verge::server::web
