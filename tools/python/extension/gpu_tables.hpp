// SPDX-License-Identifier: Apache-2.0
//
// The arguments of the operators by the aggregate that they fill. Extents and strides are not among
// them: they are read of the tensors (gpu_shapes.cpp).
#pragma once

#include <cstddef>
#include <span>

#include "gpu/goldenrule_gpu.h"
#include "tools/python/extension/gpu_arguments.hpp"

namespace goldenrule::python::gpu {

using Recurrent = goldenrule_gpu_recurrent_args;
using Prefill = goldenrule_gpu_prefill_args;
using Attention = goldenrule_gpu_attention_args;

using enum Kind;
// max_tokens: the most of a row beside cu_seqlens, T there.
inline constexpr Argument kRecurrentArguments[] = {
    {"q", kTensor, offsetof(Recurrent, q)},
    {"k", kTensor, offsetof(Recurrent, k)},
    {"v", kTensor, offsetof(Recurrent, v)},
    {"gate", kTensor, offsetof(Recurrent, gate)},
    {"beta", kTensor, offsetof(Recurrent, beta)},
    {"state", kTensor, offsetof(Recurrent, state)},
    {"o", kTensor, offsetof(Recurrent, o)},
    {"A_log", kTensor, offsetof(Recurrent, A_log)},
    {"dt_bias", kTensor, offsetof(Recurrent, dt_bias)},
    {"final_state", kTensor, offsetof(Recurrent, final_state)},
    {"state_indices", kTensor, offsetof(Recurrent, state_indices)},
    {"output_state_indices", kTensor, offsetof(Recurrent, output_state_indices)},
    {"intermediate_states", kTensor, offsetof(Recurrent, intermediate_states)},
    {"ssm_state_indices", kTensor, offsetof(Recurrent, ssm_state_indices)},
    {"num_accepted_tokens", kTensor, offsetof(Recurrent, num_accepted_tokens)},
    {"accepted_tokens", kTensor, offsetof(Recurrent, accepted_tokens)},
    {"ring_d", kTensor, offsetof(Recurrent, ring_d)},
    {"ring_k", kTensor, offsetof(Recurrent, ring_k)},
    {"ring_g", kTensor, offsetof(Recurrent, ring_g)},
    {"ring_indices", kTensor, offsetof(Recurrent, ring_indices)},
    {"ring_start", kTensor, offsetof(Recurrent, ring_start)},
    {"ring_count", kTensor, offsetof(Recurrent, ring_count)},
    {"ring_flush", kTensor, offsetof(Recurrent, ring_flush)},
    {"cu_seqlens", kTensor, offsetof(Recurrent, cu_seqlens)},
    {"parent_tokens", kTensor, offsetof(Recurrent, parent_tokens)},
    {"intermediate_state_indices", kTensor, offsetof(Recurrent, intermediate_state_indices)},
    {"checkpoint_state_indices", kTensor, offsetof(Recurrent, checkpoint_state_indices)},
    {"checkpoint_tokens", kTensor, offsetof(Recurrent, checkpoint_tokens)},
    {"op", kChoice, offsetof(Recurrent, op)},
    {"state_layout", kChoice, offsetof(Recurrent, state_layout)},
    {"gate_kind", kChoice, offsetof(Recurrent, gate_kind)},
    {"beta_kind", kChoice, offsetof(Recurrent, beta_kind)},
    {"qk_norm", kChoice, offsetof(Recurrent, qk_norm)},
    {"head_map", kChoice, offsetof(Recurrent, head_map)},
    {"gate_head", kChoice, offsetof(Recurrent, gate_head)},
    {"scale", kF64, offsetof(Recurrent, scale)},
    {"l2_eps", kF64, offsetof(Recurrent, l2_eps)},
    {"softplus_beta", kF64, offsetof(Recurrent, softplus_beta)},
    {"softplus_threshold", kF64, offsetof(Recurrent, softplus_threshold)},
    {"lower_bound", kF64, offsetof(Recurrent, lower_bound)},
    {"pad_slot", kI64, offsetof(Recurrent, pad_slot)},
    {"max_tokens", kI64, offsetof(Recurrent, T)},
    {"disable_state_update", kI32, offsetof(Recurrent, disable_state_update)},
    {"dependent_launch", kFlag, 0, GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH},
    {"trigger_early", kFlag, 0, GOLDENRULE_GPU_FLAG_TRIGGER_EARLY},
    {"state_ready", kFlag, 0, GOLDENRULE_GPU_FLAG_STATE_READY},
};

inline constexpr Argument kPrefillArguments[] = {
    {"q", kTensor, offsetof(Prefill, q)},
    {"k", kTensor, offsetof(Prefill, k)},
    {"v", kTensor, offsetof(Prefill, v)},
    {"gate", kTensor, offsetof(Prefill, gate)},
    {"beta", kTensor, offsetof(Prefill, beta)},
    {"cu_seqlens", kTensor, offsetof(Prefill, cu_seqlens)},
    {"o", kTensor, offsetof(Prefill, o)},
    {"A_log", kTensor, offsetof(Prefill, A_log)},
    {"dt_bias", kTensor, offsetof(Prefill, dt_bias)},
    {"state", kTensor, offsetof(Prefill, state)},
    {"final_state", kTensor, offsetof(Prefill, final_state)},
    {"state_indices", kTensor, offsetof(Prefill, state_indices)},
    {"output_state_indices", kTensor, offsetof(Prefill, output_state_indices)},
    {"checkpoints", kTensor, offsetof(Prefill, checkpoints)},
    {"cu_checkpoints", kTensor, offsetof(Prefill, cu_checkpoints)},
    {"checkpoint_offsets", kTensor, offsetof(Prefill, checkpoint_offsets)},
    {"start_positions", kTensor, offsetof(Prefill, start_positions)},
    {"op", kChoice, offsetof(Prefill, op)},
    {"state_layout", kChoice, offsetof(Prefill, state_layout)},
    {"gate_kind", kChoice, offsetof(Prefill, gate_kind)},
    {"beta_kind", kChoice, offsetof(Prefill, beta_kind)},
    {"qk_norm", kChoice, offsetof(Prefill, qk_norm)},
    {"head_map", kChoice, offsetof(Prefill, head_map)},
    {"gate_head", kChoice, offsetof(Prefill, gate_head)},
    {"checkpoint_form", kChoice, offsetof(Prefill, checkpoint_form)},
    {"scale", kF64, offsetof(Prefill, scale)},
    {"l2_eps", kF64, offsetof(Prefill, l2_eps)},
    {"softplus_beta", kF64, offsetof(Prefill, softplus_beta)},
    {"softplus_threshold", kF64, offsetof(Prefill, softplus_threshold)},
    {"lower_bound", kF64, offsetof(Prefill, lower_bound)},
    {"pad_slot", kI64, offsetof(Prefill, pad_slot)},
    {"checkpoint_every", kI64, offsetof(Prefill, checkpoint_every)},
    {"disable_state_update", kI32, offsetof(Prefill, disable_state_update)},
    {"dependent_launch", kFlag, 0, GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH},
    {"precise", kFlag, 0, GOLDENRULE_GPU_FLAG_PRECISE},
    {"never_split", kFlag, 0, GOLDENRULE_GPU_FLAG_NEVER_SPLIT},
};

inline constexpr Argument kAttentionArguments[] = {
    {"q", kTensor, offsetof(Attention, q)},
    {"k", kTensor, offsetof(Attention, k)},
    {"v", kTensor, offsetof(Attention, v)},
    {"k_cache", kTensor, offsetof(Attention, k_cache)},
    {"v_cache", kTensor, offsetof(Attention, v_cache)},
    {"o", kTensor, offsetof(Attention, o)},
    {"lse", kTensor, offsetof(Attention, lse)},
    {"cu_seqlens_q", kTensor, offsetof(Attention, cu_seqlens_q)},
    {"cu_seqlens_k", kTensor, offsetof(Attention, cu_seqlens_k)},
    {"kv_lens", kTensor, offsetof(Attention, kv_lens)},
    {"page_table", kTensor, offsetof(Attention, page_table)},
    {"page_indptr", kTensor, offsetof(Attention, page_indptr)},
    {"page_indices", kTensor, offsetof(Attention, page_indices)},
    {"q_offset", kTensor, offsetof(Attention, q_offset)},
    {"valid_q", kTensor, offsetof(Attention, valid_q)},
    {"mask", kChoice, offsetof(Attention, mask)},
    {"block_base", kChoice, offsetof(Attention, block_base)},
    {"block_kv", kChoice, offsetof(Attention, block_kv)},
    {"kv_layout", kChoice, offsetof(Attention, kv_layout)},
    {"head_map", kChoice, offsetof(Attention, head_map)},
    {"lse_base", kChoice, offsetof(Attention, lse_base)},
    {"lse_layout", kChoice, offsetof(Attention, lse_layout)},
    {"scale", kF64, offsetof(Attention, scale)},
    {"most_q", kI64, offsetof(Attention, most_q)},
    {"block", kI64, offsetof(Attention, block)},
    {"window_left", kI64, offsetof(Attention, window_left)},
    {"window_right", kI64, offsetof(Attention, window_right)},
    {"splits", kI64, offsetof(Attention, splits)},
    {"dependent_launch", kFlag, 0, GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH},
};

template <class Args>
inline constexpr std::span<const Argument> kArgumentsOf;
template <>
inline constexpr std::span<const Argument> kArgumentsOf<Recurrent> = kRecurrentArguments;
template <>
inline constexpr std::span<const Argument> kArgumentsOf<Prefill> = kPrefillArguments;
template <>
inline constexpr std::span<const Argument> kArgumentsOf<Attention> = kAttentionArguments;

class Tensors;

/// Fill an aggregate whose options are written: shapes are checked, tensors and extents written.
void fill(Tensors& tensors, Recurrent& args);
void fill(Tensors& tensors, Prefill& args);
void fill(Tensors& tensors, Attention& args);

}  // namespace goldenrule::python::gpu
