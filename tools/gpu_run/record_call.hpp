// SPDX-License-Identifier: Apache-2.0
//
// From the plain description of a call (fixtures/call) to the arguments of the C interface. Both
// say the same in the same words, so this is one table of names; who owns device memory and how it
// is laid out around the tensors is left to the caller.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "fixtures/call/record.hpp"
#include "gpu/goldenrule_gpu.h"

namespace goldenrule::gpu {

/// Where a tensor of the record lies on the device: address and strides; the type is
/// filled in by make_args. `name` is its name in the record ("initial_state").
using Place =
    std::function<goldenrule_gpu_tensor(const std::string& name, const call::Tensor& tensor)>;

/// Where the final states go.
enum class Update {
  kInPlace,   ///< into initial_state: how a server runs the kernel
  kSeparate,  ///< into final_state: reads see the pool as it was, whatever other rows write
};

/// Tensors for everything that a call writes: `o` in the type of v, the states on the way
/// (`intermediate_states` of MTP, `checkpoints` of prefill), the rings and, where it is separate or
/// there is no initial_state to update, `final_state`, in the type of initial_state, f32 without
/// one. Their contents are zero, but final_state holds initial_state, and rings and buffers what
/// they held before the call: what nobody writes keeps its content. Throws Error as call::validate
/// does.
[[nodiscard]] call::TensorMap make_outputs(const call::Record& record, Update update);

/// The arguments of a decode or MTP call, or of a prefill call, no stream and no workspace; `place`
/// is called once for every tensor that the kernel is given. record.outputs is what make_outputs
/// returned. Throws likewise.
[[nodiscard]] goldenrule_gpu_recurrent_args make_args(const call::Record& record,
                                                      const Place& place);
[[nodiscard]] goldenrule_gpu_prefill_args make_prefill_args(const call::Record& record,
                                                            const Place& place);

/// The name in a record of a tensor of the interface; empty: the kernel is not given it.
[[nodiscard]] std::string record_name(const call::Record& record, std::string_view tensor);

/// Axes of one element that the interface has in front of those of the record: packed tokens of
/// decode and MTP are one row. `name` is that of the record.
[[nodiscard]] int added_axes(const call::Record& record, std::string_view name);

/// The input of which a call makes this output: of rings, and of the buffer of intermediate states
/// of an MTP call. Whether the record has it.
[[nodiscard]] std::string name_before(std::string_view output);
[[nodiscard]] bool holds_before(const call::Record& record, std::string_view output);

/// The contract that the recurrent kernels keep on this record, and those of prefill that walk as
/// they do: their state is fp32 in registers and rounded where it is stored. That of attention.
[[nodiscard]] const char* contract_of(const call::Record& record);
/// That of the prefill kernel which serves these arguments on the current device.
[[nodiscard]] const char* contract_of(const call::Record& record,
                                      const goldenrule_gpu_prefill_args& args);

}  // namespace goldenrule::gpu
