// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// Servers that are measured: started on a free port of this machine with a directory of their own,
/// and ended by their number.
namespace verge::server::bench {

/// A directory that is removed with all that is in it.
class scratch_directory {
 public:
  explicit scratch_directory(const std::filesystem::path& under);
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory();
  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t bytes() const;

 private:
  std::filesystem::path path_;
};

class server_process {
 public:
  /// Starts it, with its output thrown away, and waits until the port answers.
  server_process(std::vector<std::string> arguments, std::uint16_t port);
  server_process(const server_process&) = delete;
  server_process& operator=(const server_process&) = delete;
  ~server_process();

  std::uint16_t port() const noexcept { return port_; }
  std::uint64_t resident_bytes() const;
  /// Processor time that it has used so far, of all its threads.
  double cpu_seconds() const;
  /// SIGTERM and wait, or kill -9 and wait.
  void end(bool kill = false);

 private:
  pid_t pid_{-1};
  std::uint16_t port_;
};

std::uint16_t free_port();
/// The path of a program, or nothing.
std::string program(const std::string& name);

/// The disk: an append of 4 KiB and an fdatasync, in microseconds at the median and at p99.
struct disk_figures {
  double p50_us{0};
  double p99_us{0};
};
disk_figures measure_disk(const std::filesystem::path& under);

/// RocksDB by itself: records of 200 bytes with an index entry each, in synced batches, per second.
double bare_rocksdb(const std::filesystem::path& under, std::size_t batch, double seconds);

}  // namespace verge::server::bench
