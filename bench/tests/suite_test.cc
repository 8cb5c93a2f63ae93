// SPDX-License-Identifier: Apache-2.0

// The parts of verge bench: figures, reports, their comparison, the words it takes, and what its
// systems answer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "../peers/protocol.h"
#include "../suite/collector.h"
#include "../suite/compare.h"
#include "../suite/html.h"
#include "../suite/machine.h"
#include "../suite/run.h"
#include "../suite/statistics.h"
#include "../suite/systems.h"
#include "../suite/table.h"
#include "../suite/words.h"

namespace verge::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// ---- The machine --------------------------------------------------------------------------------

TEST(machine, processor_time_is_read_from_the_kernels_counts) {
  const auto all = parse_processor_seconds("cpu  100 20 30 9000 50 6 4 70 80 9", 100);
  EXPECT_DOUBLE_EQ(all.used, 1.6);
  EXPECT_DOUBLE_EQ(all.stolen, 0.7);
  for (const char* other : {"", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu a b"}) {
    EXPECT_EQ(parse_processor_seconds(other, 100).used, 0) << other;
  }
}

TEST(machine, is_too_busy_for_figures_if_others_have_more_than_a_twentieth) {
  EXPECT_FALSE((machine_share{.others = 4.9, .stolen = 4.9}).too_busy());
  EXPECT_TRUE((machine_share{.others = 5.1}).too_busy());
  EXPECT_TRUE((machine_share{.stolen = 5.1}).too_busy());
}

TEST(machine, what_the_run_takes_itself_is_not_others) {
  const machine_share share = share_of({.used = 9, .stolen = 1}, 7, 20);
  EXPECT_DOUBLE_EQ(share.others, 10);
  EXPECT_DOUBLE_EQ(share.stolen, 5);
  EXPECT_EQ(share_of({.used = 9}, 9.5, 20).others, 0);  // two clocks that differ a little
  EXPECT_EQ(share_of({.used = 9}, 1, 0).others, 0);
}

TEST(machine, is_watched_for_as_long_as_the_run_takes) {
  const machine_share share = machine_watch().since();
  EXPECT_GE(share.others, 0);
  EXPECT_GE(share.stolen, 0);
}

// ---- Statistics ---------------------------------------------------------------------------------

TEST(statistics, the_median_is_in_the_middle_and_the_spread_around_it) {
  const spread s = spread_of({5, 1, 9, 3, 7});
  EXPECT_EQ(s.median, 5);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 9);
  EXPECT_EQ(s.runs, 5U);
}

TEST(statistics, of_an_even_number_the_median_is_between_the_two_in_the_middle) {
  EXPECT_EQ(spread_of({4, 1, 3, 2}).median, 2.5);
}

TEST(statistics, of_nothing_all_is_zero) {
  EXPECT_EQ(spread_of({}).runs, 0U);
  EXPECT_EQ(quantile({}, 0.5), 0);
}

TEST(statistics, a_quantile_is_the_smallest_value_that_covers_its_share) {
  const std::vector<double> sorted = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(quantile(sorted, 0), 1);
  EXPECT_EQ(quantile(sorted, 0.5), 5);
  EXPECT_EQ(quantile(sorted, 0.51), 6);
  EXPECT_EQ(quantile(sorted, 0.99), 10);
  EXPECT_EQ(quantile(sorted, 1), 10);
}

TEST(statistics, lateness_becomes_percentiles_and_a_count_of_the_early) {
  collector c;
  answer a;
  for (std::int64_t i = 1; i <= 1000; ++i) a.late_ns.push_back(i * 1000);
  a.late_ns[0] = -5;
  c.add({.system = "x", .workload = "lateness_idle"}, a);
  run_report report;
  c.finish(report);
  std::map<std::string, double> of;
  for (const result& r : report.results) of[r.metric] = r.value.median;
  EXPECT_EQ(of["late_p50_us"], 500);
  EXPECT_EQ(of["late_p99_us"], 990);
  EXPECT_EQ(of["late_p999_us"], 999);
  EXPECT_EQ(of["early_count"], 1);
  ASSERT_EQ(report.curves.size(), 1U);
  EXPECT_EQ(report.curves[0].points.back(), std::make_pair(100.0, 1000.0));
}

