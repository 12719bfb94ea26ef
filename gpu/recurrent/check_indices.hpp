// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/goldenrule_gpu.h"
#include "gpu/launch/problem.hpp"
#include "gpu/recurrent/params.hpp"

namespace goldenrule::gpu::recurrent {

/// Launches the checking kernel over the slots and counts of `params`; one block, quadratic in
/// B * T, for debugging. `in_place`: final_state is state; `first_version`: the report is that of
/// version 1 of the interface, which ends before the rings.
[[nodiscard]] Problem launch_check(const Params& params, int B, bool in_place, bool first_version,
                                   goldenrule_gpu_index_report* report, void* stream);

}  // namespace goldenrule::gpu::recurrent
