// SPDX-License-Identifier: Apache-2.0

#include <memory/page_source.h>
#include <sys/mman.h>

#include <cstdint>

// There if the program was linked with the leak checker, whatever the library was compiled with.
extern "C" {
[[gnu::weak]] void __lsan_register_root_region(const void*, std::size_t);    // NOLINT
[[gnu::weak]] void __lsan_unregister_root_region(const void*, std::size_t);  // NOLINT
}

namespace verge::detail {
namespace {

// By default the leak checker does not follow pointers in mappings.
void show_to_leak_checker(void* memory, std::size_t bytes) {
  if (__lsan_register_root_region != nullptr) __lsan_register_root_region(memory, bytes);
}

void hide_from_leak_checker(void* memory, std::size_t bytes) {
  if (__lsan_unregister_root_region != nullptr) __lsan_unregister_root_region(memory, bytes);
}

class mapped_pages final : public page_source {
 public:
  // The kernel aligns to pages only: map more than is asked for and cut off both ends.
  void* map(std::size_t bytes, std::size_t alignment) noexcept override {
    constexpr std::size_t page = 4096;
    const std::size_t spare = alignment > page ? alignment : 0;
    void* const whole =
        ::mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) return nullptr;
    auto* const first = static_cast<std::byte*>(whole);
    const std::size_t past = reinterpret_cast<std::uintptr_t>(whole) & (alignment - 1);
    const std::size_t before = past == 0 || spare == 0 ? 0 : alignment - past;
    if (before != 0) ::munmap(first, before);
    if (spare != before) ::munmap(first + before + bytes, spare - before);
    show_to_leak_checker(first + before, bytes);
    return first + before;
  }

  void unmap(void* memory, std::size_t bytes) noexcept override {
    hide_from_leak_checker(memory, bytes);
    ::munmap(memory, bytes);
  }

  void discard(void* memory, std::size_t bytes) noexcept override {
    ::madvise(memory, bytes, MADV_DONTNEED);
  }

  void prefer_huge_pages(void* memory, std::size_t bytes, bool huge) noexcept override {
    ::madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
};

constinit mapped_pages the_mapped_pages;

}  // namespace

page_source& system_pages() noexcept { return the_mapped_pages; }

}  // namespace verge::detail
