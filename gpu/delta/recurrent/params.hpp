// SPDX-License-Identifier: Apache-2.0
//
// What a kernel is given: the arguments of goldenrule_gpu.h, validated and resolved, packed so that
// the constant bank holds few lines (each first touch of a line is a miss, and a decode step at
// B = 1 lasts two microseconds) and ordered by first use.
#pragma once

#include <cstdint>

#include "gpu/common/divisor.hpp"
#include "gpu/common/views.hpp"
#include "gpu/delta/shared/shape.hpp"

namespace goldenrule::gpu::recurrent {

/// The most pending tokens of a ring that mtp_replay.cuh and mtp_channel_replay.cuh take.
inline constexpr int kPendingTokens = 16;
inline constexpr int kPendingGroups = kPendingTokens / kMtpTokens;

/// One number of each row; no data: none.
struct RowList {
  const void* data;
  int32_t step;  // in elements
  uint8_t wide;
};

/// Rings of tokens in the place of states: views [ring,place,head,(innermost)].
struct Rings {
  TokenView d, k, g;  // no d: the call has none
  RowList indices, start, count, flush;
  int32_t rings, places;
  Element d_type, k_type, g_type;
  uint8_t d_unit, k_unit, g_unit;  // as those of the tokens
};

/// What calls of version 3 have of their own (draft_rows.cuh).
struct Drafts {
  const void* bounds;   // no data: every row has T tokens
  const void* parents;  // no data: chains
  uint32_t parent_row, parent_token;
  RowList kept;  // rows of the buffer of intermediate states; no data: row b of the call
  RowList second_slot, second_after;
  int32_t tokens, kept_rows;
  uint8_t wide_bounds, wide_parents;
  uint8_t kept_by_token;  // the buffer has one row, of all packed tokens
  uint8_t kept_type;      // an Element
  uint8_t wanted;         // the call asks for any of this but for bounds beside rings
  uint8_t beyond_rows;    // for a tree, a second slot or states of another type
};

struct Params {
  // Where am I, and from which slot do I start?
  Divisor by_tiles;  // tiles: blocks per head, ceil(V / rows of a block)
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
  int32_t start_step, output_step;  // strides of the lists, in elements
  int32_t ssm_row, ssm_token;
  int32_t num_accepted_step, accepted_step;
  uint8_t wide_start, wide_output, wide_ssm, wide_num_accepted, wide_accepted;
  uint8_t disable_state_update;
  uint8_t tiled_heads;
  uint8_t gate_by_qk_head;
  uint8_t dependent;    // asks for states while the kernel in front may still run
  uint8_t triggers;     // lets the next kernel begin at once
  uint8_t state_ready;  // the kernel in front writes neither states nor start slots
  int32_t ahead;        // each block asks for the states of the block so many on; 0: for none
  StateView state;
  // The tokens.
  TokenView q, k, v, gate, beta;
  TokenView o;  // no data: not wanted
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
  Rings ring;  // behind all that the other kernels read
  Drafts draft;
};

}  // namespace goldenrule::gpu::recurrent
