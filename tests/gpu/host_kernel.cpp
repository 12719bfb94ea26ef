// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/host_kernel.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

#include "gpu/delta/prefill/args_fields.hpp"
#include "gpu/delta/recurrent/args_fields.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::Tensor;

/// The tensor of the interface that the record calls `name`, a ring or a buffer also as it was
/// before the call, with the strides of the record's axes; no data: the kernel is not given it.
template <class Group>
goldenrule_gpu_tensor given(const typename Group::Args& args, const Record& record,
                            const std::string& name) {
  goldenrule_gpu_tensor t{};
  for (const auto& tensor : Group::kTensors) {
    const std::string known = gpu::record_name(record, tensor.field.name);
    const bool before = gpu::holds_before(record, known) && name == gpu::name_before(known);
    if (known != name && !before) continue;
    t = args.*tensor.field.member;
    std::copy(std::begin(t.stride) + gpu::added_axes(record, known), std::end(t.stride),
              std::begin(t.stride));
  }
  return t.data == nullptr && name == "final_state" ? args.state : t;
}

/// Calls f(element, its address) for every element.
template <class F>
void for_each_element(const goldenrule_gpu_tensor& t, const Tensor& tensor, bool dense, F&& f) {
  const call::Shape& shape = tensor.shape();
  call::Shape strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const bool last = axis + 1 == shape.size();
    if (dense) {
      strides[axis] = last ? 1 : strides[axis + 1] * shape[axis + 1];
    } else if (!last || shape.size() < 4) {  // the last axis of the others has no entry
      strides[axis] = t.stride[axis];
    }
  }
  const auto bytes = static_cast<std::int64_t>(call::info(tensor.dtype()).bytes);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const call::Shape index = call::unravel(shape, i);
    const std::int64_t at =
        std::inner_product(index.begin(), index.end(), strides.begin(), std::int64_t{0});
    f(i, static_cast<std::byte*>(t.data) + at * bytes);
  }
}

/// The record with the numbers that the arguments lead to.
template <class Group>
Record read(const typename Group::Args& args, Record record, bool dense) {
  for (auto& [name, tensor] : record.inputs) {
    const std::size_t bytes = call::info(tensor.dtype()).bytes;
    const goldenrule_gpu_tensor t = given<Group>(args, record, name);
    if (t.data == nullptr) continue;
    for_each_element(t, tensor, dense, [&](std::int64_t i, const std::byte* from) {
      std::memcpy(&tensor.bytes()[static_cast<std::size_t>(i) * bytes], from, bytes);
    });
    if (name.ends_with("state_indices") && name != "intermediate_state_indices") {
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const bool inside = tensor[i] >= 0 && tensor[i] < static_cast<double>(args.slots);
        if (!inside) tensor.set(i, static_cast<double>(args.pad_slot));
      }
    }
  }
  return record;
}

/// Whether an element of o is of the last token of a row, or of all.
bool is_last(const Record& record, std::int64_t i) {
  const call::Dims d = call::validate(record);
  const std::int64_t tokens = d.T > 0 ? d.T : d.tokens;
  return i / (d.HV * d.V) % tokens == tokens - 1;
}

template <class Group>
void write(const typename Group::Args& args, const Record& record, const call::TensorMap& outputs,
           HostMistake mistake) {
  const WriteSet writes = writes_of(record);
  const std::int64_t block = args.HV * args.K * args.V;
  for (const auto& [name, tensor] : outputs) {
    const goldenrule_gpu_tensor to = given<Group>(args, record, name);
    if (to.data == nullptr) continue;
    const std::size_t bytes = call::info(tensor.dtype()).bytes;
    const std::vector<bool>& written =
        name == "final_state" ? writes.final_state : writes.kept_states;
    for_each_element(to, tensor, false, [&](std::int64_t i, std::byte* at) {
      const bool o = name == "o";
      const bool stray = mistake == HostMistake::kWritesLastSlot && name == "final_state" &&
                         i / block == args.slots - 1;
      const bool goes_there =
          name.starts_with("ring_")
              ? writes.rings[place_of_element(tensor.shape(), static_cast<std::size_t>(i))]
              : o || stray || written[static_cast<std::size_t>(i / block)];
      if (!goes_there) return;
      if (o && mistake == HostMistake::kLeavesLastToken && is_last(record, i)) return;
      std::memcpy(at, &tensor.bytes()[static_cast<std::size_t>(i) * bytes], bytes);
      if (stray) at[0] ^= std::byte{1};
      if (o && mistake == HostMistake::kWritesGaps && (i + 1) % args.V == 0) at[bytes] = {};
    });
  }
}

template <class Group>
EntryPoint<typename Group::Args> stand_in(const Record& record, HostMistake mistake) {
  return [record, mistake](const typename Group::Args* args, char*, std::size_t) {
    Record call = read<Group>(*args, record, mistake == HostMistake::kIgnoresStrides);
    if (mistake == HostMistake::kKeyInBf16) {
      Tensor& k = call.inputs.at("k");
      for (std::int64_t i = 0; i < k.size(); ++i) {
        k.set(i, call::round_to(call::DType::kBF16, k[i]));
      }
    }
    const contract::Contract& contract = contract::find_contract(gpu::contract_of(call));
    call::TensorMap outputs =
        calls::stored(call, contract, verdict::exact_outputs(delta::slice(), call));
    write<Group>(*args, call, outputs, mistake);
    return GOLDENRULE_GPU_OK;
  };
}

}  // namespace

Kernel host_kernel(const Record& record, HostMistake mistake) {
  Kernel kernel;
  kernel.recurrent = stand_in<gpu::recurrent::Group>(record, mistake);
  kernel.prefill = stand_in<gpu::prefill::Group>(record, mistake);
  return kernel;
}

}  // namespace goldenrule::test
