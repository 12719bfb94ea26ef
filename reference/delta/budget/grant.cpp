// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/grant.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/budget/ring_grant.hpp"
#include "reference/delta/budget/running_grant.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/oracle/tree.hpp"

namespace goldenrule::delta {
namespace {

double largest_finite(const call::Tensor& x) {
  std::vector<double> largest(parallel::range_count(x.size()), 0.0);
  parallel::for_each_range(x.size(), [&](std::size_t part, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const double y = std::fabs(x[i]);
      if (std::isfinite(y)) largest[part] = std::max(largest[part], y);
    }
  });
  return largest.empty() ? 0.0 : std::ranges::max(largest);
}

}  // namespace

// Up to 2^-126 in each of the K + 1 numbers that meet in an element, times the largest number that
// they multiply. That number may be another request's, whose size must not vouch for this one: no
// more than 2^60 counts, with which the term stays below 2^-57 for K = 256. What is larger, and
// lies behind a gate below 2^-126, is granted less than a kernel that flushes may lose.
double flushed(const call::Record& record, const call::Dims& dims) {
  double largest = 1.0;
  for (const char* name : {"v", "initial_state", "initial_ring_d"}) {
    const call::Tensor* x = record.find_input(name);
    if (x != nullptr) largest = std::max(largest, largest_finite(*x));
  }
  constexpr double kLargest = 0x1p60;
  return static_cast<double>(dims.K + 1) * 0x1p-126 * std::min(largest, kLargest);
}

namespace {

// A tree is granted what the tokens along its paths are.
void grant_tree(const call::Record& record, const contract::Contract& contract,
                verdict::GrantDetail detail, verdict::Expectations& expected) {
  const Paths paths(record);
  verdict::Expectations along = evaluate(paths.unfolded(), scalar::Precision::kDouble,
                                         {.certify = false,
                                          .final_state = expected.outputs.contains("final_state"),
                                          .kept_states = call::has_kept_states(expected.outputs)});
  grant(paths.unfolded(), contract, detail, along);
  for (auto& [name, e] : expected.outputs) {
    const verdict::Grant& from = along.outputs.at(name).grant;
    e.grant = empty_grant(e.exact, from.multiple, detail);
    e.grant.flushed = from.flushed;
    paths.fold(from, name, e.exact, e.grant);
  }
}

}  // namespace

bool is_emulated(const call::Record& record, const contract::Contract& contract) {
  if (contract.is_ideal()) return false;
  return contract.chunked() != nullptr || record.mode == call::Mode::kPrefill;
}

void grant(const call::Record& record, const contract::Contract& contract,
           verdict::GrantDetail detail, verdict::Expectations& expected) {
  for (auto& [name, e] : expected.outputs) {
    e.grant = {};
    e.grant.given = contract.is_ideal();
  }
  if (contract.is_ideal() || !contract.is_of(call::Family::kDelta)) return;
  if (call::has_tree(record)) return grant_tree(record, contract, detail, expected);
  const call::Plan plan = call::make_plan(record, call::has_kept_states(expected.outputs),
                                          expected.outputs.contains("final_state"));
  if (is_emulated(record, contract)) {
    grant_by_emulation(record, plan, contract, detail, expected);
  } else {
    grant_running_errors(record, plan, contract, detail, expected);
  }
  if (call::has_ring(record)) grant_ring_rows(record, plan, contract, detail, expected);
  const double lost = flushed(record, plan.dims);
  for (auto& [name, e] : expected.outputs) e.grant.flushed = lost;
}

}  // namespace goldenrule::delta