// ---- Reports ------------------------------------------------------------------------------------

result figure(const std::string& system, double median, double spread = 0, std::size_t runs = 5,
              const std::string& metric = "ns_per_op") {
  return {
      .of = {.system = system, .workload = "start_stop", .timers = 1000, .threads = 1},
      .metric = metric,
      .value = {.median = median, .min = median - spread, .max = median + spread, .runs = runs}};
}
run_report report_of(std::vector<result> results) {
  run_report r;
  r.machine = {{"cpu", "a \"fast\" one"}};
  r.versions = {{"libev", "4.33"}};
  r.skipped = {{"go", "missing"}};
  r.results = std::move(results);
  return r;
}

TEST(report, survives_a_round_trip_through_json) {
  run_report before = report_of({figure("libev", 54.5, 2.25), figure("verge/hybrid", 30)});
  before.curves.push_back({.of = before.results[0].of, .points = {{50, 1.5}, {99, 20}}});
  const run_report after = from_json(to_json(before));
  EXPECT_EQ(after.machine, before.machine);
  EXPECT_EQ(after.versions, before.versions);
  EXPECT_EQ(after.skipped, before.skipped);
  ASSERT_EQ(after.results.size(), 2U);
  EXPECT_EQ(after.results[0].of, before.results[0].of);
  EXPECT_EQ(after.results[0].metric, "ns_per_op");
  EXPECT_EQ(after.results[0].value.max, 56.75);
  ASSERT_EQ(after.curves.size(), 1U);
  EXPECT_EQ(after.curves[0].points, before.curves[0].points);
}

// Others read it: a key that changes is another schema.
TEST(report, has_the_keys_that_are_documented) {
  run_report one = report_of({figure("libev", 54.5)});
  one.machine = {{"cpu", "x"}};
  EXPECT_EQ(to_json(one), R"({
 "curves": [],
 "machine": {
  "cpu": "x",
  "versions": {
   "libev": "4.33"
  }
 },
 "results": [
  {
   "max": 54.5,
   "median": 54.5,
   "metric": "ns_per_op",
   "min": 54.5,
   "runs": 5,
   "system": "libev",
   "threads": 1,
   "timers": 1000,
   "workload": "start_stop"
  }
 ],
 "schema": 1,
 "skipped": {
  "go": "missing"
 }
}
)");
}

TEST(report, that_is_none_or_of_another_schema_is_refused_with_a_word_on_why) {
  const auto reading = [](const char* text) { return [text] { from_json(text); }; };
  using error = std::runtime_error;
  EXPECT_THAT(reading("{"), ThrowsMessage<error>(HasSubstr("no report of verge bench")));
  EXPECT_THAT(reading("{}"), ThrowsMessage<error>(HasSubstr("it has no \"schema\"")));
  EXPECT_THAT(reading("{\"schema\": 2}"), ThrowsMessage<error>(HasSubstr("its schema is 2")));
  EXPECT_THAT(reading("{\"schema\": 1, \"machine\": {}}"),
              ThrowsMessage<error>(HasSubstr("results")));
  EXPECT_THAT(reading("{\"schema\": 1, \"machine\": {}, \"results\": [{\"system\": 1}]}"),
              ThrowsMessage<error>(HasSubstr("no report")));
}

TEST(report, of_what_is_in_several_the_last_counts) {
  const run_report all = merged({report_of({figure("libev", 1), figure("go", 2)}),
                                 report_of({figure("go", 3), figure("libuv", 4)})});
  ASSERT_EQ(all.results.size(), 3U);
  EXPECT_EQ(all.results[1].of.system, "go");
  EXPECT_EQ(all.results[1].value.median, 3);
}

