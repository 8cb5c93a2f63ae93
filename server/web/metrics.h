// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "../broker/command.h"
#include "signs.h"

/// Figures as text for Prometheus, format 0.0.4.
namespace verge::server::web {

/// What the machine says: the disk's space, and what the process uses.
struct machine_view {
  std::uint64_t disk_free{0};
  std::uint64_t disk_size{0};
  std::uint64_t resident{0};
  double cpu_seconds{0};
  std::uint64_t descriptors{0};
};
/// `directory` may be empty: then nothing is known of the disk.
machine_view look_at_machine(const std::string& directory);

/// The first `tubes` of all tubes have figures of their own.
inline constexpr std::uint64_t tubes_in_metrics = 1'000;
std::string metrics_text(const survey_view& v, const machine_view& m, const signs* s);

}  // namespace verge::server::web
