// SPDX-License-Identifier: Apache-2.0
//
// How a kernel sees a tensor: an address, the type of its elements and its strides. Strides of
// token tensors fit 31 bits of bytes (validated by the host); every product with one is taken in 64
// bits.
#pragma once

#include <cstdint>

namespace goldenrule::gpu {

/// Element types inside a kernel, as in goldenrule_gpu_dtype.
enum class Element : uint8_t { kF32 = 1, kF16 = 2, kBF16 = 3 };

/// A tensor [B,T,heads,(innermost)]. Strides in bytes and unsigned, so that a product with an index
/// is one widening multiplication.
struct TokenView {
  char* data;
  uint32_t row, token, head;
};

/// States [block,HV,outer,(innermost)]: outer is V in layout vk and K in layout kv.
struct StateView {
  void* data;
  int64_t block, head;  // strides in elements
  int32_t outer;
};

}  // namespace goldenrule::gpu
