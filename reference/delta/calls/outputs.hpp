// SPDX-License-Identifier: Apache-2.0
//
// Changed outputs: mistakes in where results go. What a kernel leaves unwritten is NaN in a buffer
// of its own (o, states on the way, the final states of a prefill call without a pool) and the old
// content in a state pool, which kernels update in place.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "fixtures/call/record.hpp"
#include "reference/calls/unwritten.hpp"

namespace goldenrule::calls {

/// One element of one output tensor.
struct OutputPlace {
  bool is_state = false;                    ///< of a tensor of states, else of o
  std::optional<call::Target> target = {};  ///< states only: which tensor
  std::int64_t sequence = 0;                ///< that wrote it; -1: a slot that nobody writes
  std::int64_t block = 0;  ///< o: flattened token; else the [HV,state] block of the tensor
  std::int64_t head = 0;
  std::int64_t key = 0;  ///< states only
  std::int64_t value = 0;
  std::int64_t after = 0;  ///< states only: tokens of the sequence
  std::int64_t index = 0;  ///< flat, in the tensor
  double unwritten = 0.0;  ///< what is there where the kernel does not write
};

/// Replaces every element x of every output by f(tensor, place, x). Slots that nobody writes are
/// not visited.
void change_outputs(
    const call::Record& record, call::TensorMap& outputs,
    const std::function<double(const call::Tensor&, const OutputPlace&, double)>& f);

/// Leaves every element unwritten for which `drops` holds.
void drop_outputs(const call::Record& record, call::TensorMap& outputs,
                  const std::function<bool(const OutputPlace&)>& drops);

/// Fills `tensor` (blocks of equal size along its leading axis) with `blocks` of `from`.
/// A negative entry leaves the block of `tensor` as it is.
void copy_blocks(const call::Tensor& from, std::int64_t block_size,
                 const std::vector<std::int64_t>& blocks, call::Tensor& tensor);

}  // namespace goldenrule::calls
