// SPDX-License-Identifier: Apache-2.0
//
// What a prefill kernel is given: the arguments of goldenrule_gpu.h, validated and resolved. One
// struct for all kernels of the group; names that the shared device code reads (common/gates.cuh,
// common/slots.cuh, shared/tokens.cuh) are those of the recurrent parameters.
//
// Token tensors are packed: TokenView::row is 0, and the token of token_row(view, 0, t, head) is
// counted over all sequences. Lengths, slots and checkpoints are read by sequences.cuh and
// checkpoints.cuh, which keep every one of them inside its buffer.
#pragma once

#include <cstdint>

#include "gpu/common/divisor.hpp"
#include "gpu/common/views.hpp"
#include "gpu/delta/prefill/segments.hpp"

namespace goldenrule::gpu::prefill {

struct Params {
  // Sizes and places.
  Divisor by_tiles;  // tiles: blocks per head, ceil(V / rows of a block)
  Divisor by_heads;  // HV
  Divisor by_group;  // HV / H for grouped heads, H for tiled ones
  int32_t tiles, HV, group;
  int32_t H, K, V;
  int32_t items;  // N * HV * tiles, where a kernel walks them
  int32_t total, N, slots, checkpoint_rows;
  // What only the device reads.
  const void* cu_seqlens;
  int64_t pad_slot;
  const void* state_indices;
  const void* output_state_indices;
  int32_t start_step, output_step;  // their strides, in elements
  const void* cu_checkpoints;
  const void* checkpoint_offsets;
  const void* start_positions;
  int64_t checkpoint_every;
  uint8_t wide_seqlens, wide_start, wide_output;
  uint8_t wide_cu_checkpoints, wide_offsets, wide_positions;
  uint8_t checkpoints_before;
  uint8_t disable_state_update;
  uint8_t tiled_heads;
  uint8_t gate_by_qk_head;
  uint8_t precise, never_split;
  // The tokens.
  TokenView q, k, v, gate, beta, o;
  const void* A_log;
  const void* dt_bias;
  uint32_t A_log_stride, dt_bias_stride;  // in bytes
  Element qk_type, v_type, gate_type, beta_type, o_type, A_log_type, dt_bias_type;
  uint8_t gate_kind, beta_kind, norm_kind, channel_gate;
  // Bytes of one asynchronous copy (16, 8 or 4) that the alignment of each tensor allows; 2: none.
  uint8_t q_unit, k_unit, v_unit, gate_unit, dt_bias_unit, o_unit;
  float scale, l2_eps, softplus_beta, softplus_threshold, lower_bound;
  // The states, all of one type and layout; no data: absent. final_state is state where that is
  // updated in place.
  StateView state, final_state, checkpoints;
  uint8_t bf16_state, kv_layout;
  uint8_t vector_state;  // all states can be accessed in whole vectors of 16 bytes
  uint8_t dense_heads;   // no gap between the rows of a state
  // The sequences from the longest on, where a kernel in front has sorted them; else null.
  const int32_t* order;
  // goldenrule_gpu_prefill_workspace_size bytes, aligned to 256.
  void* workspace;
  // Where sequences may be cut: the rule, and what of the workspace is for their segments.
  SplitRule split;
  int32_t most_segments;  // 0: none is cut
  SegmentListHead* segments;
  char* maps;
};

}  // namespace goldenrule::gpu::prefill
