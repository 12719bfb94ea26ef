// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/slice.hpp"

#include "reference/delta/budget/default_contract.hpp"
#include "reference/delta/budget/grant.hpp"
#include "reference/delta/budget/stage_grant.hpp"
#include "reference/delta/capture_mistakes.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/oracle/memory.hpp"
#include "reference/delta/oracle/stages.hpp"

namespace goldenrule::delta {

const verdict::Slice& slice() {
  static const verdict::StageSlice stages{.table = stage_table,
                                          .evaluate = evaluate_stages,
                                          .grant = grant_stages,
                                          .in_form = stage_in_form};
  static const verdict::Slice slice{.evaluate = evaluate,
                                    .grant = grant,
                                    .settle = nullptr,
                                    .emulate = emulate_unstored,
                                    .mistakes = mistakes,
                                    .capture_mistakes = capture_mistakes,
                                    .default_contract = default_contract,
                                    .memory_needed = memory_needed,
                                    .stages = &stages};
  return slice;
}

}  // namespace goldenrule::delta
