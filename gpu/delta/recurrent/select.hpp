// SPDX-License-Identifier: Apache-2.0
//
// Which entry of the table serves a call: a function of its shape, types and alignment, of B and of
// the device, and of nothing that was asked before.
#pragma once

#include "gpu/delta/recurrent/table.hpp"

namespace goldenrule::gpu::recurrent {

/// `params` as pack() returns them. `device`: one that prepare() has been called for, and then only
/// what is loaded there is chosen; -1: as if all were.
[[nodiscard]] Key select(const Params& params, const Load& load, int device = -1);

}  // namespace goldenrule::gpu::recurrent
