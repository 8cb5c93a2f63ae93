// SPDX-License-Identifier: Apache-2.0

#include "wall_clock.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <stdexcept>
#include <system_error>

namespace verge::crash {

wall_clock::wall_clock(const scratch& place)
    : fifo_(place / "clock_was_set"), file_(place / "clock") {
  const int fd = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* at = MAP_FAILED;
  if (fd >= 0 && ::ftruncate(fd, sizeof *offset_) == 0) {
    at = ::mmap(nullptr, sizeof *offset_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (fd >= 0) ::close(fd);
  if (::mkfifo(fifo_.c_str(), 0600) == 0) to_ = ::open(fifo_.c_str(), O_RDWR | O_CLOEXEC);
  if (to_ < 0 || at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), file_);
  offset_ = static_cast<std::atomic<std::int64_t>*>(at);
}

wall_clock::~wall_clock() {
  ::close(to_);
  ::munmap(offset_, sizeof *offset_);
}

environment wall_clock::variables() const {
  return {{"LD_PRELOAD", VERGE_CLOCK_SETTER},
          {"VERGE_CLOCK_FIFO", fifo_},
          {"VERGE_CLOCK_OFFSET", file_}};
}

void wall_clock::step(std::int64_t nanoseconds) {
  offset_->fetch_add(nanoseconds);
  if (::write(to_, "s", 1) != 1) {
    throw std::system_error(errno, std::generic_category(), fifo_);
  }
}

std::int64_t wall_clock::now() const {
  timespec t{};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec + offset_->load();
}

}  // namespace verge::crash
