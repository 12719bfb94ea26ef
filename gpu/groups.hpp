// SPDX-License-Identifier: Apache-2.0
//
// The kernel groups of the library, one folder each: the only list of them.
#pragma once

#include <array>

#include "gpu/launch/kernel_table.hpp"

namespace goldenrule::gpu {

namespace recurrent {
KernelTable& kernels();
const void* check_function();  ///< the kernel of goldenrule_gpu_recurrent_check, in no table
}  // namespace recurrent
namespace prefill {
KernelTable& kernels();
const void* check_function();
}  // namespace prefill

namespace attention {
KernelTable& kernels();
const void* check_function();
}  // namespace attention

inline std::array<KernelTable*, 3> all_groups() {
  return {&recurrent::kernels(), &prefill::kernels(), &attention::kernels()};
}

inline std::array<const void*, 3> check_functions() {
  return {recurrent::check_function(), prefill::check_function(), attention::check_function()};
}

}  // namespace goldenrule::gpu
