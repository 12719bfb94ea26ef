// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/delta/prefill/params.hpp"
#include "gpu/goldenrule_gpu.h"
#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu::prefill {

/// Launches the checking kernel over bounds, slots and checkpoints; one block, quadratic in N, for
/// debugging.
[[nodiscard]] Problem launch_check(const Params& params, goldenrule_gpu_prefill_report* report,
                                   void* stream);

}  // namespace goldenrule::gpu::prefill