TEST(report, on_a_page_carries_its_figures_and_cannot_end_the_script_it_is_in) {
  run_report r = report_of({figure("libev", 54.5)});
  r.machine["cpu"] = "</script><b>";
  const std::string page = to_html(r);
  EXPECT_THAT(page, HasSubstr("54.5"));
  EXPECT_THAT(page, HasSubstr("<\\/script><b>"));
  for (const char* loads : {"src=", "@import", "fetch(", "href="}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << "it loads something: " << loads;
  }
}

TEST(table, compares_with_the_best_of_the_others) {
  const run_report r = report_of({figure("verge/hybrid", 30), figure("verge/global_heap", 10),
                                  figure("libev", 60), figure("go", 90)});
  const auto best = best_peer(r, r.results[0]);
  ASSERT_TRUE(best);
  EXPECT_EQ(best->of.system, "libev");
  EXPECT_THAT(tables(r), HasSubstr("0.50x"));
  const run_report rates =
      report_of({figure("verge/hybrid", 30, 0, 5, "ops_per_s"),
                 figure("libev", 60, 0, 5, "ops_per_s"), figure("go", 90, 0, 5, "ops_per_s")});
  EXPECT_EQ(best_peer(rates, rates.results[0])->of.system, "go");
}

// ---- Comparison ---------------------------------------------------------------------------------

comparison compare_figures(const result& before, const result& after) {
  return compare(report_of({before}), report_of({after}));
}

TEST(comparison, is_silent_about_what_overlaps_however_far_the_medians_are) {
  EXPECT_TRUE(compare_figures(figure("x", 100, 30), figure("x", 150, 30)).changes.empty());
}

TEST(comparison, is_silent_about_less_than_a_tenth_however_narrow_the_spread) {
  EXPECT_TRUE(compare_figures(figure("x", 100, 1), figure("x", 109, 1)).changes.empty());
}

TEST(comparison, tells_what_is_beyond_both_and_whether_it_is_worse) {
  const comparison slower = compare_figures(figure("x", 100, 5), figure("x", 130, 5));
  ASSERT_EQ(slower.changes.size(), 1U);
  EXPECT_TRUE(slower.changes[0].worse);
  EXPECT_DOUBLE_EQ(slower.changes[0].ratio, 1.3);
  const comparison faster = compare_figures(figure("x", 130, 5), figure("x", 100, 5));
  ASSERT_EQ(faster.changes.size(), 1U);
  EXPECT_FALSE(faster.changes[0].worse);
  const comparison more =
      compare_figures(figure("x", 100, 5, 5, "ops_per_s"), figure("x", 130, 5, 5, "ops_per_s"));
  ASSERT_EQ(more.changes.size(), 1U);
  EXPECT_FALSE(more.changes[0].worse);
}

TEST(comparison, wants_more_of_few_repetitions_and_of_figures_that_one_hiccup_makes) {
  EXPECT_TRUE(compare_figures(figure("x", 100, 0, 1), figure("x", 125, 0, 1)).changes.empty());
  EXPECT_FALSE(compare_figures(figure("x", 100, 0, 1), figure("x", 135, 0, 1)).changes.empty());
  const auto longest = [](double ns) { return figure("x", ns, 0, 5, "longest_ns"); };
  EXPECT_TRUE(compare_figures(longest(100), longest(190)).changes.empty());
  EXPECT_FALSE(compare_figures(longest(100), longest(210)).changes.empty());
}

TEST(comparison, counts_what_is_in_one_report_only_and_names_another_machine) {
  run_report before = report_of({figure("x", 1), figure("y", 1)});
  run_report after = report_of({figure("x", 1), figure("z", 1)});
  before.machine["kernel"] = "6.1";
  after.machine["kernel"] = "6.18";
  const comparison c = compare(before, after);
  EXPECT_EQ(c.compared, 1U);
  EXPECT_EQ(c.only_before, 1U);
  EXPECT_EQ(c.only_after, 1U);
  EXPECT_THAT(c.machine, ElementsAre("kernel: 6.1 -> 6.18"));
  EXPECT_THAT(describe(c), HasSubstr("1 figures compared: 0 worse, 0 better"));
}

