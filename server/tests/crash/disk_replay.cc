// SPDX-License-Identifier: Apache-2.0

#include "disk_replay.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace verge::crash {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t sector = 512;

std::string folder_of(std::string_view path) {
  return std::string(path.substr(0, path.rfind('/')));
}
std::string name_in(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

std::string read_file(const std::string& path) {
  std::string bytes(fs::exists(path) ? fs::file_size(path) : 0, '\0');
  std::ifstream(path, std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

void overwrite(std::string& contents, std::uint64_t at, std::string_view bytes) {
  if (contents.size() < at + bytes.size()) contents.resize(at + bytes.size());
  contents.replace(at, bytes.size(), bytes);
}

/// How a loss of power treats what was not synced.
enum class loss : std::uint8_t { everything, nothing, from_some_point_on, at_random, torn };
constexpr std::uint64_t losses_in_order = 3;  // the first ones
constexpr std::uint64_t losses = 5;

}  // namespace

recording::recording(const std::string& log) : bytes_(read_file(log)) {
  for (std::size_t at = 0; at + sizeof(disk_record) <= bytes_.size();) {
    entry e;
    std::memcpy(&e.head, bytes_.data() + at, sizeof e.head);
    if (e.head.mark != disk_record::right_mark) throw std::runtime_error("a bad log of the disk");
    if (at + sizeof e.head + e.head.payload > bytes_.size()) break;
    e.payload = std::string_view(bytes_).substr(at + sizeof e.head, e.head.payload);
    at += sizeof e.head + e.head.payload;
    entries_.push_back(e);
  }
}

position recording::mend(const std::string& log) {
  const recording whole(log);
  std::uint64_t size = 0;
  for (const entry& e : whole.entries_) size += sizeof e.head + e.head.payload;
  fs::resize_file(log, size);
  return whole.entries_.size();
}

log_counter::log_counter(const std::string& log) {
  const int fd = ::open((log + ".counter").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 || ::ftruncate(fd, sizeof(position)) != 0) throw std::runtime_error("no counter");
  void* const at = ::mmap(nullptr, sizeof(position), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (at == MAP_FAILED) throw std::runtime_error("no counter");
  at_ = static_cast<std::atomic<position>*>(at);
}

log_counter::~log_counter() { ::munmap(at_, sizeof(position)); }

void recording::resolve(ledger& book, const std::vector<position>& lives) const {
  struct stream {
    std::uint64_t left{0};
    std::vector<std::pair<std::uint64_t, position>> ends;  ///< bytes that had left, and when
  };
  std::map<std::pair<int, std::uint16_t>, stream> streams;
  std::map<int, std::pair<int, std::uint16_t>> of_fd;
  for (position at = 0; at < entries_.size(); ++at) {
    const disk_record& r = entries_[at].head;
    const auto life =
        static_cast<int>(std::upper_bound(lives.begin(), lives.end(), at) - lives.begin()) - 1;
    if (r.what == disk_op::accept) {
      const std::pair key{life, static_cast<std::uint16_t>(r.offset)};
      if (streams.contains(key)) throw std::runtime_error("a port was used twice in one life");
      of_fd[r.fd] = key;
      streams[key] = {};
    } else if (r.what == disk_op::send) {
      stream& s = streams.at(of_fd.at(r.fd));
      s.left += r.offset;
      s.ends.emplace_back(s.left, at);
    }
  }
  for (step& s : book.steps) {
    if (s.port == 0 || !s.has_answer) continue;
    const auto& ends = streams.at({s.life, s.port}).ends;
    const auto at =
        std::lower_bound(ends.begin(), ends.end(), std::pair{s.answer_end, position{0}});
    // The server may have been killed after it had sent the answer and before that was noted.
    s.acked = at == ends.end() ? never : at->second;
  }
}

disk::disk(const recording& of, std::string root) : recording_(of), root_(std::move(root)) {}

void disk::advance(position to) {
  for (; at_ < to; ++at_) take(recording_.entries()[at_]);
}

void disk::take(const recording::entry& e) {
  switch (e.head.what) {
    case disk_op::open:
      return open(e);
    case disk_op::close:
      open_.erase(e.head.fd);
      open_directories_.erase(e.head.fd);
      return;
    case disk_op::write:
      open_.at(e.head.fd)->since.push_back({false, e.head.offset, e.payload});
      return;
    case disk_op::truncate:
      open_.at(e.head.fd)->since.push_back({true, e.head.offset, {}});
      return;
    case disk_op::sync_begin:
      return begin_sync(e);
    case disk_op::sync_end:
      return end_sync(e);
    case disk_op::rename:
      return move(e, true);
    case disk_op::link:
      return move(e, false);
    case disk_op::unlink: {
      const std::string folder = folder_of(e.payload);
      names_now(folder).erase(name_in(e.payload));
      directories_[folder].since.push_back({name_in(e.payload), nullptr, {}});
      return;
    }
    case disk_op::mkdir: {
      const std::string folder = folder_of(e.payload);
      auto made = std::make_shared<file>();
      made->is_directory = true;
      names_now(folder)[name_in(e.payload)] = made;
      directories_[folder].since.push_back({name_in(e.payload), made, {}});
      return;
    }
    case disk_op::accept:
    case disk_op::send:
      return;
  }
}

void disk::open(const recording::entry& e) {
  const std::string path(e.payload.ends_with('/') ? e.payload.substr(0, e.payload.size() - 1)
                                                  : e.payload);
  open_.erase(e.head.fd);
  open_directories_.erase(e.head.fd);
  const auto& parents = names_now(folder_of(path));
  const auto known = parents.find(name_in(path));
  if (path == root_ || (known != parents.end() && known->second->is_directory)) {
    open_directories_[e.head.fd] = path;
    return;
  }
  const auto flags = static_cast<int>(e.head.offset);
  if (known == parents.end()) {
    // Opened, and removed by another thread before the opening was noted: it has no name any more.
    if ((flags & O_CREAT) == 0) {
      open_[e.head.fd] = std::make_shared<file>();
      return;
    }
    auto made = std::make_shared<file>();
    names_now(folder_of(path))[name_in(path)] = made;
    directories_[folder_of(path)].since.push_back({name_in(path), made, {}});
    open_[e.head.fd] = made;
    return;
  }
  open_[e.head.fd] = known->second;
  if ((flags & O_TRUNC) != 0) known->second->since.push_back({true, 0, {}});
}

void disk::begin_sync(const recording::entry& e) {
  sync s;
  if (const auto at = open_directories_.find(e.head.fd); at != open_directories_.end()) {
    s.directory = at->second;
    s.changes = directories_[s.directory].since.size();
  } else {
    s.of = open_.at(e.head.fd);
    s.changes = s.of->since.size();
  }
  syncs_[{e.head.offset, e.head.fd}] = std::move(s);
}

void disk::end_sync(const recording::entry& e) {
  const auto at = syncs_.find({e.head.offset, e.head.fd});
  const sync s = at->second;
  syncs_.erase(at);
  // Another sync that began later and ended sooner has taken some of them already.
  const auto forget = [&](auto& since, std::size_t n) {
    since.erase(since.begin(), since.begin() + static_cast<std::ptrdiff_t>(n));
    for (auto& [key, other] : syncs_) {
      if (other.of == s.of && other.directory == s.directory) {
        other.changes -= std::min(other.changes, n);
      }
    }
  };
  if (s.of == nullptr) {
    directory& d = directories_[s.directory];
    const std::size_t n = std::min(s.changes, d.since.size());
    for (std::size_t i = 0; i < n; ++i) {
      const name_change& c = d.since[i];
      if (c.to != nullptr) d.synced[c.name] = c.to;
      if (c.to == nullptr) d.synced.erase(c.name);
      if (!c.also_removes.empty()) d.synced.erase(c.also_removes);
    }
    return forget(d.since, n);
  }
  const std::size_t n = std::min(s.changes, s.of->since.size());
  for (std::size_t i = 0; i < n; ++i) {
    const change& c = s.of->since[i];
    if (c.truncates) {
      s.of->synced.resize(c.offset);
    } else {
      overwrite(s.of->synced, c.offset, c.bytes);
    }
  }
  forget(s.of->since, n);
}

void disk::move(const recording::entry& e, bool removes) {
  const auto middle = e.payload.find('\0');
  const std::string from(e.payload.substr(0, middle));
  const std::string to(e.payload.substr(middle + 1));
  if (folder_of(from) != folder_of(to)) throw std::runtime_error("moved to another folder: " + to);
  auto& names = names_now(folder_of(from));
  const file_ref moved = names.at(name_in(from));
  if (removes) names.erase(name_in(from));
  names[name_in(to)] = moved;
  directories_[folder_of(from)].since.push_back(
      {name_in(to), moved, removes ? name_in(from) : std::string()});
}

void disk::lose_power(const std::string& target, std::mt19937_64& random) const {
  const auto how_of_names = static_cast<loss>(random() % losses_in_order);
  const auto how_of_data = static_cast<loss>(random() % losses);
  // For each change of a list: whether it has reached the disk.
  const auto chooser = [&](loss how, std::size_t size) {
    const std::size_t point = random() % (size + 1);
    return [&random, how, point](std::size_t i) {
      switch (how) {
        case loss::everything:
          return false;
        case loss::nothing:
          return true;
        case loss::from_some_point_on:
          return i < point;
        case loss::at_random:
        case loss::torn:
          break;
      }
      return random() % 2 == 0;
    };
  };

  std::map<std::string, std::string> to_make{{root_, target}};
  while (!to_make.empty()) {
    const auto [folder, place] = *to_make.begin();
    to_make.erase(to_make.begin());
    fs::create_directories(place);
    const auto at = directories_.find(folder);
    if (at == directories_.end()) continue;
    auto names = at->second.synced;
    const auto keeps = chooser(how_of_names, at->second.since.size());
    for (std::size_t i = 0; i < at->second.since.size(); ++i) {
      if (!keeps(i)) continue;
      const name_change& c = at->second.since[i];
      if (c.to != nullptr) names[c.name] = c.to;
      if (c.to == nullptr) names.erase(c.name);
      if (!c.also_removes.empty()) names.erase(c.also_removes);
    }
    for (const auto& [name, of] : names) {
      if (of->is_directory) {
        to_make[folder + "/" + name] = place + "/" + name;
        continue;
      }
      std::string contents = of->synced;
      const auto keeps_change = chooser(how_of_data, of->since.size());
      for (std::size_t i = 0; i < of->since.size(); ++i) {
        const change& c = of->since[i];
        if (how_of_data != loss::torn || c.truncates) {
          if (!keeps_change(i)) continue;
          if (c.truncates) contents.resize(c.offset);
          if (!c.truncates) overwrite(contents, c.offset, c.bytes);
          continue;
        }
        for (std::uint64_t done = 0; done < c.bytes.size();) {
          const std::uint64_t begin = c.offset + done;
          const std::uint64_t n = std::min(sector - begin % sector, c.bytes.size() - done);
          if (random() % 2 == 0) overwrite(contents, begin, c.bytes.substr(done, n));
          done += n;
        }
      }
      std::ofstream(place + "/" + name, std::ios::binary) << contents;
    }
  }
}

}  // namespace verge::crash
