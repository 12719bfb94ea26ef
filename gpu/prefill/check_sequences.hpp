// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "gpu/goldenrule_gpu.h"
#include "gpu/prefill/params.hpp"

namespace goldenrule::gpu::prefill {

/// Launches the checking kernel over bounds, slots and checkpoints; one block, quadratic in N, for
/// debugging.
cudaError_t launch_check(const Params& params, goldenrule_gpu_prefill_report* report,
                         cudaStream_t stream);

}  // namespace goldenrule::gpu::prefill
