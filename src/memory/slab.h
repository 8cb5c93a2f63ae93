// SPDX-License-Identifier: Apache-2.0
// slab<T>: nodes of one type from a slab_pool.
//
// A T is constructed once, when its memory is first used, and never destroyed: allocate() returns a
// T as its last user left it. So other threads may read a T that may have been freed (slab_pool.h
// says how), and the fields that they read must be atomics.
//
//   slab<node> nodes;
//   node* n = nodes.allocate();
//   slab_ref<node> ref = nodes.ref(n);       // may be kept anywhere
//   nodes.free(n);
//   nodes.is_valid(ref);                     // false from here on
#pragma once

#include <memory/slab_pool.h>

#include <cstdint>
#include <new>
#include <type_traits>

namespace verge::detail {

template <class T>
class slab {
  static_assert(std::is_nothrow_default_constructible_v<T>,
                "a T is constructed when memory is first used");
  static_assert(std::is_trivially_destructible_v<T>, "a T is never destroyed");

 public:
  explicit slab(page_source& pages = system_pages())
      : pool_(
            sizeof(T), alignof(T), [](void* node) noexcept { ::new (node) T; }, pages) {}

  /// Throws std::bad_alloc.
  T* allocate() { return static_cast<T*>(pool_.allocate()); }
  /// Returns nullptr if out of memory.
  T* try_allocate() noexcept { return static_cast<T*>(pool_.try_allocate()); }
  void free(T* node) noexcept { pool_.free(node); }

  /// A reference to this life of the node, which must be in use.
  static slab_ref<T> ref(T* node) noexcept { return {node, slab_pool::version(node)}; }
  static slab_id id(const T* node) noexcept {
    return {slab_pool::index(node), slab_pool::version(node)};
  }

  /// Returns whether that life has not ended. It may end right afterwards unless the caller
  /// prevents it.
  static bool is_valid(slab_ref<T> ref) noexcept {
    return ref.node != nullptr && slab_pool::version(ref.node) == ref.version;
  }
  /// Returns the node, or nullptr if that life has ended.
  T* find(slab_id id) const noexcept { return static_cast<T*>(pool_.find(id)); }

  slab_stats stats() const noexcept { return pool_.stats(); }
  slab_pool& pool() noexcept { return pool_; }

 private:
  slab_pool pool_;
};

}  // namespace verge::detail
