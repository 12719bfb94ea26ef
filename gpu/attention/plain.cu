// SPDX-License-Identifier: Apache-2.0
#include "gpu/attention/plain.cuh"

#include "gpu/attention/table.hpp"

namespace goldenrule::gpu::attention {

const Code kPlainCode = {.kernel = &attention_plain_kernel,
                         .threads = kPlainThreads,
                         .shared_bytes = static_cast<int>(sizeof(PlainStorage))};

}  // namespace goldenrule::gpu::attention
