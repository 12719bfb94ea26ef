// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/grant.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/budget/flushing.hpp"
#include "reference/delta/budget/ring_grant.hpp"
#include "reference/delta/budget/running_grant.hpp"
#include "reference/delta/budget/spread.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/oracle/tree.hpp"

namespace goldenrule::delta {
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
    e.grant.flushed.assign(e.exact.touched.size() * e.exact.channels, 0.0F);
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
  grant_flushing(record, plan, expected);
}

void confirm(const call::Record& record, const contract::Contract& contract,
             const call::TensorMap& outputs, verdict::Expectations& expected) {
  if (contract.is_ideal() || !contract.is_of(call::Family::kDelta)) return;
  if (call::has_tree(record) || !is_emulated(record, contract)) return;
  const call::Plan plan = call::make_plan(record, call::has_kept_states(expected.outputs),
                                          expected.outputs.contains("final_state"));
  if (runs_for(record, plan, contract).random >= kUsualRuns / 2) return;
  confirm_by_emulation(record, plan, contract, outputs, expected);
}

}  // namespace goldenrule::delta
