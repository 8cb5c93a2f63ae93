// SPDX-License-Identifier: Apache-2.0

// Recordings of a runtime, as Chrome's JSON.

#include <verge/trace.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <base/code_name.h>
#include <base/json_text.h>
#include <base/trace_log.h>
#include <clock/fast_clock.h>
#include <sched/runtime_core.h>

namespace verge {

namespace detail {

struct trace_recording {
  live_scheduler& of;
  std::int64_t begin{0};
  std::int64_t end{0};  ///< 0 until it has been stopped
  std::vector<trace_ring::contents> processors;
  trace_ring::contents operations;

  std::uint64_t lost() const noexcept {
    std::uint64_t n = operations.lost;
    for (const auto& p : processors) n += p.lost;
    return n;
  }
};

namespace {

/// Writes events one after another.
class chrome_json {
 public:
  chrome_json(std::ostream& out, std::int64_t begin) : out_(out), begin_(begin) {}

  void thread_name(unsigned track, const std::string& name) {
    next() << R"({"ph":"M","pid":1,"tid":)" << track << R"(,"name":"thread_name","args":{"name":)"
           << json_string(name) << "}}";
  }
  void slice(unsigned track, const trace_event& e, const char* kind, const std::string& name) {
    // It may have begun before the recording.
    const std::int64_t from = std::max(e.time, begin_);
    next() << R"({"ph":"X","pid":1,"tid":)" << track << R"(,"cat":")" << kind << R"(","name":)"
           << json_string(name) << R"(,"ts":)" << time(from) << R"(,"dur":)"
           << micros(std::max<std::int64_t>(e.time + e.value - from, 0)) << '}';
  }
  void instant(unsigned track, const trace_event& e, const std::string& name) {
    next() << R"({"ph":"i","s":"t","pid":1,"tid":)" << track << R"(,"cat":"fire","name":)"
           << json_string(name) << R"(,"ts":)" << time(e.time) << R"(,"args":{"late_us":)"
           << micros(e.time - e.value) << "}}";
  }
  void timer(char phase, const trace_event& e, std::int64_t at, const std::string& name,
             const char* how) {
    next() << R"({"ph":")" << phase << R"(","pid":1,"tid":0,"cat":"timer","id":)"
           << json_string(identity(e.id)) << R"(,"name":)" << json_string(name) << R"(,"ts":)"
           << time(at) << R"(,"args":{"how":")" << how << '"';
    if (phase != 'e') out_ << R"(,"delay_us":)" << micros(e.value - e.time);
    out_ << "}}";
  }

 private:
  std::ostream& next() {
    out_ << (std::exchange(first_, false) ? "\n" : ",\n");
    return out_;
  }
  static std::string micros(std::int64_t ns) {
    char text[40];
    std::snprintf(text, sizeof text, "%.3f", static_cast<double>(ns) / 1e3);
    return text;
  }
  std::string time(std::int64_t ns) const { return micros(std::max<std::int64_t>(ns - begin_, 0)); }
  static std::string identity(const void* id) {
    char text[2 + 2 * sizeof id + 1];
    std::snprintf(text, sizeof text, "%p", id);
    return text;
  }

