// SPDX-License-Identifier: Apache-2.0
//
// The kernel groups of the library, one folder each: the only list of them.
#pragma once

#include <array>

#include "gpu/launch/kernel_table.hpp"

namespace goldenrule::gpu {

namespace recurrent {
KernelTable& kernels();
}

inline std::array<KernelTable*, 1> all_groups() { return {&recurrent::kernels()}; }

}  // namespace goldenrule::gpu
