// SPDX-License-Identifier: Apache-2.0
//
// From the C aggregate to what a kernel is given: every check that the host can make, then packing.
// Nothing here touches the device or its memory.
#pragma once

#include "gpu/goldenrule_gpu.h"
#include "gpu/kernels/params.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/launch/problem.hpp"
#include "gpu/launch/table.hpp"

namespace goldenrule::gpu {

/// Checks `args`; on success `params` is complete but for `tiles`, which depends on the kernel.
[[nodiscard]] Problem resolve(const goldenrule_gpu_recurrent_args& args, Params& params);

/// Whether the call has any effect: B = 0 has none, T = 0 only where a state moves elsewhere.
[[nodiscard]] bool has_effect(const goldenrule_gpu_recurrent_args& args);

/// The key of resolved arguments on this device.
[[nodiscard]] Key select(const Params& params, std::int64_t B, const Device& device);

}  // namespace goldenrule::gpu
