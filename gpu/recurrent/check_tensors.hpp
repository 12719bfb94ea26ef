// SPDX-License-Identifier: Apache-2.0
//
// The checks of the tensors of the aggregate, by the list of args_fields.hpp.
#pragma once

#include <array>

#include "gpu/recurrent/args_fields.hpp"

namespace goldenrule::gpu::recurrent {

inline constexpr std::size_t kTensorCount = sizeof(kTensors) / sizeof(kTensors[0]);

/// Resolved strides in elements, in the order of kTensors.
class TensorStrides {
 public:
  [[nodiscard]] const Strides& operator[](Tensor Args::*member) const { return all_[at(member)]; }
  [[nodiscard]] Strides& operator[](Tensor Args::*member) { return all_[at(member)]; }

 private:
  static std::size_t at(Tensor Args::*member) {
    std::size_t i = 0;
    while (kTensors[i].field.member != member) ++i;
    return i;
  }
  std::array<Strides, kTensorCount> all_{};
};

/// Presence, types, alignment and strides of every tensor; `args` has passed check_scalars.
[[nodiscard]] Problem check_tensors(const Args& args, TensorStrides& strides);

}  // namespace goldenrule::gpu::recurrent
