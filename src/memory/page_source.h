// Where slabs get their memory from: whole pages of the system, or whatever a test puts in place.
#pragma once

#include <cstddef>

namespace verge::detail {

class page_source {
 public:
  /// Zeroed memory on a multiple of `alignment`, a power of two; nullptr if there is none to be
  /// had. Pages that are never touched cost nothing.
  virtual void* map(std::size_t bytes, std::size_t alignment) noexcept = 0;

  /// Gives back what map() returned, whole.
  virtual void unmap(void* memory, std::size_t bytes) noexcept = 0;

  /// Whether to back the memory by huge pages. A wish: nothing depends on its being granted.
  virtual void prefer_huge_pages(void* memory, std::size_t bytes, bool huge) noexcept = 0;

 protected:
  ~page_source() = default;
};

/// mmap and madvise. Lives for ever.
page_source& system_pages() noexcept;

}  // namespace verge::detail
