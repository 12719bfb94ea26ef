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
  std::uintptr_t count_ = 0;
};

inline void set_strides(goldenrule_gpu_tensor& tensor,
                        std::initializer_list<std::int64_t> strides) {
  std::copy(strides.begin(), strides.end(), tensor.stride);
  tensor.dense = 0;
}

inline void* moved(void* address, std::ptrdiff_t bytes) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(address) +
                                 static_cast<std::uintptr_t>(bytes));
}

}  // namespace goldenrule::test
