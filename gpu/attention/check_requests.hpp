// SPDX-License-Identifier: Apache-2.0
//
// The kernel behind goldenrule_gpu_attention_check.
#pragma once

#include "gpu/attention/params.hpp"
#include "gpu/goldenrule_gpu.h"
#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu::attention {

[[nodiscard]] Problem launch_check(const Params& params, goldenrule_gpu_attention_report* report,
                                   void* stream);

}  // namespace goldenrule::gpu::attention
