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
namespace prefill {
KernelTable& kernels();
}

inline std::array<KernelTable*, 2> all_groups() {
  return {&recurrent::kernels(), &prefill::kernels()};
}

}  // namespace goldenrule::gpu
