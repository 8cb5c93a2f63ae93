// SPDX-License-Identifier: Apache-2.0

#include "checker.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
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
  std::optional<bool> is_there;  ///< at the end, if the database was looked at

  void check(std::vector<std::string>& faults) {
    for (const operation* o : all) {
      if (o->what == act::put) put_ = o;
      if (o->what == act::hand_out) hand_outs_.push_back(o);
    }
    lost(faults);
    there(faults);
    const std::size_t before = faults.size();
    for (const operation* h : hand_outs_) again(*h, faults);
    for (const operation* o : all) {
      const bool on_lease = o->what == act::ack || o->what == act::release || o->what == act::touch;
      if (on_lease && o->outcome == result::done) stale(*o, faults);
      const bool by_key = o->what == act::cancel || o->what == act::reschedule;
      if (by_key && o->outcome == result::not_found) not_found(*o, faults);
    }
    // What these have found makes two leases as well.
    if (faults.size() == before) two(faults);
    for (const operation* h : hand_outs_) {
      early(*h, faults);
      if (put_ != nullptr && put_->body != h->body) report("changed", *h, put_, faults);
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
    if (!is_there.value_or(false)) report("lost", *put_, nullptr, faults);
  }

  void there(std::vector<std::string>& faults) const {
    if (!is_there.value_or(false)) return;
    for (const operation* o : all) {
      if (is_removal(*o) && o->outcome == result::done) return report("there", *o, put_, faults);
    }
  }

  void again(const operation& h, std::vector<std::string>& faults) const {
    for (const operation* o : all) {
      if (is_removal(*o) && o->outcome == result::done && o->end < h.begin) {
        return report("again", h, o, faults);
      }
    }
  }

  /// Two leases of which neither can have been handed out after the other.
  void two(std::vector<std::string>& faults) const {
    if (put_ == nullptr) return;
    for (std::size_t i = 0; i < hand_outs_.size(); ++i) {
      for (std::size_t j = i + 1; j < hand_outs_.size(); ++j) {
        const operation& a = *hand_outs_[i];
        const operation& b = *hand_outs_[j];
        if (a.lease == b.lease || may_follow(a, b) || may_follow(b, a)) continue;
        report("two", b, &a, faults);
      }
    }
  }

  /// Whether the second can have been handed out after the first: the first was released, or its
  /// TTR had ended. It lasts for the TTR from its begin at least, and longer if it was touched; if
  /// an ack of it was accepted, there is none after it.
  bool may_follow(const operation& first, const operation& second) const {
    if (second.end < first.begin) return false;
    std::int64_t until = first.begin + put_->ttr;
    bool released = false;
    for (const operation* e : all) {
      if (e->lease != first.lease) continue;
      if (e->what == act::ack && e->outcome == result::done) return false;
      if (e->what == act::touch && e->outcome == result::done && e->end <= second.begin) {
        until = std::max(until, e->begin + put_->ttr);
      }
      released |= e->what == act::release && may_have_happened(*e) && e->begin <= second.end;
    }
    return released || until <= second.end;
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
  std::vector<const operation*> hand_outs_;
};

std::vector<std::string> check_all(const std::vector<operation>& history,
                                   const std::set<std::uint64_t>* there) {
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
  for (auto& [id, t] : tasks) {
    if (there != nullptr) t.is_there = there->contains(id);
    t.check(faults);
  }
  return faults;
}

}  // namespace

std::vector<std::string> check(const std::vector<operation>& history) {
  return check_all(history, nullptr);
}

std::vector<std::string> check(const std::vector<operation>& history,
                               const std::set<std::uint64_t>& there) {
  return check_all(history, &there);
}

}  // namespace verge::cluster_test
