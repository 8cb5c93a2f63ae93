// SPDX-License-Identifier: Apache-2.0

#include "format.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <iterator>
#include <random>

#include <verge/version.h>

namespace verge::server::beanstalk {

namespace {

template <class... Args>
void add(std::string& out, fmt::format_string<Args...> text, Args&&... args) {
  fmt::format_to(std::back_inserter(out), text, std::forward<Args>(args)...);
}

void add_task(std::string& out, const char* word, const handed_out& t) {
  out.append(word);
  out.push_back(' ');
  const fmt::format_int id(t.id);
  out.append(id.data(), id.size());
  out.push_back(' ');
  const fmt::format_int size(t.body->size());
  out.append(size.data(), size.size());
  out.append("\r\n");
  out.append(*t.body);
  out.append("\r\n");
}

std::string yaml(const task_view& v) {
  const task& t = v.fields;
  return fmt::format(
      "---\nid: {}\ntube: {}\nstate: {}\npri: {}\nage: {}\ndelay: {}\nttr: {}\ntime-left: {}\n"
      "file: 0\nreserves: {}\ntimeouts: {}\nreleases: {}\nburies: {}\nkicks: {}\n",
      t.id, v.tube, name_of(t.state), t.priority, v.age / second, t.delay / second, t.ttr / second,
      v.time_left / second, t.reserves, t.timeouts, t.releases, t.buries, t.kicks);
}

std::string yaml(const tube_view& v) {
  return fmt::format(
      "---\nname: {}\ncurrent-jobs-urgent: {}\ncurrent-jobs-ready: {}\n"
      "current-jobs-reserved: {}\ncurrent-jobs-delayed: {}\ncurrent-jobs-buried: {}\n"
      "total-jobs: {}\ncurrent-using: {}\ncurrent-watching: {}\ncurrent-waiting: {}\n"
      "cmd-delete: {}\ncmd-pause-tube: {}\npause: {}\npause-time-left: {}\n",
      v.name, v.urgent, v.ready, v.reserved, v.delayed, v.buried, v.total, v.using_it, v.watching,
      v.waiting, v.deletes, v.pauses, v.pause / second, v.pause_left / second);
}

std::string yaml(const std::vector<std::string>& names) {
  std::string out = "---\n";
  for (const std::string& n : names) out += "- " + n + "\n";
  return out;
}

std::string yaml(const server_view& v, const server_identity& me) {
  const auto count = [&](verb what) { return v.commands[static_cast<std::size_t>(what)]; };
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  std::string out = fmt::format(
      "---\ncurrent-jobs-urgent: {}\ncurrent-jobs-ready: {}\ncurrent-jobs-reserved: {}\n"
      "current-jobs-delayed: {}\ncurrent-jobs-buried: {}\n",
      v.urgent, v.ready, v.reserved, v.delayed, v.buried);
  const struct {
    const char* name;
    std::uint64_t n;
  } commands[] = {
      {"put", count(verb::put) + count(verb::put_many)},
      {"peek", count(verb::peek)},
      {"peek-ready", count(verb::peek_ready)},
      {"peek-delayed", count(verb::peek_delayed)},
      {"peek-buried", count(verb::peek_buried)},
      {"reserve", v.reserves_without_limit},
      {"reserve-with-timeout", count(verb::reserve) - v.reserves_without_limit},
      {"delete", count(verb::remove)},
      {"release", count(verb::release)},
      {"use", count(verb::use)},
      {"watch", count(verb::watch)},
      {"ignore", count(verb::ignore)},
      {"bury", count(verb::bury)},
      {"kick", count(verb::kick)},
      {"touch", count(verb::touch)},
      {"stats", count(verb::stats)},
      {"stats-job", count(verb::stats_task)},
      {"stats-tube", count(verb::stats_tube)},
      {"list-tubes", count(verb::list_tubes)},
      {"list-tube-used", count(verb::used)},
      {"list-tubes-watched", count(verb::list_watched)},
      {"pause-tube", count(verb::pause)},
  };
  for (const auto& c : commands) add(out, "cmd-{}: {}\n", c.name, c.n);
  add(out,
      "job-timeouts: {}\ntotal-jobs: {}\nmax-job-size: {}\ncurrent-tubes: {}\n"
      "current-connections: {}\ncurrent-producers: {}\ncurrent-workers: {}\ncurrent-waiting: {}\n"
      "total-connections: {}\npid: {}\nversion: \"{}\"\n",
      v.timeouts, v.total, me.body_limit, v.tubes, v.connections, v.producers, v.workers, v.waiting,
      v.connections_ever, ::getpid(), version());
  add(out, "rusage-utime: {}.{:06}\nrusage-stime: {}.{:06}\nuptime: {}\n", use.ru_utime.tv_sec,
      use.ru_utime.tv_usec, use.ru_stime.tv_sec, use.ru_stime.tv_usec, v.uptime);
  add(out,
      "binlog-oldest-index: 0\nbinlog-current-index: 0\nbinlog-records-migrated: 0\n"
      "binlog-records-written: 0\nbinlog-max-size: 0\ndraining: {}\nid: {}\nhostname: {}\n"
      "os: {}\nplatform: {}\n",
      v.draining, me.id, me.hostname, me.os, me.platform);
  // What beanstalkd does not have.
  add(out,
      "verge-cmd-cancel: {}\nverge-cmd-reschedule: {}\nverge-batches: {}\n"
      "verge-batched-commands: {}\nverge-sync-microseconds: {}\nverge-tasks-in-memory: {}\n"
      "verge-bytes-written: {}\nverge-disk-bytes: {}\n",
      count(verb::cancel), count(verb::reschedule), v.batches, v.batched_commands,
      v.sync_nanoseconds / 1000, v.in_memory, v.bytes_written, v.disk_bytes);
  return out;
}

void add_shown(std::string& out, const view& v, const server_identity& me) {
  const std::string text = std::visit(
      [&](const auto& shown) {
        if constexpr (std::is_same_v<std::decay_t<decltype(shown)>, server_view>) {
          return yaml(shown, me);
        } else if constexpr (requires { yaml(shown); }) {
          return yaml(shown);
        } else {
          return std::string();  // what no command of this protocol asks for
        }
      },
      v);
  add(out, "OK {}\r\n{}\r\n", text.size(), text);
}

}  // namespace

server_identity identify(std::uint64_t body_limit) {
  server_identity me;
  me.body_limit = body_limit;
  std::random_device random;
  me.id = fmt::format("{:08x}{:08x}", random(), random());
  utsname name{};
  if (::uname(&name) == 0) {
    me.hostname = name.nodename;
    me.os = name.version;
    me.platform = name.machine;
  }
  return me;
}

void append_reply(std::string& out, const reply& r, const server_identity& me) {
  const auto numbered = [&](const char* word) {
    out.append(word);
    const fmt::format_int n(r.number);
    out.append(n.data(), n.size());
    out.append("\r\n");
  };
  switch (r.what) {
    case answer::inserted:
      return numbered("INSERTED ");
    case answer::kept:
      return numbered("KEPT ");
    case answer::replaced:
      return numbered("REPLACED ");
    case answer::exists:
      return numbered("EXISTS ");
    case answer::taken:
      out.append("TAKEN\r\n");
      return;
    case answer::inserted_many:
      return add(out, "INSERTED {} {}\r\n", r.number, r.text);
    case answer::draining:
      out.append("DRAINING\r\n");
      return;
    case answer::reserved:
      if (r.number != 0) add(out, "RESERVED_BATCH {}\r\n", r.number);
      add_task(out, "RESERVED", r.task);
      for (const handed_out& t : r.more) add_task(out, "RESERVED", t);
      return;
    case answer::timed_out:
      out.append("TIMED_OUT\r\n");
      return;
    case answer::deadline_soon:
      out.append("DEADLINE_SOON\r\n");
      return;
    case answer::not_found:
    case answer::stale_lease:
      out.append("NOT_FOUND\r\n");
      return;
    case answer::deleted:
      out.append("DELETED\r\n");
      return;
    case answer::released:
      out.append("RELEASED\r\n");
      return;
    case answer::buried:
      out.append("BURIED\r\n");
      return;
    case answer::touched:
      out.append("TOUCHED\r\n");
      return;
    case answer::kicked:
      return numbered("KICKED ");
    case answer::kicked_task:
      out.append("KICKED\r\n");
      return;
    case answer::found:
      return add_task(out, "FOUND", r.task);
    case answer::cancelled:
      out.append("CANCELLED\r\n");
      return;
    case answer::rescheduled:
      return numbered("RESCHEDULED ");
    case answer::using_tube:
      return add(out, "USING {}\r\n", r.text);
    case answer::watching:
      return numbered("WATCHING ");
    case answer::not_ignored:
      out.append("NOT_IGNORED\r\n");
      return;
    case answer::paused:
      out.append("PAUSED\r\n");
      return;
    case answer::shown:
      return add_shown(out, *r.shown, me);
    case answer::failed:
      return add(out, "FAILED {}\r\n", r.text);
    case answer::done:
      out.append("DONE\r\n");
      return;
    case answer::no_memory:
    case answer::tube_full:
      out.append("OUT_OF_MEMORY\r\n");  // what clients know that means: try again later
      return;
    case answer::other_request:
    case answer::no_push:
    case answer::push_is:  // no command of this protocol gets these
    case answer::denied:
      out.append("DENIED\r\n");
      return;
    case answer::bad_format:
      out.append("BAD_FORMAT\r\n");
      return;
    case answer::unknown_command:
      out.append("UNKNOWN_COMMAND\r\n");
      return;
    case answer::expected_crlf:
      out.append("EXPECTED_CRLF\r\n");
      return;
    case answer::too_big:
      out.append("JOB_TOO_BIG\r\n");
      return;
    case answer::moved:
    case answer::internal_error:
      out.append("INTERNAL_ERROR\r\n");
      return;
  }
}

}  // namespace verge::server::beanstalk
