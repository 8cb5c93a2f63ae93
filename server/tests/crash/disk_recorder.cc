// SPDX-License-Identifier: Apache-2.0

// Loaded into `verge serve` before the C library (LD_PRELOAD), it keeps a log of what the server
// does to the files below a directory and of what it sends to its clients; and it makes the disk
// fail, or lie, on purpose.
//
//   VERGE_DISK_ROOT   the directory; its files LOG and LOCK are left alone
//   VERGE_DISK_LOG    where to keep the log (disk_log.h), with the counter in a file beside it
//   VERGE_DISK_FAIL   N:HOW[:ever]  the N-th call fails: HOW is eio, enospc or short (half of the
//                     bytes are written, then the disk is full); with `ever` all later ones too
//   VERGE_DISK_FAIL_READ  N  the N-th read of a file fails, with EIO, and all later ones
//   VERGE_DISK_LIE    sync: syncs do nothing; late: what is written to a log of RocksDB reaches the
//                     kernel one write later. Both are what the tests must notice.
//   VERGE_DISK_COUNT  a file that gets the number of calls that could have failed, at the end
//
// The order in the log is true: a call and its record are made under one lock. Syncs are the
// exception. They take long, and a reply that leaves meanwhile must be seen to; so their beginning
// and their end are two records, and only the end makes durable what was there at the beginning.

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "disk_log.h"

#define VERGE_EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using verge::crash::disk_op;
using verge::crash::disk_record;

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

using open_function = int(const char*, int, ...);
using write_function = ssize_t(int, const void*, std::size_t);
using pwrite_function = ssize_t(int, const void*, std::size_t, off_t);
using one_fd_function = int(int);
using one_path_function = int(const char*);
using two_paths_function = int(const char*, const char*);
using truncate_function = int(int, off_t);
using mkdir_function = int(const char*, mode_t);
using allocate_function = int(int, int, off_t, off_t);
using send_function = ssize_t(int, const void*, std::size_t, int);
using accept_function = int(int, sockaddr*, socklen_t*, int);

enum class failing : char { never, eio, enospc, short_write };

constexpr int most_files = 1 << 16;

struct recorder {
  std::string root;
  int log{-1};
  std::atomic<std::uint64_t>* counter{nullptr};
  failing how{failing::never};
  long fail_at{0};
  bool for_ever{false};
  long fail_read_at{0};
  bool lie_sync{false};
  bool lie_late{false};
  std::atomic<long> calls{0};
  std::atomic<long> reads{0};
  std::atomic<std::uint64_t> syncs{0};
  std::atomic<bool> ours[most_files]{};
  std::atomic<bool> is_log[most_files]{};
  std::mutex lock;
  // The write that is late.
  int late_fd{-1};
  off_t late_at{0};
  std::string late_bytes;

  recorder();
  void say_count() const;
  bool is_ours(const char* path) const;
  bool is_ours(int fd) const {
    return fd >= 0 && fd < most_files && ours[fd].load(std::memory_order_relaxed);
  }
  /// Whether this call is to fail, and how.
  failing fails();
  bool read_fails();
  /// Under the lock.
  void note(disk_op what, int fd, std::uint64_t offset, std::string_view payload = {});
  void write_late();
};

