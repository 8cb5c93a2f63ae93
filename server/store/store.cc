// SPDX-License-Identifier: Apache-2.0

#include "store.h"

#include <limits>

namespace verge::server {

position beginning_of(place_kind kind) noexcept {
  const std::int64_t first =
      kind == place_kind::buried ? 0 : std::numeric_limits<std::int64_t>::min();
  return {.where = {.kind = kind, .priority = 0, .at = first}, .id = 0};
}

verge::task<> store::commit(const batch& b) {
  write(b);
  co_return;
}

verge::task<key_table> store::find_keys(const std::vector<key_name>& which) {
  key_table found;
  for (const key_name& k : which) found[k] = find_key(k.tube, k.key).value_or(0);
  co_return found;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the stores that have one keep the list
std::shared_ptr<census> store::take_census(std::vector<tube_number>, const census_range&) {
  return nullptr;
}

bool batch::empty() const noexcept {
  return insertions.empty() && updates.empty() && removals.empty() && tubes.empty() &&
         tubes_removed.empty() && notes.empty() && notes_removed.empty() && !id_ceiling &&
         !burial_ceiling;
}

void batch::clear() noexcept {
  insertions.clear();
  updates.clear();
  removals.clear();
  tubes.clear();
  tubes_removed.clear();
  notes.clear();
  notes_removed.clear();
  id_ceiling.reset();
  burial_ceiling.reset();
}

}  // namespace verge::server
