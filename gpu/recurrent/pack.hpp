// SPDX-License-Identifier: Apache-2.0
//
// From the C aggregate to the parameters of a kernel. Nothing here touches the device.
#pragma once

#include "gpu/recurrent/check_tensors.hpp"
#include "gpu/recurrent/params.hpp"

namespace goldenrule::gpu::recurrent {

/// What the arguments say of the parameters; `strides` are those that check_tensors resolved. What
/// depends on the kernel and the device is left to resolve().
[[nodiscard]] Params pack(const Args& args, const TensorStrides& strides);

}  // namespace goldenrule::gpu::recurrent
