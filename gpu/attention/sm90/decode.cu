// SPDX-License-Identifier: Apache-2.0
#include "gpu/attention/sm90/decode.cuh"

#include "gpu/attention/table.hpp"

namespace goldenrule::gpu::attention {
namespace {

template <class C>
constexpr Code code() {
  return {.kernel = &attention_decode_kernel<C>,
          .threads = C::kThreads,
          .shared_bytes = static_cast<int>(sizeof(DecodeStorage<C>))};
}

template <Element kType, int kDim, int kRows>
constexpr Shape shape() {
  Shape shape = {
      .type = kType, .dim = kDim, .rows = kRows, .shared = code<Config<kType, kDim, kRows, 1>>()};
  if constexpr (kRows == 64) shape.alone = code<Config<kType, kDim, kRows, 2>>();
  return shape;
}

}  // namespace

const Shape kTunedShapes[kShapes] = {
    shape<Element::kBF16, 64, 16>(),  shape<Element::kBF16, 64, 64>(),
    shape<Element::kBF16, 128, 16>(), shape<Element::kBF16, 128, 64>(),
    shape<Element::kF16, 64, 16>(),   shape<Element::kF16, 64, 64>(),
    shape<Element::kF16, 128, 16>(),  shape<Element::kF16, 128, 64>(),
};

}  // namespace goldenrule::gpu::attention
