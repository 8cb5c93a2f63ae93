// SPDX-License-Identifier: Apache-2.0

// What `verge check` does: reads everything, and proves the invariants.

#include <rocksdb/iterator.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "records.h"
#include "rocks_database.h"

namespace verge::server {

using namespace records;

check_report check_rocks_store(const std::string& directory) {
  rocks_options options;
  options.directory = directory;
  rocks_store opened(options, access::read);
  check_report report;
  const auto fault = [&](std::string text) {
    ++report.fault_count;
    if (report.faults.size() < 100) report.faults.push_back(std::move(text));
  };
  const recovered known = opened.recover();
  struct counts {
    std::uint64_t delayed{0}, ready{0}, buried{0}, urgent{0};
  };
  std::unordered_map<tube_number, counts> tubes;
  for (const tube_record& t : known.tubes) tubes[t.number] = {};

  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;
  const auto exists = [&](const std::string& key, std::string* value) {
    const auto s = opened.db().Get(read, key, value);
    if (!s.ok() && !s.IsNotFound()) fault("cannot be read: " + s.ToString());
    return s.ok();
  };
  std::uint64_t indexed = 0;
  std::uint64_t changed = 0;
  const std::unique_ptr<rocksdb::Iterator> i(opened.db().NewIterator(read));
  for (i->SeekToFirst(); i->Valid(); i->Next()) {
    const std::string_view key = bytes_of(i->key());
    try {
      std::string value;
      switch (key[0]) {
        case 'T': {
          ++report.tasks;
          const task_id id = id_at(key, 1);
          std::string_view in = bytes_of(i->value());
          const stored_task put = take_fields(in);
          report.bodies_bytes += in.size();
          const std::string name = "task " + std::to_string(id);
          const auto now = opened.find(id);
          if (put.fields.id != id || !now || now->fields.id != id) {
            fault(name + ": its record names another task");
            break;
          }
          if (id >= known.id_ceiling) fault(name + " is above the ceiling of ids");
          if (!exists(index_key(now->fields.tube, now->where, id), &value)) {
            fault(name + " has no entry in the index of its place");
          }
          if (!now->fields.key.empty() &&
              (!exists(key_key(now->fields.tube, now->fields.key), &value) ||
               parse_number(value) != id)) {
            fault(name + ": its key does not name it");
          }
          break;
        }
        case 'S': {
          ++changed;
          const task_id id = id_at(key, 1);
          if (!exists(task_key(id), &value)) {
            fault("a change of task " + std::to_string(id) + ", which does not exist");
          }
          break;
        }
        case 'D':
        case 'R':
        case 'B': {
          ++indexed;
          tube_number tube = 0;
          place p;
          task_id id = 0;
          if (!parse_index_key(key, tube, p, id)) {
            fault("an index entry that cannot be read");
            break;
          }
          const auto t = opened.find(id);
          if (!t || t->fields.tube != tube || t->where.kind != p.kind || t->where.at != p.at ||
              (p.kind == place_kind::ready && t->where.priority != p.priority)) {
            fault("an index entry for task " + std::to_string(id) + ", which is elsewhere");
            break;
          }
          const auto of_tube = tubes.find(tube);
          if (of_tube == tubes.end()) {
            fault("task " + std::to_string(id) + " is in tube " + std::to_string(tube) +
                  ", which does not exist");
            break;
          }
          if (p.kind == place_kind::delayed) ++of_tube->second.delayed;
          if (p.kind == place_kind::ready) ++of_tube->second.ready;
          if (p.kind == place_kind::buried) ++of_tube->second.buried;
          if (p.kind == place_kind::ready && p.priority < urgent_below) ++of_tube->second.urgent;
          break;
        }
        case 'K': {
          const task_id id = parse_number(bytes_of(i->value()));
          const auto t = opened.find(id);
          if (!t || key_key(t->fields.tube, t->fields.key) != key) {
            fault("a key names task " + std::to_string(id) + ", which does not have it");
          }
          break;
        }
        case 'L': {
          const std::string prefix(key.substr(1));
          const std::unique_ptr<rocksdb::Iterator> first(opened.db().NewIterator(read));
          first->Seek(prefix);
          if (first->Valid() && first->key().starts_with(prefix) &&
              bytes_of(first->key()) < bytes_of(i->value())) {
            fault("an index has an entry before its beginning");
          }
          break;
        }
        case 'F':
        case 'M':
        case 'N':
        case 'U':
          break;
        default:
          fault("a key of an unknown kind");
      }
    } catch (const store_error& e) {
      fault(e.what());
    }
  }
  if (!i->status().ok()) fault("reading stopped: " + i->status().ToString());
  if (indexed != report.tasks) {
    fault(std::to_string(report.tasks) + " tasks, but " + std::to_string(indexed) +
          " index entries");
  }
  if (changed > report.tasks) fault("more changes than tasks");
  for (const tube_record& record : known.tubes) {
    const counts& c = tubes.at(record.number);
    if (record.delayed != c.delayed || record.ready != c.ready || record.buried != c.buried ||
        record.urgent != c.urgent) {
      fault("tube " + record.name + " counts " + std::to_string(record.delayed) + " delayed, " +
            std::to_string(record.ready) + " ready, " + std::to_string(record.buried) +
            " buried, and has " + std::to_string(c.delayed) + ", " + std::to_string(c.ready) +
            ", " + std::to_string(c.buried));
    }
  }
  return report;
}

}  // namespace verge::server