recorder::recorder() {
  if (const char* text = std::getenv("VERGE_DISK_ROOT")) root = text;
  if (const char* text = std::getenv("VERGE_DISK_LOG")) {
    log = real<open_function>("open")(text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    const std::string beside = std::string(text) + ".counter";
    const int fd = real<open_function>("open")(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (log < 0 || fd < 0 || real<truncate_function>("ftruncate")(fd, 8) != 0) std::abort();
    void* const at = ::mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) std::abort();
    counter = static_cast<std::atomic<std::uint64_t>*>(at);
  }
  if (const char* text = std::getenv("VERGE_DISK_FAIL")) {
    const std::string_view words = text;
    fail_at = std::atol(text);
    how = words.find(":eio") != words.npos      ? failing::eio
          : words.find(":enospc") != words.npos ? failing::enospc
                                                : failing::short_write;
    for_ever = words.find(":ever") != words.npos;
  }
  if (const char* text = std::getenv("VERGE_DISK_FAIL_READ")) fail_read_at = std::atol(text);
  if (const char* text = std::getenv("VERGE_DISK_LIE")) {
    lie_sync = std::string_view(text) == "sync";
    lie_late = std::string_view(text) == "late";
  }
}

void recorder::say_count() const {
  if (const char* text = std::getenv("VERGE_DISK_COUNT")) {
    if (FILE* out = std::fopen(text, "w")) {
      std::fprintf(out, "%ld\n", calls.load());
      std::fclose(out);
    }
  }
}

bool recorder::is_ours(const char* path) const {
  const std::string_view name = path;
  if (root.empty() || !name.starts_with(root)) return false;
  const std::string_view last = name.substr(name.rfind('/') + 1);
  return !last.starts_with("LOG") && last != "LOCK";
}

failing recorder::fails() {
  const long n = calls.fetch_add(1, std::memory_order_relaxed) + 1;
  if (how == failing::never) return how;
  if (n == fail_at) return how;
  if (n <= fail_at) return failing::never;
  // After a short write the disk is full, which the next call hears.
  if (how == failing::short_write)
    return for_ever || n == fail_at + 1 ? failing::enospc : failing::never;
  return for_ever ? how : failing::never;
}

bool recorder::read_fails() {
  const long n = reads.fetch_add(1, std::memory_order_relaxed) + 1;
  return fail_read_at != 0 && n >= fail_read_at;
}

void recorder::note(disk_op what, int fd, std::uint64_t offset, std::string_view payload) {
  if (log < 0) return;
  disk_record r;
  r.what = what;
  r.fd = fd;
  r.offset = offset;
  r.payload = static_cast<std::uint32_t>(payload.size());
  std::string bytes(reinterpret_cast<const char*>(&r), sizeof r);
  bytes.append(payload);
  static const auto write_to = real<write_function>("write");
  if (write_to(log, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  counter->fetch_add(1);
}

void recorder::write_late() {
  static const auto call = real<pwrite_function>("pwrite");
  if (late_fd < 0) return;
  const ssize_t n = call(late_fd, late_bytes.data(), late_bytes.size(), late_at);
  if (n != static_cast<ssize_t>(late_bytes.size())) std::abort();
  late_fd = -1;
}

/// Made at the first call, which may come before any constructor has run, and never destroyed:
/// threads write until the very end. What is to be said then is said by a destructor of its own.
recorder& the() {
  static recorder& made = *new recorder;
  return made;
}
struct last_words {
  ~last_words() { the().say_count(); }
} at_the_end;

int failed_with(failing f) {
  errno = f == failing::eio ? EIO : ENOSPC;
  return -1;
}

std::string both(const char* a, const char* b) {
  std::string text = a;
  text.push_back('\0');
  return text + b;
}

ssize_t write_at(int fd, const void* data, std::size_t size, off_t at, bool moves) {
  static const auto plain = real<write_function>("write");
  static const auto placed = real<pwrite_function>("pwrite");
  recorder& r = the();
  const failing f = r.fails();
  if (f == failing::eio || f == failing::enospc) return failed_with(f);
  if (f == failing::short_write) size = std::max<std::size_t>(size / 2, 1);
  std::lock_guard held(r.lock);
  if (moves) at = ::lseek(fd, 0, SEEK_CUR);
  if (r.lie_late && moves && r.is_log[fd]) {
    r.write_late();
    r.late_fd = fd;
    r.late_at = at;
    r.late_bytes.assign(static_cast<const char*>(data), size);
    ::lseek(fd, static_cast<off_t>(size), SEEK_CUR);
    return static_cast<ssize_t>(size);
  }
  const ssize_t n = moves ? plain(fd, data, size) : placed(fd, data, size, at);
  if (n > 0) {
    r.note(disk_op::write, fd, static_cast<std::uint64_t>(at),
           {static_cast<const char*>(data), static_cast<std::size_t>(n)});
  }
  return n;
}

int sync_with(one_fd_function* call, int fd) {
  recorder& r = the();
  if (!r.is_ours(fd)) return call(fd);
  if (const failing f = r.fails(); f != failing::never) return failed_with(f);
  if (r.lie_sync) return 0;
  const std::uint64_t number = r.syncs.fetch_add(1);
  {
    std::lock_guard held(r.lock);
    r.note(disk_op::sync_begin, fd, number);
  }
  const int result = call(fd);
  if (result == 0) {
    std::lock_guard held(r.lock);
    r.note(disk_op::sync_end, fd, number);
  }
  return result;
}

int open_with(open_function* call, const char* path, int flags, mode_t mode) {
  recorder& r = the();
  if (!r.is_ours(path)) return call(path, flags, mode);
  if (const failing f = r.fails(); f != failing::never) return failed_with(f);
  std::lock_guard held(r.lock);
  const int fd = call(path, flags, mode);
  if (fd < 0) return fd;
  if (fd >= most_files) std::abort();
  r.ours[fd] = true;
  r.is_log[fd] = std::string_view(path).ends_with(".log");
  r.note(disk_op::open, fd, static_cast<std::uint64_t>(flags), path);
  return fd;
}

int change_paths(disk_op what, const char* name, const char* from, const char* to) {
  auto* const call = real<two_paths_function>(name);
  recorder& r = the();
  if (!r.is_ours(to)) return call(from, to);
  if (const failing f = r.fails(); f != failing::never) return failed_with(f);
  std::lock_guard held(r.lock);
  const int result = call(from, to);
  if (result == 0) r.note(what, -1, 0, both(from, to));
  return result;
}

}  // namespace

VERGE_EXPORTED int open(const char* path, int flags, ...) {
  static const auto call = real<open_function>("open");
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  return open_with(call, path, flags, mode);
}

VERGE_EXPORTED int close(int fd) {
  static const auto call = real<one_fd_function>("close");
  recorder& r = the();
  if (!r.is_ours(fd)) return call(fd);
  std::lock_guard held(r.lock);
  if (r.late_fd == fd) r.write_late();
  r.ours[fd] = false;
  r.is_log[fd] = false;
  r.note(disk_op::close, fd, 0);
  return call(fd);
}

VERGE_EXPORTED ssize_t write(int fd, const void* data, std::size_t size) {
  static const auto call = real<write_function>("write");
  return the().is_ours(fd) ? write_at(fd, data, size, 0, true) : call(fd, data, size);
}

VERGE_EXPORTED ssize_t pwrite(int fd, const void* data, std::size_t size, off_t at) {
  static const auto call = real<pwrite_function>("pwrite");
  return the().is_ours(fd) ? write_at(fd, data, size, at, false) : call(fd, data, size, at);
}

VERGE_EXPORTED ssize_t pread(int fd, void* data, std::size_t size, off_t at) {
  static const auto call = real<ssize_t(int, void*, std::size_t, off_t)>("pread");
  if (the().is_ours(fd) && the().read_fails()) return failed_with(failing::eio);
  return call(fd, data, size, at);
}
VERGE_EXPORTED ssize_t pread64(int fd, void* data, std::size_t size, off64_t at) {
  static const auto call = real<ssize_t(int, void*, std::size_t, off64_t)>("pread64");
  if (the().is_ours(fd) && the().read_fails()) return failed_with(failing::eio);
  return call(fd, data, size, at);
}

// Neither is called by RocksDB 7.8. One that calls them must not go unseen.
VERGE_EXPORTED ssize_t writev(int fd, const iovec* pieces, int count) {
  static const auto call = real<ssize_t(int, const iovec*, int)>("writev");
  if (the().is_ours(fd)) std::abort();
  return call(fd, pieces, count);
}
VERGE_EXPORTED ssize_t pwritev(int fd, const iovec* pieces, int count, off_t at) {
  static const auto call = real<ssize_t(int, const iovec*, int, off_t)>("pwritev");
  if (the().is_ours(fd)) std::abort();
  return call(fd, pieces, count, at);
}

VERGE_EXPORTED int fsync(int fd) {
  static const auto call = real<one_fd_function>("fsync");
  return sync_with(call, fd);
}
VERGE_EXPORTED int fdatasync(int fd) {
  static const auto call = real<one_fd_function>("fdatasync");
  return sync_with(call, fd);
}
// It promises nothing about a crash: it is let through, and not written down. Without flags it does
// nothing but tell whether it is there.
VERGE_EXPORTED int sync_file_range(int fd, off64_t at, off64_t size, unsigned flags) {
  static const auto call = real<int(int, off64_t, off64_t, unsigned)>("sync_file_range");
  if (flags != 0 && the().is_ours(fd)) {
    if (const failing f = the().fails(); f != failing::never) return failed_with(f);
  }
  return call(fd, at, size, flags);
}

VERGE_EXPORTED int ftruncate(int fd, off_t size) {
  static const auto call = real<truncate_function>("ftruncate");
  recorder& r = the();
  if (!r.is_ours(fd)) return call(fd, size);
  if (const failing f = r.fails(); f != failing::never) return failed_with(f);
  std::lock_guard held(r.lock);
  if (r.late_fd == fd) r.write_late();
  const int result = call(fd, size);
  if (result == 0) r.note(disk_op::truncate, fd, static_cast<std::uint64_t>(size));
  return result;
}

// RocksDB allocates beyond the end and punches holes there: neither changes what can be read.
VERGE_EXPORTED int fallocate(int fd, int mode, off_t at, off_t size) {
  static const auto call = real<allocate_function>("fallocate");
  if (the().is_ours(fd)) {
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0) std::abort();
    if (const failing f = the().fails(); f != failing::never) return failed_with(f);
  }
  return call(fd, mode, at, size);
}

VERGE_EXPORTED int rename(const char* from, const char* to) noexcept {
  return change_paths(disk_op::rename, "rename", from, to);
}
VERGE_EXPORTED int link(const char* from, const char* to) noexcept {
  return change_paths(disk_op::link, "link", from, to);
}

VERGE_EXPORTED int unlink(const char* path) noexcept {
  static const auto call = real<one_path_function>("unlink");
  recorder& r = the();
  if (!r.is_ours(path)) return call(path);
  if (const failing f = r.fails(); f != failing::never) return failed_with(f);
  std::lock_guard held(r.lock);
  const int result = call(path);
  if (result == 0) r.note(disk_op::unlink, -1, 0, path);
  return result;
}

VERGE_EXPORTED int mkdir(const char* path, mode_t mode) noexcept {
  static const auto call = real<mkdir_function>("mkdir");
  recorder& r = the();
  if (!r.is_ours(path)) return call(path, mode);
  std::lock_guard held(r.lock);
  const int result = call(path, mode);
  if (result == 0) r.note(disk_op::mkdir, -1, 0, path);
  return result;
}

VERGE_EXPORTED int accept4(int fd, sockaddr* from, socklen_t* size, int flags) {
  static const auto call = real<accept_function>("accept4");
  const int made = call(fd, from, size, flags);
  if (made < 0 || the().log < 0) return made;
  const int kept = errno;
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  if (::getpeername(made, reinterpret_cast<sockaddr*>(&peer), &length) == 0) {
    std::lock_guard held(the().lock);
    the().note(disk_op::accept, made, ntohs(peer.sin_port));
  }
  errno = kept;
  return made;
}

VERGE_EXPORTED ssize_t send(int fd, const void* data, std::size_t size, int flags) {
  static const auto call = real<send_function>("send");
  if (the().log < 0) return call(fd, data, size, flags);
  std::lock_guard held(the().lock);
  const ssize_t n = call(fd, data, size, flags);
  if (n > 0) {
    const int kept = errno;
    const auto shown = std::min<std::size_t>(static_cast<std::size_t>(n), 32);
    the().note(disk_op::send, fd, static_cast<std::uint64_t>(n),
               {static_cast<const char*>(data), shown});
    errno = kept;
  }
  return n;
}
