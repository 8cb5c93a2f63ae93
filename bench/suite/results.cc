// SPDX-License-Identifier: Apache-2.0

#include "results.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace verge::bench {
namespace {

using nlohmann::json;

json to_object(const subject& s) {
  return {
      {"system", s.system}, {"workload", s.workload}, {"timers", s.timers}, {"threads", s.threads}};
}

subject subject_in(const json& row) {
  return {.system = row.at("system").get<std::string>(),
          .workload = row.at("workload").get<std::string>(),
          .timers = row.at("timers").get<std::size_t>(),
          .threads = row.at("threads").get<unsigned>()};
}

result result_in(const json& row) {
  return {.of = subject_in(row),
          .metric = metric_named(row.at("metric").get<std::string>()).name,
          .value = {.median = row.at("median").get<double>(),
                    .min = row.at("min").get<double>(),
                    .max = row.at("max").get<double>(),
                    .runs = row.at("runs").get<std::size_t>()}};
}

using texts = std::map<std::string, std::string>;

/// The schema is checked first: the rest may mean something else in another one.
void check_schema(const json& j) {
  if (!j.is_object() || !j.contains("schema")) {
    throw std::runtime_error("this is no report of verge bench: it has no \"schema\"");
  }
  if (j["schema"] != schema_version) {
    throw std::runtime_error("its schema is " + j["schema"].dump() + ", and this tool reads " +
                             std::to_string(schema_version) +
                             ": create the report again with this tool");
  }
}

}  // namespace

const std::vector<metric_info>& all_metrics() {
  static const std::vector<metric_info> all = {
      {.name = "ns_per_op", .unit = "ns", .less_is_better = true},
      {.name = "ops_per_s", .unit = "per s", .less_is_better = false},
      {.name = "bytes_per_timer", .unit = "bytes", .less_is_better = true},
      {.name = "late_p50_us", .unit = "us", .less_is_better = true},
      {.name = "late_p99_us", .unit = "us", .less_is_better = true},
      {.name = "late_p999_us", .unit = "us", .less_is_better = true},
      {.name = "early_count", .unit = "timers", .less_is_better = true},
      {.name = "longest_ns", .unit = "ns", .less_is_better = true},
  };
  return all;
}

const metric_info& metric_named(const std::string& name) {
  for (const metric_info& m : all_metrics()) {
    if (m.name == name) return m;
  }
  throw std::invalid_argument("there is no metric '" + name + "'");
}

std::string to_json(const run_report& report) {
  json j;
  j["schema"] = schema_version;
  j["machine"] = report.machine;
  j["machine"]["versions"] = report.versions;
  j["skipped"] = report.skipped;
  j["results"] = json::array();
  for (const result& r : report.results) {
    json row = to_object(r.of);
    row["metric"] = r.metric;
    row["median"] = r.value.median;
    row["min"] = r.value.min;
    row["max"] = r.value.max;
    row["runs"] = r.value.runs;
    j["results"].push_back(row);
  }
  j["curves"] = json::array();
  for (const lateness_curve& c : report.curves) {
    json curve = to_object(c.of);
    curve["late_us"] = c.points;
    j["curves"].push_back(curve);
  }
  return j.dump(1) + "\n";
}

run_report from_json(const std::string& text) {
  run_report report;
  try {
    const json j = json::parse(text);
    check_schema(j);
    for (const auto& [key, value] : j.at("machine").items()) {
      if (key == "versions") {
        report.versions = value.get<texts>();
      } else {
        report.machine[key] = value.get<std::string>();
      }
    }
    report.skipped = j.value("skipped", texts{});
    for (const json& row : j.at("results")) report.results.push_back(result_in(row));
    for (const json& curve : j.value("curves", json::array())) {
      report.curves.push_back(
          {.of = subject_in(curve),
           .points = curve.at("late_us").get<std::vector<std::pair<double, double>>>()});
    }
  } catch (const json::exception& e) {
    throw std::runtime_error(std::string("this is no report of verge bench: ") + e.what());
  }
  return report;
}

run_report read_report(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file.string() + ": is the name right?");
  std::ostringstream text;
  text << in.rdbuf();
  try {
    return from_json(text.str());
  } catch (const std::exception& e) {
    throw std::runtime_error(file.string() + ": " + e.what());
  }
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text << std::flush;
  if (!out) throw std::runtime_error("cannot write " + file.string());
}

void check_writable(const std::filesystem::path& file) {
  std::ofstream out(file, std::ios::app);
  if (!out) {
    throw std::runtime_error("cannot write " + file.string() +
                             ": is there such a folder, and may you write there?");
  }
}

run_report merged(const std::vector<run_report>& reports) {
  run_report all;
  const auto keep_last = [](auto& rows, const auto& row, auto same) {
    const auto found = std::find_if(rows.begin(), rows.end(), same);
    if (found == rows.end()) {
      rows.push_back(row);
    } else {
      *found = row;
    }
  };
  for (const run_report& report : reports) {
    for (const auto& [key, value] : report.machine) all.machine[key] = value;
    for (const auto& [key, value] : report.versions) all.versions[key] = value;
    for (const auto& [key, value] : report.skipped) all.skipped[key] = value;
    for (const result& r : report.results) {
      keep_last(all.results, r,
                [&](const result& o) { return o.of == r.of && o.metric == r.metric; });
    }
    for (const lateness_curve& c : report.curves) {
      keep_last(all.curves, c, [&](const lateness_curve& o) { return o.of == c.of; });
    }
  }
  return all;
}

}  // namespace verge::bench
