// SPDX-License-Identifier: Apache-2.0
//
// Tensors without memory, for what looks at addresses and never follows them: each at an address of
// its own, so far from the others that none of its extents reaches them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "gpu/goldenrule_gpu.h"

namespace goldenrule::test {

class NoMemory {
 public:
  /// Behind so many other tensors.
  explicit NoMemory(std::uintptr_t others = 0) : count_(others) {}

  /// Dense.
  goldenrule_gpu_tensor tensor(std::int32_t dtype) {
    goldenrule_gpu_tensor t{};
    t.data = address();
    t.dtype = dtype;
    t.dense = 1;
    return t;
  }
  void* address() { return reinterpret_cast<void*>(++count_ << kApart); }

 private:
  static constexpr int kApart = 44;
  std::uintptr_t count_;
};

inline void set_strides(goldenrule_gpu_tensor& tensor,
                        std::initializer_list<std::int64_t> strides) {
  std::copy(strides.begin(), strides.end(), tensor.stride);
  tensor.dense = 0;
}

/// Rings of 16 places for four rows and more, beside tensors of another NoMemory.
inline void give_rings(goldenrule_gpu_recurrent_args& a) {
  constexpr std::uintptr_t kOthers = 20;
  NoMemory memory(kOthers);
  a.rings = std::max<std::int64_t>(4, a.B);
  a.ring_places = 16;
  a.ring_d = memory.tensor(GOLDENRULE_GPU_BF16);
  a.ring_k = memory.tensor(GOLDENRULE_GPU_BF16);
  a.ring_g = memory.tensor(GOLDENRULE_GPU_F32);
  for (goldenrule_gpu_tensor* t : {&a.ring_indices, &a.ring_start, &a.ring_count, &a.ring_flush}) {
    *t = memory.tensor(GOLDENRULE_GPU_I32);
  }
}

inline void* moved(void* address, std::ptrdiff_t bytes) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) +
                                 static_cast<std::uintptr_t>(bytes));
}

}  // namespace goldenrule::test
