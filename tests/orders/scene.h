// SPDX-License-Identifier: Apache-2.0
// scene: a small concurrent program made of the library's own classes, for the explorer.
//
// Scenes, and the parts of the library that they use, are compiled as for the thread sanitizer and
// linked with hooks of our own (hooks.cc): every atomic operation, with its memory order, and every
// access to plain memory goes through the model in explorer/weak_memory.h. The sources are those of
// the library, without a policy or any other change.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace verge::orders {

class scene {
 public:
  scene() = default;
  scene(const scene&) = delete;
  scene& operator=(const scene&) = delete;
  virtual ~scene() = default;
  [[nodiscard]] virtual std::size_t threads() const = 0;
  /// What thread `i` does.
  virtual void run(std::size_t i) = 0;
  /// After all threads have ended, which happens before this.
  virtual void finish() {}
};

/// A scene of so many threads.
template <std::size_t Threads>
class scene_of : public scene {
 public:
  [[nodiscard]] std::size_t threads() const final { return Threads; }
};

/// What a schedule must not show. From a thread of a scene, or from finish().
void require(bool holds, const char* what);

struct scene_kind {
  const char* name;
  std::unique_ptr<scene> (*make)();
  int preemptions;  ///< most of one schedule; any_preemptions: all
  int stale_reads;  ///< most of one schedule
};
inline constexpr int any_preemptions = -1;

/// Those of each file.
std::vector<scene_kind> lock_scenes();
std::vector<scene_kind> queue_scenes();
std::vector<scene_kind> event_scenes();
std::vector<scene_kind> channel_scenes();
std::vector<scene_kind> memory_scenes();
std::vector<scene_kind> timer_scenes();
std::vector<scene_kind> context_scenes();
std::vector<scene_kind> descriptor_scenes();

template <class Scene>
constexpr scene_kind kind(const char* name, int preemptions = any_preemptions,
                          int stale_reads = 2) {
  return {name, []() -> std::unique_ptr<scene> { return std::make_unique<Scene>(); }, preemptions,
          stale_reads};
}

}  // namespace verge::orders
