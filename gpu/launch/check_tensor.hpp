// SPDX-License-Identifier: Apache-2.0
//
// The checks of one tensor of the aggregate: presence, type, alignment, strides. A tensor is
// described by its extents; those behind the first `strided` are contiguous and have no stride.
#pragma once

#include <array>
#include <span>
#include <string>

#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu {

enum class Need { kRequired, kOptional, kForbidden };
enum class Use { kRead, kWritten };
enum class Types {
  kFloat,
  kState,
  kKept,      ///< states of a type of their own
  kHalf,      ///< f16 or bf16
  kHalfPool,  ///< likewise; 64-bit strides between the blocks of a pool
  kF32,
  kIndex,     ///< read without gaps where it has one axis
  kRowIndex,  ///< one for each row, at any stride: a column of a block table
};

struct TensorRule {
  const char* name;
  Need need;
  Use use;
  Types types;
  std::span<const std::int64_t> extents;  ///< all axes, the contiguous ones last
  int strided;                            ///< axes with an entry in `stride`
};

/// Strides in elements, dense ones filled in; only the first rule.strided entries have a meaning.
using Strides = std::array<std::int64_t, 4>;

/// Reports into `problem`; returns the resolved strides. `why` explains a needed or forbidden
/// tensor. A call that passes allocates nothing: text is built for a refusal only.
Strides check_tensor(const goldenrule_gpu_tensor& tensor, const TensorRule& rule, const char* why,
                     Problem& problem);

/// "NAME.stride[AXIS]"
[[nodiscard]] std::string stride_name(const char* tensor, int axis);

/// Bytes of an element of a known dtype, 0 of an unknown one.
[[nodiscard]] int dtype_size(std::int32_t dtype);

}  // namespace goldenrule::gpu
