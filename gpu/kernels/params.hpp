// SPDX-License-Identifier: Apache-2.0
//
// What a kernel is given: the arguments of goldenrule_gpu.h, validated and resolved, packed so that
// the constant bank holds few lines (each first touch of a line is a miss, and a decode step at
// B = 1 lasts two microseconds) and ordered by first use. Strides other than those of the states
// fit 31 bits of bytes (validated); every product with one is taken in 64 bits.
#pragma once

#include <cstdint>

#include "gpu/kernels/divisor.hpp"

namespace goldenrule::gpu {

/// The most tokens that verify.cuh takes: the columns of a matrix on the tensor cores.
inline constexpr int kVerifyTokens = 8;

/// Element types inside a kernel, as in goldenrule_gpu_dtype.
enum class Element : uint8_t { kF32 = 1, kF16 = 2, kBF16 = 3 };

/// A tensor [B,T,heads,(innermost)]. Strides in bytes and unsigned, so that a product with an index
/// is one widening multiplication.
struct TokenView {
  char* data;
  uint32_t row, token, head;
};

/// States [block,HV,outer,(innermost)]: outer is V in layout vk and K in layout kv.
struct StateView {
  void* data;
  int64_t block, head;  // strides in elements
  int32_t outer;
};

struct Params {
  // Where am I, and from which slot do I start?
  Divisor by_tiles;  // tiles: blocks a head, ceil(V / rows of a block)
  Divisor by_heads;  // HV
  Divisor by_group;  // HV / H for grouped heads, H for tiled ones
  int32_t tiles, HV, group;
  int32_t wave;  // blocks that the device holds at a time
  int32_t T, K, V, slots;
  int64_t pad_slot;
  const void* state_indices;
  const void* output_state_indices;
  const void* ssm_state_indices;
  const void* num_accepted_tokens;
  const void* accepted_tokens;
  int32_t ssm_row;  // strides of ssm_state_indices
  int32_t ssm_token;
  uint8_t wide_start, wide_output, wide_ssm, wide_num_accepted, wide_accepted;
  uint8_t disable_state_update;
  uint8_t tiled_heads;
  uint8_t gate_by_qk_head;
  uint8_t dependent;      // launched while the kernel in front may still run
  uint8_t prefetch_next;  // each block asks for the states of the block one wave on
  StateView state;
  // The tokens.
  TokenView q, k, v, gate, beta, o;
  const void* A_log;
  const void* dt_bias;
  uint32_t A_log_stride, dt_bias_stride;  // in bytes
  Element qk_type, v_type, gate_type, beta_type, o_type, A_log_type, dt_bias_type;
  uint8_t gate_kind, beta_kind, norm_kind, channel_gate;
  // Bytes of one asynchronous copy (16, 8 or 4) that the alignment of each tensor allows; 2: none.
  uint8_t q_unit, k_unit, v_unit, gate_unit, dt_bias_unit, o_unit;
  uint8_t vector_state;  // all states can be accessed in whole vectors of 16 bytes
  uint8_t dense_heads, bf16_state, kv_layout;  // for the choice of the kernel only
  float scale, l2_eps, softplus_beta, softplus_threshold, lower_bound;
  // What is written.
  StateView final_state;
  StateView intermediate;  // block = row stride of B
  int64_t intermediate_token;
};

}  // namespace goldenrule::gpu
