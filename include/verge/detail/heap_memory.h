// SPDX-License-Identifier: Apache-2.0
// heap_memory: where a quad_heap's array lives.
//
// A small array comes from operator new, on a cache line boundary. From 2 MiB up it is a mapping of
// its own, on a huge page boundary and in whole huge pages, with the kernel asked to back it by
// them: a pop from ten million entries touches a dozen lines that are megabytes apart, and on 4 KiB
// pages each of them would miss the TLB as well as the cache. Such an array grows by moving its
// pages to a larger range of addresses and not by copying, so the memory in use never doubles for
// the time of a copy and growing costs about the same at any size.
//
// Promises: every function either does all of its job or throws std::bad_alloc with everything as
// it was. Blocks are 64-byte aligned. Sizes are those that round_up() returned, and the caller
// remembers them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#pragma GCC visibility push(default)

namespace verge::detail {

struct heap_memory {
  static constexpr std::size_t line = 64;
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  /// The size of block that is handed out when `bytes` are asked for.
  static constexpr std::size_t round_up(std::size_t bytes) noexcept {
    const std::size_t unit = bytes >= huge_page ? huge_page : line;
    return (bytes + unit - 1) / unit * unit;
  }

  static void* allocate(std::size_t bytes) {
    return is_mapped(bytes) ? map(bytes) : ::operator new (bytes, std::align_val_t{line});
  }

  static void release(void* block, std::size_t bytes) noexcept {
    if (is_mapped(bytes)) {
      ::munmap(block, bytes);
    } else {
      ::operator delete (block, std::align_val_t{line});
    }
  }

  /// Makes a block of `from` bytes one of `to` bytes, of which the first `used` bytes keep their
  /// contents. The old block is freed if this returns and untouched if it throws.
  static void* resize(void* block, std::size_t from, std::size_t to, std::size_t used) {
    if (is_mapped(from) && is_mapped(to)) return remap(block, from, to);
    void* fresh = allocate(to);
    std::memcpy(fresh, block, used);
    release(block, from);
    return fresh;
  }

 private:
  static constexpr bool is_mapped(std::size_t bytes) noexcept { return bytes >= huge_page; }

  /// Takes a range of addresses that starts on a huge page boundary: one huge page more than
  /// needed, then cut to fit.
  static void* map_aligned(std::size_t bytes, int protection) {
    const std::size_t wide = bytes + huge_page;
    if (wide < bytes) throw std::bad_alloc();
    void* range = ::mmap(nullptr, wide, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (range == MAP_FAILED) throw std::bad_alloc();
    auto* const begin = static_cast<std::byte*>(range);
    const std::size_t past = reinterpret_cast<std::uintptr_t>(begin) % huge_page;
    const std::size_t head = past == 0 ? 0 : huge_page - past;
    if (head != 0) ::munmap(begin, head);
    ::munmap(begin + head + bytes, huge_page - head);
    return begin + head;
  }

  static void* map(std::size_t bytes) {
    void* block = map_aligned(bytes, PROT_READ | PROT_WRITE);
    // Advice only: a kernel without huge pages gives small ones, which is slower and not wrong.
    ::madvise(block, bytes, MADV_HUGEPAGE);
    return block;
  }

  static void* remap(void* block, std::size_t from, std::size_t to) {
    // Where it stands, if the addresses behind it are free; always so when it shrinks.
    if (::mremap(block, from, to, 0) != MAP_FAILED) return block;
    // The kernel would choose a place that is aligned to small pages and break up the huge ones. So
    // the place is chosen here, and whole huge pages move by their page table entries.
    void* place = map_aligned(to, PROT_NONE);
    void* moved = ::mremap(block, from, to, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    // If that fails, the kernel has mostly unmapped `place` already, and another thread may have
    // got those addresses since. To unmap them again could take its memory away; at worst a range
    // of addresses without memory is lost.
    if (moved == MAP_FAILED) throw std::bad_alloc();
    return moved;
  }
};

}  // namespace verge::detail

#pragma GCC visibility pop
