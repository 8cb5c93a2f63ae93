// SPDX-License-Identifier: Apache-2.0

#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "peers.h"

namespace verge::server::bench {

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void report(nlohmann::json& into, const std::string& title, const figures_by_name& all,
            const std::vector<std::string>& order) {
  fmt::print("{}\n", title);
  for (const std::string& name : order) {
    const auto found = all.find(name);
    if (found == all.end()) continue;
    std::vector<double> rate, p50, p99;
    for (const load_figures& f : found->second) {
      rate.push_back(f.per_second);
      p50.push_back(f.p50_us);
      p99.push_back(f.p99_us);
    }
    const auto [low, high] = std::minmax_element(rate.begin(), rate.end());
    fmt::print("  {:34} {:>9.0f}/s   ({:.0f} to {:.0f})   p50 {:.0f} us, p99 {:.0f} us\n", name,
               median(rate), *low, *high, median(p50), median(p99));
    into[title][name] = {{"per_second", median(rate)},
                         {"all", rate},
                         {"p50_us", median(p50)},
                         {"p99_us", median(p99)}};
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void report_disk(nlohmann::json& into, const std::string& directory) {
  const disk_figures disk = measure_disk(directory);
  fmt::print("the disk: append of 4 KiB and fdatasync {:.0f} us at p50, {:.0f} at p99\n",
             disk.p50_us, disk.p99_us);
  into["disk"] = {{"p50_us", disk.p50_us}, {"p99_us", disk.p99_us}};
}

void write_figures(const nlohmann::json& figures, const std::string& file) {
  if (file.empty()) return;
  std::ofstream(file) << figures.dump(2) << '\n';
  fmt::print("figures: {}\n", file);
}

}  // namespace verge::server::bench
