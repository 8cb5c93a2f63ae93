// SPDX-License-Identifier: Apache-2.0

// Slabs: nodes that go from thread to thread through the depot, are read after they were freed,
// and visits of a pool that ends.

#include <orders/scene.h>

#include <memory/slab.h>
#include <memory/thread_slot.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verge::detail {

struct slab_pool_access {
  /// As if half of a large pool's last chunk were used.
  static void ask(slab_pool& pool) { pool.asked_.store(true, std::memory_order_relaxed); }
};

}  // namespace verge::detail

namespace verge::orders {
namespace {

struct node {
  std::atomic<std::uint64_t> field{0};
  int owners = 0;  ///< its owner's
};

class slab_scene : public scene_of<2> {
 protected:
  /// Without a number a thread has no cache: every node goes through the depot.
  static void have_no_cache() { detail::this_thread_slot = detail::no_thread_slot; }

  detail::slab<node> nodes_;
};

/// Nodes that two threads take and free: what the last owner wrote happens before.
class through_the_depot : public slab_scene {
 public:
  through_the_depot() { nodes_.free(nodes_.allocate()); }
  void run(std::size_t /*i*/) override {
    have_no_cache();
    for (int n = 0; n < 2; ++n) {
      node* const mine = nodes_.try_allocate();
      require(mine != nullptr, "there is memory");
      require(mine->owners == 0, "no other has it");
      mine->owners = 1;
      mine->owners = 0;
      nodes_.free(mine);
    }
  }
};

/// One thread frees a node and uses it again, another has a reference to its first life: what it
/// reads belongs to that, or the version shows that it has ended (memory/slab_pool.h).
class stale_reference : public slab_scene {
 public:
  stale_reference() {
    first_ = nodes_.allocate();
    first_->field.store(1, std::memory_order_release);
    ref_ = nodes_.ref(first_);
  }
  void run(std::size_t i) override {
    if (i == 0) {
      nodes_.free(first_);
      node* const again = nodes_.try_allocate();
      again->field.store(2, std::memory_order_release);
    } else {
      const std::uint64_t read = ref_.node->field.load(std::memory_order_acquire);
      if (nodes_.is_valid(ref_)) require(read == 1, "a valid reference reads its own life");
    }
  }

 private:
  node* first_;
  detail::slab_ref<node> ref_;
};

/// A thread that sees that a life has ended sees all of it.
template <bool Cache>
class end_of_a_life : public slab_scene {
 public:
  end_of_a_life() {
    first_ = nodes_.allocate();
    ref_ = nodes_.ref(first_);
  }
  void run(std::size_t i) override {
    if (!Cache) have_no_cache();
    if (i == 0) {
      first_->owners = 3;
      nodes_.free(first_);
    } else if (!nodes_.is_valid(ref_)) {
      require(first_->owners == 3, "the last that its owner wrote");
    }
  }

 private:
  node* first_;
  detail::slab_ref<node> ref_;
};

/// A pool ends: a visit that has not seen that is waited for (slab_pool::visit).
class visit_and_end : public scene_of<2> {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      const detail::slab_pool::visit here(nodes_.pool(), detail::thread_slot());
      if (!ended_.load(std::memory_order_relaxed)) ++used_;
    } else {
      ended_.store(true, std::memory_order_relaxed);
      require(nodes_.pool().wait_for_visits(), "the kernel makes fences");
      used_ = -1;  // as destroying it
    }
  }

 private:
  detail::slab<node> nodes_;
  std::atomic<bool> ended_{false};
  int used_ = 0;
};

/// Any number may be looked for, while the pool grows: it is found as what it is, or not at all.
class found_by_number : public slab_scene {
 public:
  void run(std::size_t i) override {
    if (i == 0) {
      mine_ = nodes_.try_allocate();
    } else {
      found_ = nodes_.find({.index = 0, .version = 1});
    }
  }
  void finish() override { require(found_ == nullptr || found_ == mine_, "the only node"); }

 private:
  node* mine_ = nullptr;
  node* found_ = nullptr;
};

/// Two threads find that there is no chunk, or that the other is about to make one.
class first_chunk : public slab_scene {
 public:
  void run(std::size_t i) override {
    have_no_cache();
    node* const mine = taken_[i] = nodes_.try_allocate();
    require(mine != nullptr, "there is memory");
    require(mine->owners == 0, "it is constructed");
    mine->owners = 1;
    require(&detail::slab_pool::owner(mine) == &nodes_.pool(), "its chunk knows the pool");
  }
  void finish() override { require(taken_[0] != taken_[1], "each has its own"); }

 private:
  node* taken_[2] = {};
};

/// What was asked for is prepared while others need it, and dropped if they do not.
class chunk_ahead : public slab_scene {
 public:
  void run(std::size_t i) override {
    have_no_cache();
    if (i == 0) {
      require(nodes_.try_allocate() != nullptr, "there is memory");
    } else {
      detail::slab_pool_access::ask(nodes_.pool());
      nodes_.pool().prepare();
      nodes_.pool().trim();
      nodes_.pool().trim();
    }
  }
  void finish() override {
    require(nodes_.stats().nodes_live == 1, "one is in use");
    require(!nodes_.pool().can_trim(), "none is ahead any more");
  }
};

}  // namespace

std::vector<scene_kind> memory_scenes() {
  return {
      kind<through_the_depot>("slab, through the depot", 2, 1),
      kind<stale_reference>("slab, a stale reference", 3),
      kind<end_of_a_life<true>>("slab, the end of a life"),
      kind<end_of_a_life<false>>("slab, the end of a life, no cache"),
      kind<visit_and_end>("slab, visit and end", 3),
      kind<found_by_number>("slab, found by its number", 3),
      kind<first_chunk>("slab, the first chunk", 2, 1),
      kind<chunk_ahead>("slab, a chunk ahead", 2, 1),
  };
}

}  // namespace verge::orders
