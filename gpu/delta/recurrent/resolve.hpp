// SPDX-License-Identifier: Apache-2.0
//
// Everything that the host decides about a call before it is launched.
#pragma once

#include "gpu/delta/recurrent/args_fields.hpp"
#include "gpu/launch/kernel_table.hpp"
#include "gpu/launch/pack_call.hpp"

namespace goldenrule::gpu::recurrent {

/// A call ready to be launched: every parameter is set.
struct ResolvedCall {
  Params params;
  int entry = 0;
  void* stream = nullptr;
  LaunchPlan plan;  ///< no blocks: the call has no effect (B = 0; T = 0 and no state moves)
};
/// Loads the kernels of the device if nobody has yet.
[[nodiscard]] Problem resolve(const Args* given, ResolvedCall& call);

}  // namespace goldenrule::gpu::recurrent