// ---- Words --------------------------------------------------------------------------------------

TEST(words, choose_in_the_order_of_the_known_with_or_without_prefix) {
  EXPECT_THAT(engines_named({"timing_wheel", "verge/hybrid"}),
              ElementsAre("verge/hybrid", "verge/timing_wheel"));
  EXPECT_THAT(peers_named({"none"}), ElementsAre());
  EXPECT_EQ(workloads_named({"all"}).size(), 14U);
}

TEST(words, that_are_unknown_get_the_list_of_the_known) {
  using error = std::invalid_argument;
  EXPECT_THAT([] { engines_named({"splay"}); },
              ThrowsMessage<error>(HasSubstr("no engine 'splay'; there are: hybrid, ")));
  EXPECT_THAT([] { peers_named({"hybrid"}); },
              ThrowsMessage<error>(HasSubstr("boost_asio, libuv")));
  EXPECT_THAT([] { workloads_named({"run"}); },
              ThrowsMessage<error>(HasSubstr("start_stop, reset")));
}

TEST(words, for_numbers_take_k_and_m_and_nothing_else) {
  EXPECT_THAT(sizes_in({"1M", "1k", "250", "1000"}), ElementsAre(250, 1'000, 1'000'000));
  for (const char* wrong : {"", "k", "1x", "-1", "0", "1.5k", "200M", "99999999999999999999"}) {
    EXPECT_THROW(sizes_in({wrong}), std::invalid_argument) << wrong;
  }
  EXPECT_THAT(threads_in({"1", "4"}), ElementsAre(1, 4));
  EXPECT_THROW(threads_in({"65"}), std::invalid_argument);
}

// ---- Plan and protocol --------------------------------------------------------------------------

TEST(plan, omits_sizes_without_information_and_reports_it) {
  std::vector<std::string> notes;
  const auto note = [&](const std::string& line) { notes.push_back(line); };
  const run_options options{.systems = {},
                            .workloads = {"start_stop", "fire", "two_threads"},
                            .timers = {1000},
                            .threads = {1, 2}};
  const std::vector<job> jobs = plan(options, note);
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs[0].timers, 1000U);
  EXPECT_EQ(jobs[1].timers, 100'000U);
  EXPECT_EQ(jobs[2].threads, 2U);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("fire is left out: it wants --timers of 10000")));
}

// Everything in a quick run, with every system: less than five minutes by the estimates.
TEST(plan, of_a_quick_run_takes_less_than_five_minutes) {
  const run_options options{.systems = {},
                            .workloads = workloads_named({"all"}),
                            .timers = {1'000, 100'000},
                            .threads = {1, 2},
                            .repeat = 0,
                            .quick = true};
  double seconds = 0;
  for (const job& j : plan(options, [](const std::string&) {})) {
    seconds += j.estimate() * j.repeat * static_cast<double>(all_systems().size());
  }
  EXPECT_LT(seconds, 300);
}

TEST(protocol, a_request_survives_a_round_trip_through_its_line) {
  const request r = parse_request(to_line(
      {.workload = "fire", .timers = 7, .threads = 2, .milliseconds = 3, .seed = 1ULL << 60}));
  EXPECT_EQ(r.workload, "fire");
  EXPECT_EQ(r.timers, 7U);
  EXPECT_EQ(r.threads, 2U);
  EXPECT_EQ(r.milliseconds, 3U);
  EXPECT_EQ(r.seed, 1ULL << 60);
}

