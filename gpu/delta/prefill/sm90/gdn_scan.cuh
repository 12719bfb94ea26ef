// SPDX-License-Identifier: Apache-2.0
//
// The scan: one warpgroup carries S^T [64 values x 128 channels] in registers over the chunks of a
// sequence. With the factors and matrices of gdn_chunk.cuh, all products on bf16 with fp32 sums:
//
//     X   = v - key_decay (S k)                 S as bf16, k raw
//     Z   = X + X T'                            the diagonal of T in fp32, X as bf16
//     O   = query_decay (S q) + Z P             Z as bf16
//     S  <- e^G_C S + (update Z) k              the product's left operand as bf16
//
// With a gate per channel (C::kChannelGates) decays, norms, beta and scale are part of the operands
// of a record (kda_prepare.cuh): the same without the factors key_decay, query_decay and update,
// and e^G_C is one number for each channel, a column of S^T.
//
// Columns of X, Z and O are tokens, so all three are left operands of the next product without
// leaving their registers.
//
// The chain S k, X T', (Z) k decides the time. What is not part of it fills the tensor cores while
// the chain rounds and scales: the first half of S q while X is made, the second while Z is, and
// Z P while the new state is rounded. Nothing runs over the end of a chunk: ptxas then loses track
// of which registers are in use and serializes all products (C7514).
// Length: one class, whose steps hand each other registers, for both kinds of gates.
#pragma once

#include "gpu/common/ring.cuh"
#include "gpu/delta/prefill/sm90/chunks.cuh"
#include "gpu/delta/prefill/sm90/gdn_storage.cuh"
#include "gpu/delta/prefill/sm90/scan_products.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::prefill {

