// SPDX-License-Identifier: Apache-2.0

#include "player.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace verge::crash {

namespace {

constexpr std::int64_t second = 1'000'000'000;

std::uint64_t number_in(const std::string& text, std::size_t word) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < word && at != std::string::npos; ++i) {
    at = text.find(' ', at);
    if (at != std::string::npos) ++at;
  }
  std::uint64_t n = 0;
  if (at != std::string::npos) std::from_chars(text.data() + at, text.data() + text.size(), n);
  return n;
}

step about(step::kind what, const known_task& t) {
  step s;
  s.what = what;
  s.about.push_back(t.id);
  return s;
}

}  // namespace

player::player(int number, std::uint64_t seed, play_options options,
               std::function<position()> clock)
    : number_(number),
      random_(seed * 1000 + static_cast<std::uint64_t>(number)),
      options_(options),
      clock_(std::move(clock)) {
  const std::string suffix = std::to_string(number);
  tube_ = "orders" + suffix;
  dead_tube_ = "dead" + suffix;
  paused_tube_ = "paused" + suffix;
  book_.tubes = {tube_, dead_tube_, paused_tube_};
}

void player::complain(const std::string& text) {
  if (problems_.size() < 20) problems_.push_back(tube_ + ": " + text);
}

bool player::expect(bool right, const std::string& text, const std::string& answer) {
  if (!right) complain("'" + text + "' was answered '" + answer + "'");
  return right;
}

bool player::connect(std::uint16_t port) {
  ++life_;
  connection_ = std::make_unique<connection>(port);
  for (const std::string& command :
       {"use " + tube_, "watch " + tube_, "watch " + dead_tube_, std::string("ignore default")}) {
    if (!connection_->ask(command)) return false;
  }
  // What an earlier connection held is given back when the server has noticed its end.
  for (;;) {
    const std::string shown = connection_->show("stats-tube " + tube_);
    const std::string dead = connection_->show("stats-tube " + dead_tube_);
    if (shown.empty() || dead.empty()) return false;
    if (value_of(shown, "current-jobs-reserved") == "0" &&
        value_of(dead, "current-jobs-reserved") == "0") {
      return true;
    }
  }
}

void player::disconnect() {
  step s;
  s.what = step::kind::lost;
  s.begun = clock_();
  connection_.reset();
  s.acked = clock_();
  s.has_answer = true;
  apply(world_, s);
  book_.steps.push_back(std::move(s));
}

void player::adopt(const snapshot& found, position begun, position when) {
  step s;
  s.what = step::kind::adopt;
  s.found = book_.adopt(found);
  s.begun = begun;
  s.acked = when;
  s.has_answer = true;
  apply(world_, s);
  book_.steps.push_back(std::move(s));
}

known_task* player::pick(const std::function<bool(const known_task&)>& fits) {
  if (world_.tasks.empty()) return nullptr;
  auto at = world_.tasks.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(random(world_.tasks.size())));
  for (std::size_t i = 0; i < std::min<std::size_t>(world_.tasks.size(), 50); ++i) {
    if (!busy_.contains(at->first) && fits(at->second)) return &at->second;
    if (++at == world_.tasks.end()) at = world_.tasks.begin();
  }
  return nullptr;
}

std::string player::make_body(std::size_t size) {
  std::string body = tube_ + "/" + std::to_string(made_++) + "/";
  std::uint64_t state = random_();
  while (body.size() < size) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    body.push_back(static_cast<char>(state >> 56));
  }
  return body;
}

