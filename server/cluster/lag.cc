// SPDX-License-Identifier: Apache-2.0

#include "lag.h"

#include <vector>

#include "../store/records.h"

namespace verge::server::cluster {

namespace {

using postgres::parameters;
using postgres::rows;
using postgres::statement;

constexpr const char* read_tubes = "SELECT shard::int8, tube, record FROM verge_tube";
/// The first behind the mark of each tube, by the index.
constexpr const char* read_behind =
    "SELECT u.shard, (extract(epoch FROM now()) * 1000)::int8 - min(f.at) / 1000000 "
    "FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[]) AS u (shard, tube, at, id) "
    "CROSS JOIN LATERAL (SELECT t.at FROM verge_task AS t WHERE t.shard = u.shard "
    "AND t.tube = u.tube AND t.kind = 1 AND (t.at, t.id) > (u.at, u.id) "
    "ORDER BY t.at, t.id LIMIT 1) AS f "
    "WHERE f.at / 1000000 < (extract(epoch FROM now()) * 1000)::int8 GROUP BY u.shard";

std::vector<statement> behind(const rows& tubes) {
  std::vector<std::int64_t> shard, tube, at, id;
  for (int i = 0; i < tubes.size(); ++i) {
    const tube_record r =
        records::parse_tube(static_cast<tube_number>(tubes.number(i, 1)), tubes.at(i, 2));
    shard.push_back(tubes.number(i, 0));
    tube.push_back(tubes.number(i, 1));
    at.push_back(r.due_mark.due);
    id.push_back(static_cast<std::int64_t>(r.due_mark.id));
  }
  std::vector<statement> all;
  all.push_back({read_behind, parameters().numbers(shard).numbers(tube).numbers(at).numbers(id)});
  return all;
}

lags lags_in(const rows& found) {
  lags all;
  for (int i = 0; i < found.size(); ++i) {
    all[static_cast<std::uint32_t>(found.number(i, 0))] =
        std::chrono::milliseconds(found.number(i, 1));
  }
  return all;
}

}  // namespace

verge::task<lags> read_lags(postgres::link& at) {
  std::vector<statement> first;
  first.push_back({read_tubes, {}});
  const std::vector<rows> tubes = co_await at.run(first);
  const std::vector<statement> second = behind(tubes.front());
  const std::vector<rows> found = co_await at.run(second);
  co_return lags_in(found.front());
}

lags look_at_lags(postgres::link& at) {
  const std::vector<rows> tubes = at.run_here({{read_tubes, {}}});
  return lags_in(at.run_here(behind(tubes.front())).front());
}

}  // namespace verge::server::cluster
