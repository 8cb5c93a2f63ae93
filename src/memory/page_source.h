// SPDX-License-Identifier: Apache-2.0
// Where slabs get their memory: pages of the system, or a test's replacement.
#pragma once

#include <cstddef>

namespace verge::detail {

class page_source {
 public:
  /// Maps zeroed memory on a multiple of `alignment`, a power of two; returns nullptr if out of
  /// memory. Pages that are never accessed cost nothing.
  virtual void* map(std::size_t bytes, std::size_t alignment) noexcept = 0;

  /// Unmaps what map() returned, as a whole.
  virtual void unmap(void* memory, std::size_t bytes) noexcept = 0;

  /// Gives the memory behind whole pages of a mapping back. They stay mapped, and read as zeros.
  virtual void discard(void* memory, std::size_t bytes) noexcept = 0;

  /// Requests huge pages, or not. A hint: nothing depends on it.
  virtual void prefer_huge_pages(void* memory, std::size_t bytes, bool huge) noexcept = 0;

 protected:
  ~page_source() = default;
};

/// mmap and madvise. Never destroyed.
page_source& system_pages() noexcept;

}  // namespace verge::detail
