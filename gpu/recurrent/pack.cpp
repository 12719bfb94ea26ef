// SPDX-License-Identifier: Apache-2.0
#include "gpu/recurrent/pack.hpp"

#include <algorithm>

namespace goldenrule::gpu::recurrent {
namespace {

std::int32_t narrow(std::int64_t x) { return static_cast<std::int32_t>(x); }
std::uint32_t bytes(std::int64_t x) { return static_cast<std::uint32_t>(x); }
Element element(const Tensor& tensor) { return static_cast<Element>(tensor.dtype); }

TokenView token_view(const Tensor& tensor, const Strides& s) {
  const std::int64_t size = dtype_size(tensor.dtype);
  return {static_cast<char*>(tensor.data), bytes(s[0] * size), bytes(s[1] * size),
          bytes(s[2] * size)};
}

StateView state_view(const Tensor& tensor, std::int64_t block, std::int64_t head,
                     std::int64_t outer) {
  return {tensor.data, block, head, narrow(outer)};
}

/// Bytes of an asynchronous copy that divide the start and the length of every row.
std::uint8_t copy_unit(const TokenView& view, std::int32_t dtype, std::int64_t row) {
  const std::int64_t size = dtype_size(dtype);
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data) % 16);
  for (const std::uint8_t unit : {std::uint8_t{16}, std::uint8_t{8}, std::uint8_t{4}}) {
    const bool fits = address % unit == 0 && row * size % unit == 0 && view.row % unit == 0 &&
                      view.token % unit == 0 && view.head % unit == 0;
    if (fits) return unit;
  }
  return 2;
}

void pack_tokens(const Args& a, const TensorStrides& strides, Params& p) {
  p.q = token_view(a.q, strides[&Args::q]);
  p.k = token_view(a.k, strides[&Args::k]);
  p.v = token_view(a.v, strides[&Args::v]);
  p.beta = token_view(a.beta, strides[&Args::beta]);
  p.o = token_view(a.o, strides[&Args::o]);
  p.qk_type = element(a.q);
  p.v_type = element(a.v);
  p.beta_type = element(a.beta);
  p.o_type = element(a.o);
  p.q_unit = copy_unit(p.q, a.q.dtype, a.K);
  p.k_unit = copy_unit(p.k, a.k.dtype, a.K);
  p.v_unit = copy_unit(p.v, a.v.dtype, a.V);
  p.o_unit = copy_unit(p.o, a.o.dtype, a.V);
}

void pack_gates(const Args& a, const TensorStrides& strides, Params& p) {
  p.gate = token_view(a.gate, strides[&Args::gate]);
  p.A_log = a.A_log.data;
  p.dt_bias = a.dt_bias.data;
  p.A_log_stride = bytes(strides[&Args::A_log][0] * dtype_size(a.A_log.dtype));
  p.dt_bias_stride = bytes(strides[&Args::dt_bias][0] * dtype_size(a.dt_bias.dtype));
  p.gate_type = element(a.gate);
  p.A_log_type = element(a.A_log);
  p.dt_bias_type = element(a.dt_bias);
  const TokenView bias_view{static_cast<char*>(a.dt_bias.data), 0, 0, p.dt_bias_stride};
  p.gate_unit = copy_unit(p.gate, a.gate.dtype, a.K);
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

/// 16-byte alignment of every row; absent tensors do not matter.
bool by_vectors(const StateView& view, std::int64_t token, std::int32_t dtype) {
  const std::int64_t unit = 16 / std::max(1, dtype_size(dtype));
  return view.data == nullptr ||
         (reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.block % unit == 0 &&
          view.head % unit == 0 && view.outer % unit == 0 && token % unit == 0);
}

bool is_dense(const StateView& view, std::int64_t inner) {
  return view.data == nullptr || view.outer == inner;
}

void pack_states(const Args& a, const TensorStrides& strides, Params& p) {
  const Strides& s = strides[&Args::state];
  const Strides& f = strides[&Args::final_state];
  const Strides& m = strides[&Args::intermediate_states];
  const bool vk = a.state_layout == GOLDENRULE_GPU_STATE_VK;
  const std::int64_t inner = vk ? a.K : a.V;
  p.state = state_view(a.state, s[0], s[1], s[2]);
  p.final_state =
      a.final_state.data == nullptr ? p.state : state_view(a.final_state, f[0], f[1], f[2]);
  p.intermediate = state_view(a.intermediate_states, m[0], m[2], m[3]);
  p.intermediate_token = m[1];
  p.bf16_state = a.state.dtype == GOLDENRULE_GPU_BF16;
  p.kv_layout = !vk;
  p.vector_state = by_vectors(p.state, 0, a.state.dtype) &&
                   by_vectors(p.final_state, 0, a.state.dtype) &&
                   by_vectors(p.intermediate, p.intermediate_token, a.state.dtype);
  p.dense_heads =
      is_dense(p.state, inner) && is_dense(p.final_state, inner) && is_dense(p.intermediate, inner);
}

void pack_slots(const Args& a, const TensorStrides& strides, Params& p) {
  const auto wide = [](const Tensor& tensor) {
    return static_cast<std::uint8_t>(tensor.dtype == GOLDENRULE_GPU_I64);
  };
  p.state_indices = a.state_indices.data;
  p.wide_start = wide(a.state_indices);
  p.output_state_indices = a.output_state_indices.data;
  p.wide_output = wide(a.output_state_indices);
  p.accepted_tokens = a.accepted_tokens.data;
  p.wide_accepted = wide(a.accepted_tokens);
  p.num_accepted_tokens = a.num_accepted_tokens.data;
  p.wide_num_accepted = wide(a.num_accepted_tokens);
  p.ssm_state_indices = a.ssm_state_indices.data;
  p.wide_ssm = wide(a.ssm_state_indices);
  p.ssm_row = narrow(strides[&Args::ssm_state_indices][0]);
  p.ssm_token = narrow(strides[&Args::ssm_state_indices][1]);
  p.slots = narrow(a.slots);
  p.pad_slot = a.pad_slot;
  p.disable_state_update = a.disable_state_update != 0;
}

}  // namespace

Params pack(const Args& a, const TensorStrides& strides) {
  Params p{};
  pack_tokens(a, strides, p);
  pack_gates(a, strides, p);
  pack_states(a, strides, p);
  pack_slots(a, strides, p);
  p.tiled_heads = a.head_map == GOLDENRULE_GPU_HEADS_TILED;
  p.HV = narrow(a.HV);
  p.group = narrow(p.tiled_heads ? a.H : a.HV / a.H);
  p.by_heads = Divisor::of(p.HV);
  p.by_group = Divisor::of(p.group);
  p.T = narrow(a.T);
  p.K = narrow(a.K);
  p.V = narrow(a.V);
  return p;
}

}  // namespace goldenrule::gpu::recurrent
