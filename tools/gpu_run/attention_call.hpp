// SPDX-License-Identifier: Apache-2.0
//
// From a record of attention to the arguments of the C interface, as record_call.hpp does for the
// delta rule.
#pragma once

#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::gpu {

/// What the kernels of attention keep.
inline constexpr const char* kAttentionContract = "flash_bf16";

/// `o` in the type of q, and `lse`.
[[nodiscard]] call::TensorMap make_attention_outputs(const call::Record& record);

/// No stream; `place` is called once for every tensor that the kernel is given. Throws Error for
/// what the kernels have no argument for, and as call::validate does.
[[nodiscard]] goldenrule_gpu_attention_args make_attention_args(const call::Record& record,
                                                                const Place& place);

}  // namespace goldenrule::gpu