known_task player::new_task() {
  known_task t;
  t.tube = tube_;
  t.body = std::make_shared<const std::string>(
      make_body(one_in(20) ? random(10 * options_.longest_body) : random(options_.longest_body)));
  t.priority = static_cast<std::uint32_t>(random(4) == 0 ? random(4'000'000'000) : random(2000));
  t.ttr = static_cast<std::int64_t>(3600 + random(1000)) * second;
  switch (random(4)) {
    case 0:
      t.delay = static_cast<std::int64_t>(1 + random(300)) * millisecond;
      break;
    case 1:
      t.delay = static_cast<std::int64_t>(3'600'000 + random(1'000'000)) * millisecond;
      break;
    default:
      break;
  }
  if (one_in(5)) {
    t.max_attempts = static_cast<std::uint32_t>(1 + random(3));
    if (one_in(2)) t.dead_letter = dead_tube_;
  }
  return t;
}

/// PRI DELAY TTR BYTES and options, and the body.
std::string player::put_line(const known_task& t) {
  std::string line = std::to_string(t.priority) + " " + std::to_string(t.delay / millisecond) +
                     " " + std::to_string(t.ttr / millisecond) + " " +
                     std::to_string(t.body->size());
  if (t.max_attempts != 0) line += " attempts=" + std::to_string(t.max_attempts);
  if (!t.dead_letter.empty()) line += " dead=" + t.dead_letter;
  return line + "\r\n" + *t.body + "\r\n";
}

void player::add(sent_command c) {
  for (const task_id id : c.what.about) busy_.insert(id);
  window_.push_back(std::move(c));
}

void player::add_put() {
  known_task t = new_task();
  sent_command c;
  c.what.what = step::kind::put;
  c.text = "put-ms";
  if (one_in(3)) {
    // The command that beanstalkd has: whole seconds, no options.
    t.delay = t.delay / second * second;
    t.max_attempts = 0;
    t.dead_letter.clear();
    out_ += "put " + std::to_string(t.priority) + " " + std::to_string(t.delay / second) + " " +
            std::to_string(t.ttr / second) + " " + std::to_string(t.body->size()) + "\r\n" +
            *t.body + "\r\n";
  } else {
    out_ += "put-ms " + put_line(t);
  }
  c.what.made.push_back(std::move(t));
  c.take = [this](const std::string& answer, step& s) {
    s.made[0].id = number_in(answer, 1);
    return expect(answer.starts_with("INSERTED ") && s.made[0].id > highest_id_, "put", answer);
  };
  add(std::move(c));
}

void player::add_put_key() {
  known_task* old = one_in(2) ? pick([&](const known_task& t) {
    return !t.key.empty() && t.tube == tube_ && !busy_keys_.contains(t.key) &&
           t.state != task_state::reserved;
  })
                              : nullptr;
  known_task t = new_task();
  t.key = old != nullptr ? old->key : "key" + std::to_string(keys_++);
  busy_keys_.insert(t.key);
  const char* const modes[] = {"keep", "replace", "refuse"};
  const std::string mode = modes[random(3)];
  sent_command c;
  c.what.what = step::kind::put;
  c.text = "put-key " + t.key + " " + mode;
  out_ += c.text + " " + put_line(t);
  const task_id old_id = old != nullptr ? old->id : 0;
  if (old_id != 0 && mode == "replace") c.what.about.push_back(old_id);
  if (old_id != 0 && mode != "replace") c.what.changed_nothing = true;
  c.what.made.push_back(std::move(t));
  c.take = [this, old_id, mode, text = c.text](const std::string& answer, step& s) {
    const task_id id = number_in(answer, 1);
    if (old_id == 0 || mode == "replace") {
      s.made[0].id = id;
      return expect(answer.starts_with(old_id == 0 ? "INSERTED " : "REPLACED ") && id > highest_id_,
                    text, answer);
    }
    return expect(answer.starts_with(mode == "keep" ? "KEPT " : "EXISTS ") && id == old_id, text,
                  answer);
  };
  if (old_id != 0) busy_.insert(old_id);
  add(std::move(c));
}

void player::add_put_batch(std::size_t count, std::size_t size) {
  sent_command c;
  c.what.what = step::kind::put;
  c.text = "put-batch " + std::to_string(count);
  out_ += c.text + "\r\n";
  for (std::size_t i = 0; i < count; ++i) {
    known_task t = new_task();
    if (size != 0) t.body = std::make_shared<const std::string>(make_body(size));
    out_ += put_line(t);
    c.what.made.push_back(std::move(t));
  }
  c.take = [this, count, text = c.text](const std::string& answer, step& s) {
    task_id id = number_in(answer, 1);
    if (!expect(
            answer.starts_with("INSERTED ") && number_in(answer, 2) == count && id > highest_id_,
            text, answer)) {
      return false;
    }
    for (known_task& t : s.made) t.id = id++;
    return true;
  };
  add(std::move(c));
}

/// Cancel or reschedule.
void player::add_by_key() {
  known_task* t = pick([&](const known_task& k) {
    return !k.key.empty() && k.tube == tube_ && !busy_keys_.contains(k.key);
  });
  if (t == nullptr) return;
  const bool taken = t->state == task_state::reserved;
  const bool cancel = one_in(2);
  sent_command c;
  c.what = about(cancel ? step::kind::remove : step::kind::reschedule, *t);
  c.what.changed_nothing = taken;
  if (!cancel && !one_in(3)) {
    c.what.delay = static_cast<std::int64_t>(1 + random(one_in(2) ? 200 : 9'000'000)) * millisecond;
  }
  c.text = cancel ? "cancel " + t->key
                  : "reschedule " + t->key + " " + std::to_string(c.what.delay / millisecond);
  out_ += c.text + "\r\n";
  c.take = [this, taken, cancel, text = c.text](const std::string& answer, step&) {
    return expect(answer.starts_with(taken    ? "TAKEN"
                                     : cancel ? "CANCELLED"
                                              : "RESCHEDULED"),
                  text, answer);
  };
  add(std::move(c));
}

/// Release or bury.
void player::add_on_lease() {
  known_task* t = pick([](const known_task& k) { return k.state == task_state::reserved; });
  if (t == nullptr) return;
  const bool bury = one_in(2);
  sent_command c;
  c.what = about(bury ? step::kind::bury : step::kind::release, *t);
  c.what.priority = static_cast<std::uint32_t>(random(5000));
  c.what.burial = burials_++;
  const std::uint64_t delays[] = {0, 0, 1, 3600};
  const std::uint64_t delay = bury ? 0 : delays[random(4)];
  c.what.delay = static_cast<std::int64_t>(delay) * second;
  c.text = (bury ? "bury " : "release ") + std::to_string(t->id) + " " +
           std::to_string(c.what.priority) + (bury ? "" : " " + std::to_string(delay));
  out_ += c.text + "\r\n";
  c.take = [this, bury, text = c.text](const std::string& answer, step&) {
    return expect(answer == (bury ? "BURIED" : "RELEASED"), text, answer);
  };
  add(std::move(c));
}

void player::add_remove() {
  const bool many = world_.tasks.size() > options_.most_tasks;
  known_task* t = pick([&](const known_task& k) {
    return (k.state == task_state::reserved || many) && k.tube != paused_tube_ &&
           !busy_keys_.contains(k.key);
  });
  if (t == nullptr) return;
  sent_command c;
  c.what = about(step::kind::remove, *t);
  c.text = "delete " + std::to_string(t->id);
  out_ += c.text + "\r\n";
  c.take = [this, text = c.text](const std::string& answer, step&) {
    return expect(answer == "DELETED", text, answer);
  };
  add(std::move(c));
}

void player::add_kick() {
  if (one_in(2)) {
    known_task* t = pick([&](const known_task& k) {
      return k.state == task_state::buried ||
             (k.state == task_state::delayed && k.due_first > now() + 1800 * second);
    });
    if (t == nullptr) return;
    sent_command c;
    c.what = about(step::kind::kick, *t);
    c.text = "kick-job " + std::to_string(t->id);
    out_ += c.text + "\r\n";
    c.take = [this, text = c.text](const std::string& answer, step&) {
      return expect(answer == "KICKED", text, answer);
    };
    return add(std::move(c));
  }
  // Buried tasks of the tube, in the order of their burials. Others of the window stay away.
  std::vector<std::pair<std::uint64_t, task_id>> buried;
  for (const auto& [id, t] : world_.tasks) {
    if (t.state != task_state::buried || t.tube != tube_) continue;
    if (busy_.contains(id)) return;
    buried.emplace_back(t.burial, id);
  }
  // A bury or a last release of this window would come before them or after them.
  for (const sent_command& c : window_) {
    if (c.what.what == step::kind::bury || c.what.what == step::kind::release) return;
  }
  if (buried.empty()) return;
  std::sort(buried.begin(), buried.end());
  const std::size_t most = 1 + random(buried.size() + 2);
  sent_command c;
  c.what.what = step::kind::kick;
  for (const auto& [order, id] : buried) {
    if (c.what.about.size() < most) c.what.about.push_back(id);
    busy_.insert(id);
  }
  c.text = "kick " + std::to_string(most);
  out_ += c.text + "\r\n";
  c.take = [this, n = c.what.about.size(), text = c.text](const std::string& answer, step&) {
    return expect(answer == "KICKED " + std::to_string(n), text, answer);
  };
  add(std::move(c));
}

void player::add_pause() {
  sent_command c;
  c.what.what = step::kind::pause;
  c.what.tube = paused_tube_;
  const std::uint64_t length = 100'000 + random(100'000);
  c.what.delay = static_cast<std::int64_t>(length) * second;
  c.text = "pause-tube " + paused_tube_ + " " + std::to_string(length);
  if (!std::any_of(world_.tasks.begin(), world_.tasks.end(),
                   [&](const auto& t) { return t.second.tube == paused_tube_; })) {
    // The tube has to exist. Two of the three lines are answered without a word for the ledger.
    if (busy_keys_.contains("")) return;
    busy_keys_.insert("");
    known_task t = new_task();
    t.tube = paused_tube_;
    for (const std::string& line : {"use " + paused_tube_, std::string(), "use " + tube_}) {
      sent_command use;
      if (line.empty()) {
        out_ += "put-ms " + put_line(t);
        use.what.what = step::kind::put;
        use.what.made.push_back(t);
        use.take = [this](const std::string& answer, step& s) {
          s.made[0].id = number_in(answer, 1);
          return expect(answer.starts_with("INSERTED "), "put", answer);
        };
      } else {
        out_ += line + "\r\n";
        use.what.what = step::kind::kick;  // of nothing
        use.take = [this, line](const std::string& answer, step&) {
          return expect(answer.starts_with("USING "), line, answer);
        };
      }
      add(std::move(use));
    }
  }
  out_ += c.text + "\r\n";
  c.take = [this, text = c.text](const std::string& answer, step&) {
    return expect(answer == "PAUSED", text, answer);
  };
  add(std::move(c));
}

void player::add_reserve() {
  sent_command c;
  c.what.what = step::kind::reserve;
  c.text = one_in(2) ? "reserve-with-timeout 0"
                     : "reserve-batch " + std::to_string(1 + random(8)) + " 0";
  out_ += c.text + "\r\n";
  c.take = [this](const std::string& answer, step& s) { return take_reserved(answer, s); };
  add(std::move(c));
}

bool player::take_reserved(const std::string& first, step& s) {
  if (first == "TIMED_OUT") return true;
  if (!first.starts_with("RESERVED_BATCH ")) return take_one_reserved(first, s);
  for (std::uint64_t n = number_in(first, 1); n > 0; --n) {
    const auto line = connection_->line();
    if (!line || !take_one_reserved(*line, s)) return false;
  }
  return true;
}

bool player::take_one_reserved(const std::string& line, step& s) {
  if (!expect(line.starts_with("RESERVED "), "reserve", line)) return false;
  const task_id id = number_in(line, 1);
  const auto body = connection_->body(number_in(line, 2));
  if (!body) return false;
  s.about.push_back(id);
  const auto at = world_.tasks.find(id);
  if (at == world_.tasks.end()) {
    complain("task " + std::to_string(id) + " was handed out, and must not be there");
    return true;
  }
  const known_task& t = at->second;
  if (*body != *t.body)
    complain("task " + std::to_string(id) + " was handed out with a wrong body");
  const bool may = t.state == task_state::ready ||
                   (t.state == task_state::delayed && t.due_first <= now() + 2 * second);
  if (!may) complain("task " + std::to_string(id) + " was handed out, and is not ready");
  return true;
}

void player::add_something() {
  const std::uint64_t what = random(100);
  const bool many = world_.tasks.size() > options_.most_tasks;
  if (many && what < 50) return add_remove();
  if (what < 25) return add_put();
  if (what < 37) return add_put_key();
  if (what < 42) return add_put_batch(1 + random(10), 0);
  if (what < 54) return add_by_key();
  if (what < 72) return add_on_lease();
  if (what < 88) return add_remove();
  if (what < 97) return add_kick();
  add_pause();
}

bool player::play() {
  window_.clear();
  busy_.clear();
  busy_keys_.clear();
  out_.clear();
  const std::size_t wanted = 1 + random(options_.most_in_window);
  if (options_.large_every != 0 && one_in(options_.large_every)) {
    add_put_batch(options_.large_bytes / 50'000, 50'000);
  }
  for (std::size_t i = 0; i < wanted; ++i) add_something();
  // Last, as it may be about any task.
  if (window_.empty() || one_in(2)) add_reserve();
  const position begun = clock_();
  const wall_time sent = now();
  for (sent_command& c : window_) {
    c.what.begun = begun;
    c.what.sent = sent;
    c.what.port = connection_->local_port();
    c.what.life = life_;
  }
  connection_->send(out_);
  bool all = true;
  for (sent_command& c : window_) {
    step& s = c.what;
    std::optional<std::string> answer;
    if (all) answer = connection_->line();
    if (answer == "INTERNAL_ERROR") internal_error_ = true;
    all = all && answer && *answer != "INTERNAL_ERROR";
    if (all) {
      all = c.take(*answer, s);
      if (!all && connection_->is_open()) return false;  // a wrong answer: no use in going on
    }
    if (all) {
      s.has_answer = true;
      s.answered = now();
      s.answer_end = connection_->taken();
      s.acked = 0;
      ++answers_;
      for (const known_task& t : s.made) highest_id_ = std::max(highest_id_, t.id);
      apply(world_, s);
    }
    book_.steps.push_back(std::move(s));
  }
  return all;
}

bool player::play(std::size_t answers) {
  const std::size_t end = answers_ + answers;
  while (answers_ < end) {
    if (!play()) return false;
  }
  return true;
}

}  // namespace verge::crash
