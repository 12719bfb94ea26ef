// SPDX-License-Identifier: Apache-2.0
//
// From an aggregate of the C interface to the parameters of a kernel: what all groups have, under
// the names that they share. Nothing here touches the device.
#pragma once

#include <algorithm>

#include "gpu/common/divisor.hpp"
#include "gpu/common/views.hpp"
#include "gpu/launch/check_args.hpp"
#include "gpu/launch/check_tensors.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/launch/versioned_args.hpp"

namespace goldenrule::gpu {

inline std::int32_t narrow(std::int64_t x) { return static_cast<std::int32_t>(x); }
inline std::uint32_t narrow_bytes(std::int64_t x) { return static_cast<std::uint32_t>(x); }
inline Element element(const Tensor& tensor) { return static_cast<Element>(tensor.dtype); }
inline std::uint8_t is_wide(const Tensor& tensor) {
  return static_cast<std::uint8_t>(tensor.dtype == GOLDENRULE_GPU_I64);
}

/// `axes`: of the tokens, a row and a token or only a packed token; then the heads.
inline TokenView token_view(const Tensor& tensor, const Strides& s, int axes) {
  const std::int64_t size = dtype_size(tensor.dtype);
  const auto at = [&](int axis) { return narrow_bytes(s[static_cast<std::size_t>(axis)] * size); };
  return {static_cast<char*>(tensor.data), axes == 2 ? at(0) : 0, at(axes - 1), at(axes)};
}

inline StateView state_view(const Tensor& tensor, std::int64_t block, std::int64_t head,
                            std::int64_t outer) {
  return {tensor.data, block, head, narrow(outer)};
}

/// Bytes of an asynchronous copy that divide the start and the length of every row.
inline std::uint8_t copy_unit(const TokenView& view, std::int32_t dtype, std::int64_t row) {
  const std::int64_t size = dtype_size(dtype);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data) % 16);
  for (const std::uint8_t unit : {std::uint8_t{16}, std::uint8_t{8}, std::uint8_t{4}}) {
    const bool fits = address % unit == 0 && row * size % unit == 0 && view.row % unit == 0 &&
                      view.token % unit == 0 && view.head % unit == 0;
    if (fits) return unit;
  }
  return 2;
}

template <class Group>
void pack_tokens(const typename Group::Args& a, const TensorStrides<Group>& strides,
                 typename Group::Params& p) {
  using Args = typename Group::Args;
  const auto view = [&](typename TensorStrides<Group>::Place tensor) {
    return token_view(a.*tensor.member, strides[tensor], Group::kTokenAxes);
  };
  p.q = view(&Args::q);
  p.k = view(&Args::k);
  p.v = view(&Args::v);
  p.gate = view(&Args::gate);
  p.beta = view(&Args::beta);
  p.o = view(&Args::o);
  p.qk_type = element(a.q);
  p.v_type = element(a.v);
  p.gate_type = element(a.gate);
  p.beta_type = element(a.beta);
  p.o_type = element(a.o);
  p.q_unit = copy_unit(p.q, a.q.dtype, a.K);
  p.k_unit = copy_unit(p.k, a.k.dtype, a.K);
  p.v_unit = copy_unit(p.v, a.v.dtype, a.V);
  p.gate_unit = copy_unit(p.gate, a.gate.dtype, a.K);
  p.o_unit = copy_unit(p.o, a.o.dtype, a.V);
}

template <class Group>
void pack_rules(const typename Group::Args& a, const TensorStrides<Group>& strides,
                typename Group::Params& p) {
  using Args = typename Group::Args;
  p.A_log = a.A_log.data;
  p.dt_bias = a.dt_bias.data;
  p.A_log_stride = narrow_bytes(strides[&Args::A_log][0] * dtype_size(a.A_log.dtype));
  p.dt_bias_stride = narrow_bytes(strides[&Args::dt_bias][0] * dtype_size(a.dt_bias.dtype));
  p.A_log_type = element(a.A_log);
  p.dt_bias_type = element(a.dt_bias);
  const TokenView bias_view{static_cast<char*>(a.dt_bias.data), 0, 0, p.dt_bias_stride};
  p.dt_bias_unit = copy_unit(bias_view, a.dt_bias.dtype, a.K);
  p.gate_by_qk_head = a.gate_head == GOLDENRULE_GPU_GATE_HEAD_QK;
  p.gate_kind = static_cast<std::uint8_t>(a.gate_kind);
  p.beta_kind = static_cast<std::uint8_t>(a.beta_kind);
  p.norm_kind = static_cast<std::uint8_t>(a.qk_norm);
  p.channel_gate = a.op == GOLDENRULE_GPU_KDA;
  p.scale = static_cast<float>(a.scale);
  p.l2_eps = static_cast<float>(a.l2_eps);
  p.softplus_beta = static_cast<float>(a.softplus_beta);
  p.softplus_threshold = static_cast<float>(a.softplus_threshold);
  p.lower_bound = static_cast<float>(a.lower_bound);
}

