// SPDX-License-Identifier: Apache-2.0
#include "gpu/attention/sm90/decode.cuh"

#include "gpu/attention/table.hpp"

namespace goldenrule::gpu::attention {
namespace {

template <Element kType, int kDim, int kRows>
constexpr Shape shape() {
  using C = Config<kType, kDim, kRows>;
  return {.kernel = &attention_decode_kernel<C>,
          .type = kType,
          .dim = kDim,
          .rows = kRows,
          .threads = C::kThreads,
          .shared_bytes = static_cast<int>(sizeof(DecodeStorage<C>))};
}

}  // namespace

const Shape kTunedShapes[kShapes] = {
    shape<Element::kBF16, 64, 16>(),  shape<Element::kBF16, 64, 64>(),
    shape<Element::kBF16, 128, 16>(), shape<Element::kBF16, 128, 64>(),
    shape<Element::kF16, 64, 16>(),   shape<Element::kF16, 64, 64>(),
    shape<Element::kF16, 128, 16>(),  shape<Element::kF16, 128, 64>(),
};

}  // namespace goldenrule::gpu::attention