template <class C>
class GdnScan {
 public:
  __device__ __forceinline__ GdnScan(const Params& p, ScanStorage<C>& storage, int tile)
      : p_(p), storage_(storage), tile_(tile) {}

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int round = 0; item_of_round(round) < item_count<C>(p_); ++round) {
      scan(item_of<C>(p_, item_of_round(round)));
    }
    output_.wait_free(storage_.output_free[tile_]);
    announce({0, 0, 0, kNoMoreChunks});
  }

 private:
  using Prepared = typename C::Prepared;
  static constexpr int kEarlySteps = 4;         ///< of S q: as long as it takes to make X
  static constexpr int kHeld = C::kTokens / 2;  ///< elements of X, Z and O in a lane
  /// Products of the output that are on their way beside those of the chain.
  static constexpr int kBeside = C::kMaps ? 0 : 1;
  /// e^G_C, or where the lanes find it for their channels.
  using Decay = std::conditional_t<C::kChannelGates, const float*, float>;

  __device__ __forceinline__ void scan(const Item& item) {
    OutputPlace before{0, item.hv, item.first_value + tile_ * kTileColumns, 0};
    if (C::kMaps && item.tokens.count == 0) return;
    if (item.start == kNoSlot) {
      if constexpr (!C::kMaps) write_zeros(item, before.first_value);
      return;
    }
    const StateLane lane{before.first_value + 16 * warp_ + g_, 2 * t_};
    float state[kStateRegisters];
    start_state(item, before.first_value, lane, state);
    ptx::hold(state);  // else ptxas keeps parts of it in local memory
    uint32_t written[kHeld / 2], operand[32];
    as_operand(state, operand);
#pragma unroll
    for (int i = 0; i < kHeld / 2; ++i) written[i] = 0;
    is_map_ = item.is_map;
    ChunksOf<C> chunks(p_, item);
    if (!chunks.done()) begin_next();
    stores_ = true;
#pragma unroll 1
    while (true) {
      if (stores_) {
        store_where_wanted(item, chunks, lane, state);
        if (chunks.done()) break;
        chunks.start();
        decay(state, next_decay_);
      }
      const int first = item.tokens.first + chunks.begin();
      const int count = chunks.end() - chunks.begin();
      pass_chunk(state, operand, written, before, chunks);
      before.first = first;
      before.count = count;
    }
    if constexpr (C::kMaps) {
      keep_end(item, before.first_value, lane, state);
    } else {
      hand_over_output(written, before);
    }
  }

  /// The state in front of the item's first token.
  __device__ __forceinline__ void start_state(const Item& item, int first_value, StateLane lane,
                                              float (&state)[kStateRegisters]) {
    if constexpr (C::kMaps) {
      if (item.is_map) {
        load_identity(lane, state);
      } else if (item.segment > 0) {
#pragma unroll
        for (int i = 0; i < kStateRegisters; ++i) state[i] = 0.f;
      } else {
        load_state(p_, item.start, item.hv, lane, state);
        // The last segment may have written the slot before the first one reads it.
        keep_registers(map_of(p_, item.place, item.hv, first_value), thread_of_group(), state);
      }
    } else if (C::kFolds && item.place >= 0) {
      ptx::wait_for_dependencies();  // what is kept of segments is complete
      const int first = item.place - item.segment;
      if (item.segment == 0) {
        fetch_registers(map_of(p_, first, item.hv, first_value), thread_of_group(), state);
        return;
      }
      fetch_registers(ends_of(p_, first, item.hv, first_value), thread_of_group(), state);
#pragma unroll 1
      for (int map = first + 1; map < item.place; ++map) {
        fold(ends_of(p_, map, item.hv, first_value), state);
      }
    } else {
      load_state(p_, item.start, item.hv, lane, state);
    }
  }
  /// S <- S M + N, each of S and M as two terms; M comes in pieces as chunks do.
  __device__ __forceinline__ void fold(const char* ends, float (&state)[kStateRegisters]) {
    uint32_t high[32], low[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const TwoTerms x = two_terms(state[2 * i], state[2 * i + 1]);
      high[i] = x.high;
      low[i] = x.low;
    }
    float added[kStateRegisters];
    fetch_registers(ends, thread_of_group(), added);
#pragma unroll
    for (int i = 0; i < kStateRegisters; ++i) state[i] = 0.f;
    constexpr int kOperands = C::kTokens / 4;  // registers for the rows of a piece
#pragma unroll
    for (int i = 0; i < kPieces<C::kTokens>; ++i) {
      stage_.wait_full(storage_.stage_full);
      const char* high_rows = storage_.map_terms(stage_.index, false);
      ptx::hold(high);
      ptx::hold(low);
      ptx::hold(state);
      ptx::arrange_products();
      add_outer_products<kOperands>(state, high + kOperands * i, high_rows);
      add_outer_products<kOperands>(state, low + kOperands * i, high_rows);
      add_outer_products<kOperands>(state, high + kOperands * i,
                                    storage_.map_terms(stage_.index, true));
      ptx::commit_products();
      ptx::wait_for_products_but<0>();
      ptx::hold(state);
      ptx::arrive(storage_.stage_free[stage_.index]);
      stage_.advance();
    }
#pragma unroll
    for (int i = 0; i < kStateRegisters; ++i) state[i] += added[i];
  }
  /// The map of a segment, or what it makes of the start state.
  __device__ __forceinline__ void keep_end(const Item& item, int first_value, StateLane lane,
                                           const float (&state)[kStateRegisters]) const {
    if (item.is_map) {
      keep_map<C::kTokens>(map_of(p_, item.place, item.hv), lane, state);
    } else {
      keep_registers(ends_of(p_, item.place, item.hv, first_value), thread_of_group(), state);
    }
  }
  [[nodiscard]] __device__ __forceinline__ int thread_of_group() const {
    return 32 * warp_ + lane_;
  }

  /// Waits for the next chunk; in the shadow of the products of the one before.
  __device__ __forceinline__ void begin_next() {
    stage_.wait_full(storage_.stage_full);
    if constexpr (C::kChannelGates) {
      next_decay_ = storage_.prepared[stage_.index].decay;
    } else {
      next_decay_ = storage_.prepared[stage_.index].factors.decay;
    }
  }
  __device__ __forceinline__ Decay no_decay() const {
    if constexpr (C::kChannelGates) {
      return storage_.no_decay;
    } else {
      return 1.f;
    }
  }
  __device__ __forceinline__ void decay(float (&state)[kStateRegisters], Decay by) const {
#pragma unroll
    for (int i = 0; i < kStateRegisters; i += 4) {
      float2 x;
      if constexpr (C::kChannelGates) {
        x = *reinterpret_cast<const float2*>(by + 2 * i + 2 * t_);
      } else {
        x = make_float2(by, by);
      }
      state[i] *= x.x;
      state[i + 1] *= x.y;
      state[i + 2] *= x.x;
      state[i + 3] *= x.y;
    }
  }

  /// The state after begin() tokens, to checkpoints and behind the last token to its slot. One code
  /// for all: it is long, and the cache of instructions small.
  __device__ __forceinline__ void store_where_wanted(const Item& item, ChunksOf<C>& chunks,
                                                     StateLane lane,
                                                     const float (&state)[kStateRegisters]) const {
    if constexpr (C::kMaps) return;
    bool is_final = chunks.done() && item.is_last;
#pragma unroll 1
    while (true) {
      const StateView* view = &p_.checkpoints;
      int64_t block = chunks.take_checkpoint();
      if (block < 0) {
        if (!is_final) return;
        is_final = false;
        view = &p_.final_state;
        block = final_slot(p_, item.n, item.start);
        if (block == kNoSlot) return;
      }
      store_state(p_, *view, block, item.hv, lane, state);
    }
  }

  /// One chunk, whose decay the state has suffered. `written` is on the way in the output of the
  /// chunk before, which is handed over while the last products run; so is the next chunk begun,
  /// and the state decayed for it unless it is wanted as it is (stores_).
  __device__ __forceinline__ void pass_chunk(float (&state)[kStateRegisters],
                                             uint32_t (&operand)[32],
                                             uint32_t (&written)[kHeld / 2],
                                             const OutputPlace& before, ChunksOf<C>& chunks) {
    const int stage = stage_.index;
    const Prepared& prepared = storage_.prepared[stage];
    float y[kHeld], out[kHeld];
    uint32_t x[kHeld / 2];
    make_z(operand, y, x, out, prepared);
    begin_update(y, x, state, prepared);
    if constexpr (!C::kMaps) {
      begin_own_output(out, x, prepared);
      hand_over_output(written, before);
    }
    chunks.pass();
    stage_.advance();
    stores_ = chunks.done() || chunks.has_checkpoint();
    if (!chunks.done()) {
      if (!stores_) chunks.start();
      begin_next();
    }
    const Decay by = stores_ ? no_decay() : next_decay_;
    ptx::wait_for_products_but<kBeside>();
    ptx::hold(state);
    as_operand(state, operand);
    decay(state, by);
    if constexpr (!C::kMaps) {
      ptx::wait_for_products_but<0>();
      ptx::hold(out);
      as_operand(out, written);
    }
    ptx::arrive(storage_.stage_free[stage]);
  }

  /// Z in `y`, on the way through X; S q runs beside it, its second half still at the end.
  __device__ __forceinline__ void make_z(uint32_t (&operand)[32], float (&y)[kHeld],
                                         uint32_t (&x)[kHeld / 2], float (&out)[kHeld],
                                         const Prepared& prepared) {
    const char* k = key_tiles(prepared);
    const char* q = query_tiles(prepared);
    ptx::hold(operand);
    ptx::arrange_products();
    multiply_state<0, kKeySteps>(y, operand, k);
    ptx::commit_products();
    if constexpr (!C::kMaps) {
      multiply_state<0, kEarlySteps>(out, operand, q);
      ptx::commit_products();
    }
    load_values(x);
    if constexpr (C::kChannelGates) {
      ptx::wait_for_products_but<kBeside>();
      ptx::hold(y);
      subtract_from_values(y, x);
    } else {
      float2 factors[8];
      load_factors(prepared.factors.key_decay, factors);
      ptx::wait_for_products_but<kBeside>();
      ptx::hold(y);
      subtract_from_values(y, x, factors);
    }
    as_operand(y, x);
    ptx::hold(x);
    ptx::hold(y);
    ptx::arrange_products();
    multiply_tokens(y, x, prepared.t_tile());
    ptx::commit_products();
    if constexpr (!C::kMaps) {
      multiply_state<kEarlySteps, kKeySteps>(out, operand, q);
      ptx::commit_products();
    }
  }

  /// Begins S += (update Z) k; Z as operand is left in `x`.
  __device__ __forceinline__ void begin_update(float (&y)[kHeld], uint32_t (&x)[kHeld / 2],
                                               float (&state)[kStateRegisters],
                                               const Prepared& prepared) {
    constexpr int kOperands = kHeld / 2;
    if constexpr (C::kChannelGates) {
      ptx::wait_for_products_but<kBeside>();
      ptx::hold(y);
      as_operand(y, x);
      ptx::hold(x);
      ptx::hold(state);
      ptx::arrange_products();
      add_outer_products<kOperands>(state, x, prepared.update);
    } else {
      float2 factors[8];
      load_factors(prepared.factors.update, factors);
      ptx::wait_for_products_but<kBeside>();
      ptx::hold(y);
      as_operand(y, x);
      scale_columns(y, factors);
      uint32_t update[16];
      as_operand(y, update);
      ptx::hold(x);
      ptx::hold(update);
      ptx::hold(state);
      ptx::arrange_products();
      add_outer_products<kOperands>(state, update, storage_.k[stage_.index]);
    }
    ptx::commit_products();
  }

  /// Begins O += Z P behind S q.
  __device__ __forceinline__ void begin_own_output(float (&out)[kHeld],
                                                   const uint32_t (&x)[kHeld / 2],
                                                   const Prepared& prepared) {
    if constexpr (!C::kChannelGates) {
      float2 factors[8];
      load_factors(prepared.factors.query_decay, factors);
      ptx::wait_for_products_but<1>();
      ptx::hold(out);
      scale_columns(out, factors);
      ptx::hold(out);
      ptx::arrange_products();
    }
    multiply_tokens(out, x, prepared.p_tile());
    ptx::commit_products();
  }

  __device__ __forceinline__ const char* key_tiles(const Prepared& prepared) const {
    if constexpr (C::kChannelGates) {
      return prepared.keys();
    } else {
      return storage_.k[stage_.index];
    }
  }
  __device__ __forceinline__ const char* query_tiles(const Prepared& prepared) const {
    if constexpr (C::kChannelGates) {
      return prepared.queries();
    } else {
      return storage_.q[stage_.index];
    }
  }

  /// The tile of V in the layout of X.
  __device__ __forceinline__ void load_values(uint32_t (&v)[kHeld / 2]) const {
    const uint32_t tile = ptx::shared_address(storage_.v[stage_.index]) +
                          static_cast<uint32_t>(tile_ * kBytesOfTile<C::kTokens>);
    const int row = lane_ / 16 * 8 + lane_ % 8;
    const int piece = 2 * warp_ + lane_ / 8 % 2;
#pragma unroll
    for (int i = 0; i < C::kTokens / 16; ++i) {
      uint32_t x[4];
      ptx::load_transposed_matrices(x, tile + piece_offset(16 * i + row, piece));
#pragma unroll
      for (int m = 0; m < 4; ++m) v[4 * i + m] = C::kMaps && is_map_ ? 0u : x[m];
    }
  }

  /// The factors of this lane's columns, asked for before the products they wait for.
  __device__ __forceinline__ void load_factors(const float (&factors)[kChunk],
                                               float2 (&mine)[8]) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      mine[n] = *reinterpret_cast<const float2*>(&factors[8 * n + 2 * t_]);
    }
  }

  /// Hands the output of a chunk to the writer, rows of tokens; before the first chunk there is
  /// none.
  __device__ __forceinline__ void hand_over_output(const uint32_t (&out)[kHeld / 2],
                                                   const OutputPlace& to) {
    if (to.count == 0) return;
    output_.wait_free(storage_.output_free[tile_]);
    const uint32_t tile = ptx::shared_address(storage_.o[tile_]);
    const int row = lane_ / 16 * 8 + lane_ % 8;
    const int piece = 2 * warp_ + lane_ / 8 % 2;
#pragma unroll
    for (int i = 0; i < C::kTokens / 16; ++i) {
      uint32_t x[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) x[m] = out[4 * i + m];
      ptx::store_transposed_matrices(tile + piece_offset(16 * i + row, piece), x);
    }
    ptx::fence_async_readers();
    announce(to);
  }
  /// Every lane has written its part and says so.
  __device__ __forceinline__ void announce(const OutputPlace& to) {
    if (warp_ == 0 && lane_ == 0) storage_.outputs[tile_] = to;
    ptx::arrive(storage_.output_full[tile_]);
    output_.advance();
  }

  __device__ __forceinline__ void write_zeros(const Item& item, int first_value) const {
#pragma unroll 1
    for (int i = 32 * warp_ + lane_; i < 8 * item.tokens.count; i += C::kGroup) {
      char* row = token_row(p_.o, 0, item.tokens.first + i / 8, item.hv);
      ptx::store_16(row + first_value * 2 + i % 8 * 16, make_uint4(0, 0, 0, 0));
    }
  }

  const Params& p_;
  ScanStorage<C>& storage_;
  int tile_;
  int warp_ = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  int lane_ = static_cast<int>(threadIdx.x) % 32;
  int g_ = lane_ / 4, t_ = lane_ % 4;
  Ring<C::kStages> stage_;
  Ring<1> output_;
  Decay next_decay_ = no_decay();
  bool stores_ = false;
  bool is_map_ = false;  ///< of the item
};

}  // namespace goldenrule::gpu::prefill
