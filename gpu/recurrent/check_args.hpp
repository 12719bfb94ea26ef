// SPDX-License-Identifier: Apache-2.0
//
// The checks of everything in the aggregate but its tensors.
#pragma once

#include "gpu/launch/problem.hpp"
#include "gpu/recurrent/args_fields.hpp"

namespace goldenrule::gpu::recurrent {

/// In the order of the aggregate; the first complaint wins.
[[nodiscard]] Problem check_scalars(const Args& args);

}  // namespace goldenrule::gpu::recurrent