template <class Group>
void pack_heads(const typename Group::Args& a, typename Group::Params& p) {
  p.tiled_heads = a.head_map == GOLDENRULE_GPU_HEADS_TILED;
  p.HV = narrow(a.HV);
  p.group = narrow(p.tiled_heads ? a.H : a.HV / a.H);
  p.by_heads = Divisor::of(p.HV);
  p.by_group = Divisor::of(p.group);
  p.K = narrow(a.K);
  p.V = narrow(a.V);
}

/// 16-byte alignment of every row; absent tensors do not matter.
inline bool by_vectors(const StateView& view, std::int64_t token, std::int32_t dtype) {
  const std::int64_t unit = 16 / std::max(1, dtype_size(dtype));
  return view.data == nullptr ||
         (reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.block % unit == 0 &&
          view.head % unit == 0 && view.outer % unit == 0 && token % unit == 0);
}

/// No gap between the rows of a state.
template <class Args>
bool is_dense(const Args& a, const StateView& view) {
  const std::int64_t inner = a.state_layout == GOLDENRULE_GPU_STATE_VK ? a.K : a.V;
  return view.data == nullptr || view.outer == inner;
}

/// All states but those that only one group has.
template <class Group>
void pack_states(const typename Group::Args& a, const TensorStrides<Group>& strides,
                 typename Group::Params& p) {
  using Args = typename Group::Args;
  const Strides& s = strides[&Args::state];
  const Strides& f = strides[&Args::final_state];
  const std::int32_t dtype = Group::state_dtype(a);
  p.state = state_view(a.state, s[0], s[1], s[2]);
  p.final_state =
      a.final_state.data == nullptr ? p.state : state_view(a.final_state, f[0], f[1], f[2]);
  p.bf16_state = dtype == GOLDENRULE_GPU_BF16;
  p.kv_layout = a.state_layout == GOLDENRULE_GPU_STATE_KV;
  p.vector_state = by_vectors(p.state, 0, dtype) && by_vectors(p.final_state, 0, dtype);
  p.dense_heads = is_dense(a, p.state) && is_dense(a, p.final_state);
  p.state_indices = a.state_indices.data;
  p.wide_start = is_wide(a.state_indices);
  p.output_state_indices = a.output_state_indices.data;
  p.wide_output = is_wide(a.output_state_indices);
  p.slots = narrow(a.slots);
  p.pad_slot = a.pad_slot;
  p.disable_state_update = a.disable_state_update != 0;
}

/// A call that passed all checks, of the arguments and then of the current device.
template <class Group>
struct CheckedCall {
  typename Group::Args args;        ///< of this version, whatever the caller's is
  std::uint64_t given_size = 0;     ///< struct_size of the caller's
  typename Group::Params params{};  ///< but for what depends on the kernel and the device
  Device device;
};

template <class Group>
[[nodiscard]] Problem check_call(const typename Group::Args* given, CheckedCall<Group>& call) {
  const typename Group::Args& args = call.args;
  Problem problem = take_args<Group>(given, call.args);
  if (!problem.ok()) return problem;
  call.given_size = given->struct_size;
  problem = check_scalars<Group>(args);
  if (!problem.ok()) return problem;
  TensorStrides<Group> strides;
  problem = check_tensors<Group>(args, strides);
  if (!problem.ok()) return problem;
  if constexpr (requires { Group::settle(args, strides); }) Group::settle(args, strides);
  if constexpr (DeltaArgs<typename Group::Args>) {
    pack_heads<Group>(args, call.params);
    pack_tokens<Group>(args, strides, call.params);
    pack_rules<Group>(args, strides, call.params);
    pack_states<Group>(args, strides, call.params);
  }
  Group::pack_rest(args, strides, call.params);
  return current_device(call.device);
}

}  // namespace goldenrule::gpu
