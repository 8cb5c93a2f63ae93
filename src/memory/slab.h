// slab<T>: nodes of one type out of a slab_pool.
//
// A T is constructed once, when its memory is first used, and never destroyed: allocate() hands out
// a T as its last user left it. That is what lets others look at a T that may have been freed
// (slab_pool.h says how), so a T that others look at keeps what they look at in atomics.
//
//   slab<node> nodes;
//   node* n = nodes.allocate();
//   slab_ref<node> ref = nodes.ref(n);       // to be kept by anyone
//   nodes.free(n);
//   nodes.is_valid(ref);                     // false from here on, whatever became of the memory
#pragma once

#include <memory/slab_pool.h>

#include <cstdint>
#include <new>
#include <type_traits>

namespace verge::detail {

template <class T>
class slab {
  static_assert(std::is_nothrow_default_constructible_v<T>,
                "a T is made when memory is first used");
  static_assert(std::is_trivially_destructible_v<T>, "a T is never destroyed");

 public:
  explicit slab(page_source& pages = system_pages())
      : pool_(
            sizeof(T), alignof(T), [](void* node) noexcept { ::new (node) T; }, pages) {}

  /// Throws std::bad_alloc.
  T* allocate() { return static_cast<T*>(pool_.allocate()); }
  /// nullptr where there is no memory.
  T* try_allocate() noexcept { return static_cast<T*>(pool_.try_allocate()); }
  void free(T* node) noexcept { pool_.free(node); }

  /// How to find this life of the node again; the node must be in use.
  static slab_ref<T> ref(T* node) noexcept { return {node, slab_pool::version(node)}; }
  static slab_id id(const T* node) noexcept {
    return {slab_pool::index(node), slab_pool::version(node)};
  }

  /// Whether that life still lasts. It may end at any time after, unless the caller prevents it.
  static bool is_valid(slab_ref<T> ref) noexcept {
    return ref.node != nullptr && slab_pool::version(ref.node) == ref.version;
  }
  /// The node, or nullptr if that life has ended.
  T* find(slab_id id) const noexcept { return static_cast<T*>(pool_.find(id)); }

  slab_stats stats() const noexcept { return pool_.stats(); }
  slab_pool& pool() noexcept { return pool_; }

 private:
  slab_pool pool_;
};

}  // namespace verge::detail
