#include "checker.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

namespace verge::cluster_test {

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

/// When it has happened at the latest.
std::int64_t latest(const operation& o) { return o.outcome == result::unknown ? never : o.end; }

bool is_removal(const operation& o) { return o.what == act::ack || o.what == act::cancel; }
bool may_have_happened(const operation& o) {
  return o.outcome == result::done || o.outcome == result::unknown;
}

class task_history {
 public:
  std::vector<const operation*> all;

  void check(std::vector<std::string>& faults) {
    for (const operation* o : all) {
      if (o->what == act::put) put_ = o;
    }
    lost(faults);
    for (const operation* o : all) {
      if (o->what == act::hand_out) {
        again(*o, faults);
        two(*o, faults);
        early(*o, faults);
        if (put_ != nullptr && put_->body != o->body) report("changed", *o, put_, faults);
      } else if (o->outcome == result::done &&
                 (o->what == act::ack || o->what == act::release || o->what == act::touch)) {
        stale(*o, faults);
      } else if (o->outcome == result::not_found &&
                 (o->what == act::cancel || o->what == act::reschedule)) {
        not_found(*o, faults);
      }
    }
  }

 private:
  void report(const char* what, const operation& o, const operation* other,
              std::vector<std::string>& faults) const {
    std::string text = std::string(what) + ": task " + std::to_string(o.id) + " key " + o.key +
                       ", lease " + o.lease + " at " + std::to_string(o.begin) + ".." +
                       std::to_string(o.end);
    if (other != nullptr) {
      text += ", after lease " + other->lease + " at " + std::to_string(other->begin) + ".." +
              std::to_string(other->end);
    }
    faults.push_back(std::move(text));
  }

  void lost(std::vector<std::string>& faults) const {
    if (put_ == nullptr || put_->outcome != result::done) return;
    for (const operation* o : all) {
      if (is_removal(*o) && may_have_happened(*o)) return;
      if (o->what == act::hand_out && o->at_the_end) return;
    }
    report("lost", *put_, nullptr, faults);
  }

  void again(const operation& h, std::vector<std::string>& faults) const {
    for (const operation* o : all) {
      if (is_removal(*o) && o->outcome == result::done && o->end < h.begin) {
        return report("again", h, o, faults);
      }
    }
  }

  /// The lease is valid at least from when its client has it, for its TTR from before it was asked
  /// for, unless its client has begun to end it; a touch that was acknowledged renews it.
  void two(const operation& h, std::vector<std::string>& faults) const {
    if (put_ == nullptr) return;
    for (const operation* o : all) {
      if (o->what != act::hand_out || o == &h || o->lease == h.lease) continue;
      std::int64_t until = o->begin + put_->ttr;
      std::int64_t ended = never;
      for (const operation* e : all) {
        if (e->lease != o->lease) continue;
        if (e->what == act::touch && e->outcome == result::done && e->end <= h.begin) {
          until = std::max(until, e->begin + put_->ttr);
        }
        const bool ends = e->what == act::ack || e->what == act::release;
        if (ends && may_have_happened(*e)) ended = std::min(ended, e->begin);
      }
      if (o->end < h.begin && h.end < std::min(until, ended)) return report("two", h, o, faults);
    }
  }

  /// A release or a reschedule gives another time; which one counts is known only if none is under
  /// way at the same time.
  void early(const operation& h, std::vector<std::string>& faults) const {
    if (put_ == nullptr) return;
    std::int64_t first = put_->begin + put_->delay;
    const operation* last = nullptr;
    bool sure = true;
    for (const operation* o : all) {
      if (o->what != act::reschedule && o->what != act::release) continue;
      if (!may_have_happened(*o) || o->begin > h.end) continue;
      first = std::min(first, o->begin + o->delay);
      if (latest(*o) >= h.begin) sure = false;
      if (last == nullptr || o->begin > last->begin) {
        if (last != nullptr && latest(*last) >= o->begin) sure = false;
        last = o;
      }
    }
    if (h.end < first) return report("early", h, put_, faults);
    if (last != nullptr && sure && h.end < last->begin + last->delay) {
      report("early", h, last, faults);
    }
  }

  void stale(const operation& o, std::vector<std::string>& faults) const {
    const operation* mine = nullptr;
    for (const operation* h : all) {
      if (h->what == act::hand_out && h->lease == o.lease) mine = h;
    }
    if (mine == nullptr) return;
    for (const operation* h : all) {
      if (h->what != act::hand_out || h->lease == o.lease) continue;
      if (mine->end < h->begin && h->end < o.begin) return report("stale", o, h, faults);
    }
  }

  void not_found(const operation& o, std::vector<std::string>& faults) const {
    if (put_ == nullptr || put_->outcome != result::done || put_->end >= o.begin) return;
    for (const operation* r : all) {
      if (is_removal(*r) && may_have_happened(*r) && r->begin <= o.end && r != &o) return;
    }
    report("not found", o, put_, faults);
  }

  const operation* put_{nullptr};
};

}  // namespace

std::vector<std::string> check(const std::vector<operation>& history) {
  std::unordered_map<std::string, std::uint64_t> ids;
  for (const operation& o : history) {
    if (o.id != 0 && !o.key.empty()) ids[o.key] = o.id;
  }
  std::vector<std::string> faults;
  std::map<std::uint64_t, task_history> tasks;
  std::map<std::uint64_t, const operation*> puts;
  for (const operation& o : history) {
    const auto found = ids.find(o.key);
    const std::uint64_t id = o.id != 0 ? o.id : found != ids.end() ? found->second : 0;
    if (id == 0) continue;
    tasks[id].all.push_back(&o);
    if (o.what != act::put || o.id == 0) continue;
    if (!puts.emplace(o.id, &o).second) {
      faults.push_back("id " + std::to_string(o.id) + " was given twice");
    }
  }
  for (auto& [id, t] : tasks) t.check(faults);
  return faults;
}

}  // namespace verge::cluster_test
