// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/host_kernel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {
namespace {

using Args = goldenrule_gpu_recurrent_args;
using call::Record;
using call::Tensor;

// Where the C interface has another name than the record, or one for two of its names.
struct Member {
  const char* name;
  goldenrule_gpu_tensor Args::*tensor;
};
constexpr std::array kMembers{Member{"q", &Args::q},
                              Member{"k", &Args::k},
                              Member{"v", &Args::v},
                              Member{"a", &Args::gate},
                              Member{"g", &Args::gate},
                              Member{"A_log", &Args::A_log},
                              Member{"dt_bias", &Args::dt_bias},
                              Member{"b", &Args::beta},
                              Member{"beta", &Args::beta},
                              Member{"initial_state", &Args::state},
                              Member{"state_indices", &Args::state_indices},
                              Member{"output_state_indices", &Args::output_state_indices},
                              Member{"ssm_state_indices", &Args::ssm_state_indices},
                              Member{"num_accepted_tokens", &Args::num_accepted_tokens},
                              Member{"accepted_tokens", &Args::accepted_tokens},
                              Member{"o", &Args::o},
                              Member{"final_state", &Args::final_state},
                              Member{"intermediate_states", &Args::intermediate_states}};

const goldenrule_gpu_tensor& given(const Args& args, const std::string& name) {
  const goldenrule_gpu_tensor& t = args.*std::ranges::find(kMembers, name, [](const Member& m) {
                                           return std::string(m.name);
                                         })->tensor;
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
Record read(const Args& args, Record record, bool dense) {
  for (auto& [name, tensor] : record.inputs) {
    const std::size_t bytes = call::info(tensor.dtype()).bytes;
    for_each_element(given(args, name), tensor, dense, [&](std::int64_t i, const std::byte* from) {
      std::memcpy(&tensor.bytes()[static_cast<std::size_t>(i) * bytes], from, bytes);
    });
    if (name.ends_with("state_indices")) {
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        const bool inside = tensor[i] >= 0 && tensor[i] < static_cast<double>(args.slots);
        if (!inside) tensor.set(i, static_cast<double>(args.pad_slot));
      }
    }
  }
  return record;
}

void write(const Args& args, const Record& record, const call::TensorMap& outputs,
           HostMistake mistake) {
  const WriteSet writes = writes_of(record);
  const std::int64_t block = args.HV * args.K * args.V;
  for (const auto& [name, tensor] : outputs) {
    const goldenrule_gpu_tensor& to = given(args, name);
    if (to.data == nullptr) continue;
    const std::size_t bytes = call::info(tensor.dtype()).bytes;
    const std::vector<bool>& written =
        name == "final_state" ? writes.final_state : writes.intermediate_states;
    for_each_element(to, tensor, false, [&](std::int64_t i, std::byte* at) {
      const bool o = name == "o";
      const bool stray = mistake == HostMistake::kWritesLastSlot && name == "final_state" &&
                         i / block == args.slots - 1;
      if (!o && !stray && !written[static_cast<std::size_t>(i / block)]) return;
      if (o && mistake == HostMistake::kLeavesLastToken &&
          i / (args.HV * args.V) % args.T == args.T - 1) {
        return;
      }
      std::memcpy(at, &tensor.bytes()[static_cast<std::size_t>(i) * bytes], bytes);
      if (stray) at[0] ^= std::byte{1};
      if (o && mistake == HostMistake::kWritesGaps && (i + 1) % args.V == 0) at[bytes] = {};
    });
  }
}

}  // namespace

Kernel host_kernel(const Record& record, HostMistake mistake) {
  return [record, mistake](const Args* args, char*, std::size_t) {
    Record call = read(*args, record, mistake == HostMistake::kIgnoresStrides);
    if (mistake == HostMistake::kKeyInBf16) {
      Tensor& k = call.inputs.at("k");
      for (std::int64_t i = 0; i < k.size(); ++i) {
        k.set(i, call::round_to(call::DType::kBF16, k[i]));
      }
    }
    const contract::Contract& contract = contract::find_contract(gpu::contract_of(call));
    call::TensorMap outputs =
        calls::stored(call, contract, verdict::exact_outputs(delta::slice(), call));
    write(*args, call, outputs, mistake);
    return GOLDENRULE_GPU_OK;
  };
}

}  // namespace goldenrule::test
