// SPDX-License-Identifier: Apache-2.0
//
// The stages of lanes as tensors of a call, for those who have stages of lanes: emulated kernels
// and mistakes. (The oracle's own have radii beside them: stages.cpp.)
#pragma once

#include <functional>
#include <string>

#include "fixtures/call/plan.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// What one lane has: the stages of the chunk form and its rows. Empty matrices are stages that the
/// kernel does not have; those are left out of the tensors.
struct LaneStages {
  ChunkStages<double> chunk;
  Matrix<double> q, k;  ///< [tokens,K]
  Matrix<double> beta;  ///< [tokens,1]
};

/// All stages of a call in f64, by the shapes of stage_table() in their first forms. `run` is
/// called for each lane that has tokens, side by side.
[[nodiscard]] call::TensorMap stage_tensors(
    const call::Record& record, std::int64_t C,
    const std::function<LaneStages(const call::Sequence&, std::int64_t head)>& run);

}  // namespace goldenrule::delta
