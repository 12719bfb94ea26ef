// SPDX-License-Identifier: Apache-2.0
//
// The bookkeeping of a simulated server, without a tensor: nobody shares a slot, every request gets
// all of its tokens, and no row begins where its request does not stand.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "reference/serving/scheduler.hpp"

using namespace goldenrule;
using namespace goldenrule::serving;

namespace {

struct Seen {
  int restarts = 0, returns = 0, shared = 0, padded = 0, rejected = 0, compacted = 0;
};

// Where a row may begin: at the end of the last one, at 0, or where a state was kept.
void check_position(const Row& row, std::map<std::int64_t, std::int64_t>& position, Seen& seen) {
  const bool first = !position.contains(row.request);
  if (row.fresh) {
    CHECK(row.position == 0);
    CHECK(row.restarted == !first);
    seen.restarts += row.restarted ? 1 : 0;
  } else if (row.restored_from >= 0) {
    CHECK((first || row.position <= position[row.request]));
    CHECK(row.position > 0);
    (row.restored_from == row.request ? seen.returns : seen.shared) += 1;
  } else {
    CHECK_FALSE(first);
    CHECK(row.position == position[row.request]);
  }
  position[row.request] = row.position + row.accepted;
}

void check_slots(const Step& step, std::int64_t slots) {
  std::set<std::int64_t> used;
  for (const Row& row : step.rows) {
    std::set<std::int64_t> own(row.columns.begin(), row.columns.end());
    own.insert({row.slot, row.out});
    own.erase(-1);
    if (row.request < 0) CHECK(own.empty());
    for (const std::int64_t slot : own) {
      const bool alone = slot < slots && used.insert(slot).second;
      CHECK(alone);
    }
  }
}

void check_schedule(const cases::Scenario& scenario, Seen& seen) {
  CAPTURE(cases::canonical(scenario));
  Scheduler scheduler(scenario);
  std::map<std::int64_t, std::int64_t> position;
  while (const auto step = scheduler.next()) {
    std::set<std::int64_t> requests;
    for (const Row& row : step->rows) {
      if (row.request < 0) {
        ++seen.padded;
        continue;
      }
      CHECK(requests.insert(row.request).second);
      CHECK((row.accepted >= 0 && row.accepted <= row.count && row.count > 0));
      if (step->mode != call::Mode::kMtp) CHECK(row.accepted == row.count);
      seen.rejected += row.accepted < row.count ? 1 : 0;
      check_position(row, position, seen);
    }
    CHECK_FALSE(requests.empty());
    check_slots(*step, scheduler.slot_count());
    seen.compacted += step->compacted ? 1 : 0;
  }
  for (std::size_t r = 0; r < scheduler.requests().size(); ++r) {
    CHECK(position[static_cast<std::int64_t>(r)] == scheduler.requests()[r].total);
  }
}

}  // namespace

TEST_CASE("every request gets its tokens, in slots of its own") {
  Seen seen;
  for (const std::string& name : cases::list_scenario_suites()) {
    for (cases::Scenario scenario : cases::load_scenarios(name).scenarios) {
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        scenario.seed = seed;
        check_schedule(scenario, seen);
      }
    }
  }
  for (const int count :
       {seen.restarts, seen.returns, seen.shared, seen.padded, seen.rejected, seen.compacted}) {
    CHECK(count > 10);
  }
}