  std::ostream& out_;
  const std::int64_t begin_;
  bool first_{true};
};

std::string name_of(const trace_event& e) { return name_of_work(e.label, e.written, e.code); }

void write_processor(chrome_json& to, unsigned track, const std::vector<trace_event>& events) {
  for (const trace_event& e : events) {
    switch (e.what) {
      case trace_event::kind::callback:
        to.slice(track, e, "callback", name_of(e));
        break;
      case trace_event::kind::task:
        to.slice(track, e, "task", name_of(e));
        break;
      case trace_event::kind::idle:
        to.slice(track, e, "idle", "idle");
        break;
      case trace_event::kind::fire:
        to.instant(track, e, "fire: " + name_of(e));
        break;
      default:
        break;
    }
  }
}

/// Turns on spare processors and what no numbered one has fired: among the operations on timers.
void write_spares(chrome_json& to, unsigned first_track, const std::vector<trace_event>& all) {
  std::map<const void*, std::vector<trace_event>> spares;
  for (const trace_event& e : all) {
    if (e.what == trace_event::kind::fire) {
      to.instant(0, e, "fire: " + name_of(e));
    } else if (e.what <= trace_event::kind::idle) {
      spares[e.id].push_back(e);
    }
  }
  unsigned n = 0;
  for (const auto& [spare, events] : spares) {
    to.thread_name(first_track + n, "spare processor " + std::to_string(n));
    write_processor(to, first_track + n, events);
    ++n;
  }
}

/// Every timer that was started, until it fires or is stopped, or until the end.
void write_timers(chrome_json& to, const trace_recording& r) {
  std::vector<trace_event> all = r.operations.events;
  for (const auto& p : r.processors) {
    std::copy_if(p.events.begin(), p.events.end(), std::back_inserter(all),
                 [](const trace_event& e) { return e.what == trace_event::kind::fire; });
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const trace_event& a, const trace_event& b) { return a.time < b.time; });
  std::unordered_map<const void*, trace_event> open;
  const auto close = [&](const void* id, std::int64_t at, const char* how) {
    const auto found = open.find(id);
    if (found == open.end()) return;
    to.timer('e', found->second, at, name_of(found->second), how);
    open.erase(found);
  };
  for (const trace_event& e : all) {
    if (e.what == trace_event::kind::start) {
      close(e.id, e.time, "started again");
      to.timer('b', e, e.time, name_of(e), "started");
      open.insert_or_assign(e.id, e);
    } else if (e.what == trace_event::kind::reset) {
      if (open.contains(e.id)) to.timer('n', e, e.time, name_of(open.at(e.id)), "reset");
    } else if (e.what == trace_event::kind::stop || e.what == trace_event::kind::fire) {
      close(e.id, e.time, e.what == trace_event::kind::stop ? "stopped" : "fired");
    }
  }
  while (!open.empty()) close(open.begin()->first, r.end, "pending at the end");
}

}  // namespace

}  // namespace detail

trace::trace(runtime& rt, trace_options options) {
  auto& s = static_cast<detail::live_scheduler&>(detail::scheduler_of(rt));
  s.refuse_if_lost();
  auto recording = std::make_unique<detail::trace_recording>(
      detail::trace_recording{.of = s, .begin = 0, .end = 0, .processors = {}, .operations = {}});
  const std::size_t size = std::bit_ceil(std::clamp<std::size_t>(options.events, 1 << 10, 1 << 20));
  s.begin_trace(size);
  recording->begin = detail::fast_clock::now();
  recording_ = recording.release();
}

trace::~trace() {
  stop();
  delete recording_;
}

void trace::stop() noexcept {
  detail::trace_recording& r = *recording_;
  if (r.end != 0) return;
  r.end = detail::fast_clock::now();
  try {
    r.of.end_trace(
        [&](unsigned processor, const detail::trace_ring& ring) {
          if (r.processors.size() <= processor) r.processors.resize(processor + 1);
          r.processors[processor] = ring.since(r.begin);
        },
        [&](const detail::trace_ring& ring) { r.operations = ring.since(r.begin); });
  } catch (const std::bad_alloc&) {
    // What there is room for is all there is.
  }
}

std::uint64_t trace::lost() const noexcept { return recording_->lost(); }

void trace::write(std::ostream& out) const {
  const detail::trace_recording& r = *recording_;
  if (r.end == 0) throw std::logic_error("verge: a trace is written after stop()");
  out << R"({"displayTimeUnit":"ns","otherData":{"lost":)" << r.lost() << R"(},"traceEvents":[)";
  detail::chrome_json to(out, r.begin);
  for (unsigned p = 0; p < r.processors.size(); ++p) {
    to.thread_name(p + 1, "processor " + std::to_string(p));
    detail::write_processor(to, p + 1, r.processors[p].events);
  }
  detail::write_spares(to, static_cast<unsigned>(r.processors.size()) + 1, r.operations.events);
  detail::write_timers(to, r);
  out << "\n]}\n";
}

}  // namespace verge
