// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/delta/recurrent/params.hpp"
#include "gpu/goldenrule_gpu.h"
#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu::recurrent {

/// Launches the checking kernel over the slots and counts of `params`; one block, quadratic in
/// B * T, for debugging. `in_place`: final_state is state; `version`: that of the interface whose
/// report it is, 1 to 3.
[[nodiscard]] Problem launch_check(const Params& params, int B, bool in_place, int version,
                                   goldenrule_gpu_index_report* report, void* stream);

}  // namespace goldenrule::gpu::recurrent
