// SPDX-License-Identifier: Apache-2.0
//
// Everything that the host decides about a call before it is launched.
#pragma once

#include "gpu/launch/device.hpp"
#include "gpu/launch/kernel_table.hpp"
#include "gpu/recurrent/args_fields.hpp"
#include "gpu/recurrent/params.hpp"

namespace goldenrule::gpu::recurrent {

/// A call that passed all checks, of the arguments and then of the current device.
struct CheckedCall {
  Params params;  ///< as pack() returns them
  Device device;
};
[[nodiscard]] Problem check_call(const Args* args, CheckedCall& call);

/// A call ready to be launched: every parameter is set.
struct ResolvedCall {
  Params params;
  int entry = 0;
  LaunchPlan plan;  ///< no blocks: the call has no effect (B = 0; T = 0 and no state moves)
};
/// Loads the kernels of the device if nobody has yet.
[[nodiscard]] Problem resolve(const Args* args, ResolvedCall& call);

}  // namespace goldenrule::gpu::recurrent