TEST(protocol, errors_are_in_the_answer) {
  const linked_peer peer{.version = "1", .run = [](const request& r) -> answer {
                           if (r.workload == "odd") throw unsupported("only even ones");
                           throw std::runtime_error("it \"broke\"");
                         }};
  std::istringstream in("version\nodd\nfire\nfire timers=x\n\n");
  std::ostringstream out;
  serve(peer, in, out);
  std::istringstream lines(out.str());
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(parse_version(line), "1");
  std::getline(lines, line);
  EXPECT_THROW(parse_answer(line), unsupported);
  for (const char* why : {"it \"broke\"", "'timers=x' is not NAME=NUMBER", "an empty request"}) {
    std::getline(lines, line);
    EXPECT_THAT([&] { parse_answer(line); }, ThrowsMessage<std::runtime_error>(HasSubstr(why)));
  }
}

// ---- The systems that are linked ----------------------------------------------------------------

class linked_system : public testing::TestWithParam<std::string> {};

std::vector<std::string> linked_systems() {
  std::vector<std::string> names;
  for (const system_info& s : all_systems()) {
    try {
      linked_peer_named(s.name);
      names.push_back(s.name);
    } catch (const std::runtime_error&) {
      // a program, or not there when this was built
    }
  }
  return names;
}

void expect_figures(const linked_peer& peer, const request& r,
                    const std::vector<const char*>& metrics, bool ours = true) {
  SCOPED_TRACE(r.workload);
  try {
    const answer a = peer.run(r);
    for (const char* metric : metrics) {
      ASSERT_TRUE(a.metrics.contains(metric)) << metric;
      EXPECT_GT(a.metrics.at(metric), 0) << metric;
    }
    if (metrics.empty()) {
      EXPECT_EQ(a.late_ns.size(), r.milliseconds);
      const auto first = *std::min_element(a.late_ns.begin(), a.late_ns.end());
      if (ours) {
        EXPECT_GE(first, 0) << "fired early";
      }
    }
  } catch (const unsupported& e) {
    EXPECT_STRNE(e.what(), "");
  }
}

TEST_P(linked_system, answers_every_workload_with_its_metrics) {
  const linked_peer peer = linked_peer_named(GetParam());
  EXPECT_NE(peer.version, "");
  const auto ask = [](const char* workload, std::size_t timers, unsigned threads = 1) {
    return request{.workload = workload, .timers = timers, .threads = threads, .milliseconds = 20};
  };
  for (const char* w :
       {"start_stop", "reset_later", "reset_back_forth", "idle_connections", "rpc_deadlines"}) {
    expect_figures(peer, ask(w, 300), {"ns_per_op", "longest_ns"});
  }
  expect_figures(peer, ask("fill", 20'000), {"ns_per_op"});
  expect_figures(peer, ask("dense_10k", 10'000), {"ns_per_op"});
  expect_figures(peer, ask("two_threads", 300, 2), {"ops_per_s"});
  const bool ours = system_named(GetParam()).is_verge;
  expect_figures(peer, ask("lateness_idle", 0), {}, ours);
  expect_figures(peer, ask("lateness_100k", 300), {}, ours);
  if (GetParam() != "verge/precise" && GetParam() != reference_system) {
    EXPECT_NO_THROW(peer.run(ask("memory", 1'000)));
  }
  EXPECT_THROW(peer.run(ask("fly", 1)), std::runtime_error);
}

// Stops for a second; the code is the same for all of a kind, so one of each kind is enough.
TEST(linked_systems, fire_what_has_become_due_while_the_process_stood_still) {
  for (const char* name : {"verge/hybrid", "verge/timer_queue"}) {
    const answer a = linked_peer_named(name).run({.workload = "fire", .timers = 2'000});
    EXPECT_GT(a.metrics.at("ns_per_op"), 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(all, linked_system, testing::ValuesIn(linked_systems()),
                         [](const auto& of) {
                           std::string name = of.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

// libev has functions with libevent's names; which is called depends on the link order.
TEST(linked_systems, libevent_is_libevent_and_not_the_imitation_that_libev_has) {
  const auto names = linked_systems();
  if (std::find(names.begin(), names.end(), "libevent") == names.end())
    GTEST_SKIP() << "no libevent";
  EXPECT_THAT(linked_peer_named("libevent").version, testing::StartsWith("2."));
}

}  // namespace
}  // namespace verge::bench
