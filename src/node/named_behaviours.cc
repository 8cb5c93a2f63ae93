// SPDX-License-Identifier: Apache-2.0

#include <node/named_behaviours.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>

#include <base/code_name.h>
#include <base/log.h>
#include <node/node_store.h>

namespace verge::detail {

namespace {

// tools/bpftrace/lateness.bt reads them.
static_assert(offsetof(timer_behaviour, written) == 40 && offsetof(timer_behaviour, label) == 48 &&
              offsetof(timer_behaviour, place) == 56);

/// A power of two, so that the number of one is a shift.
struct alignas(128) entry {
  timer_behaviour named;
  const timer_behaviour* of;
};
static_assert(sizeof(entry) == 128);

/// Pages that are not used take no memory. The first one is not used: 0 is no number.
alignas(entry) std::byte memory[named_behaviours::most * sizeof(entry)];
entry* all() noexcept { return reinterpret_cast<entry*>(memory); }

/// How many are made, with the first. Written under the lock.
constinit std::atomic<std::size_t> made{1};
/// Numbers, by the hash of what they were given; 0 is a free place.
constexpr std::size_t places = 2 * named_behaviours::most;
constinit std::array<std::atomic<std::uint16_t>, places> table{};

std::size_t first_place(const timer_behaviour& of, const work_name& name) noexcept {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(&of);
  for (const void* part : {static_cast<const void*>(name.label), name.place}) {
    hash = (hash ^ reinterpret_cast<std::uintptr_t>(part)) * 0x9e3779b97f4a7c15;
  }
  return hash >> (64 - std::bit_width(places - 1));
}

bool has_functions_of(const timer_behaviour& a, const timer_behaviour& b) noexcept {
  return a.fire == b.fire && a.invoke == b.invoke && a.destroy == b.destroy && a.take == b.take &&
         a.operations == b.operations;
}

bool is_for(const entry& e, const timer_behaviour& of, const work_name& name) noexcept {
  return e.of == &of && e.named.given.label == name.label && e.named.given.place == name.place &&
         e.named.given.written == name.written && has_functions_of(e.named, of);
}

/// The one with that name, or the place for it in the table.
struct looked_up {
  const timer_behaviour* found;
  std::size_t place;
};
looked_up look_up(const timer_behaviour& of, const work_name& name) noexcept {
  // There are twice as many places as can be taken.
  for (std::size_t place = first_place(of, name);; place = (place + 1) % places) {
    const std::uint16_t number = table[place].load(std::memory_order_acquire);
    if (number == 0) return {.found = nullptr, .place = place};
    const entry& e = all()[number];
    if (is_for(e, of, name)) return {.found = &e.named, .place = place};
  }
}

using kept_text = std::unique_ptr<char[]>;
kept_text copy_of(std::string_view text) {
  auto copy = std::make_unique_for_overwrite<char[]>(text.size() + 1);
  text.copy(copy.get(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

std::string text_of([[maybe_unused]] const void* word) {
#if defined(__cpp_lib_source_location)
  const auto place = std::bit_cast<code_place>(word);
  const std::string_view file = place.file_name();
  std::string text(file.substr(file.rfind('/') + 1));
  text += ':';
  text += std::to_string(place.line());
  if (const std::string function = short_name(place.function_name()); !function.empty()) {
    text += ' ';
    text += function;
  }
  return text;
#else
  return {};
#endif
}

/// With the lock held. If it throws, there is no entry; if not, its texts are kept for good.
void fill(entry& e, const timer_behaviour& of, const work_name& name) {
  const char* const as_written = name.written != nullptr ? name.written : of.written;
  kept_text written = as_written != nullptr ? copy_of(type_in(as_written)) : nullptr;
  kept_text label = name.label != nullptr ? copy_of(name.label) : nullptr;
  kept_text place = name.place != nullptr ? copy_of(text_of(name.place)) : nullptr;
  timer_behaviour named = of;
  named.given = name;
  if (name.label == nullptr) named.only_place = name.place;
  if (written) named.written = written.release();
  if (label) named.label = label.release();
  if (place) named.place = place.release();
  ::new (static_cast<void*>(&e)) entry{.named = named, .of = &of};
}

}  // namespace

const timer_behaviour& named_behaviour(const timer_behaviour& of, const char* label,
                                       const void* place, const char* written) noexcept {
  const work_name name{.label = label, .place = place, .written = written};
  if (const timer_behaviour* const known = look_up(of, name).found) return *known;
  bool full = false;
  try {
    const std::lock_guard held(node_store::lock_of_all());
    const looked_up again = look_up(of, name);
    if (again.found != nullptr) return *again.found;
    const std::size_t number = made.load(std::memory_order_relaxed);
    if (number < named_behaviours::most) {
      fill(all()[number], of, name);
      made.store(number + 1, std::memory_order_release);
      table[again.place].store(static_cast<std::uint16_t>(number), std::memory_order_release);
      return all()[number].named;
    }
    full = true;
  } catch (...) {  // no memory: without a name, this time
  }
  static constinit std::atomic<bool> said{false};
  if (full && !said.exchange(true, std::memory_order_relaxed)) {
    log(log_level::warning, "%s",
        "there are too many different labels and places of timers: later ones have no name. A "
        "label should be a literal, not a text for each timer");
  }
  return of;
}

std::size_t named_behaviours::size() noexcept { return made.load(std::memory_order_acquire); }

const timer_behaviour& named_behaviours::at(std::size_t number) noexcept {
  return all()[number].named;
}

std::size_t named_behaviours::number_of(const timer_behaviour* does) noexcept {
  const std::uintptr_t distance =
      reinterpret_cast<std::uintptr_t>(does) - reinterpret_cast<std::uintptr_t>(memory);
  return distance < sizeof memory ? distance / sizeof(entry) : 0;
}

const timer_behaviour* named_behaviours::unnamed(const timer_behaviour* does) noexcept {
  const std::size_t number = number_of(does);
  return number != 0 ? all()[number].of : does;
}

}  // namespace verge::detail
