// SPDX-License-Identifier: Apache-2.0
//
// The checkpoints of a sequence, one after the other:
//
//     CheckpointWalk walk(p, n, count);
//     for done = 0 .. count:  store_due(.. done ..)
//
// or, chunk by chunk, with the least of the chunk's end and walk.after() as the end of a chunk. A
// row that lies beyond the sequence or behind an earlier row is passed over.
#pragma once

#include "gpu/delta/prefill/sequences.cuh"

namespace goldenrule::gpu::prefill {

class CheckpointWalk {
 public:
  static constexpr int kNone = INT32_MAX;

  /// `count`: tokens of sequence n. Every thread that needs the walk makes its own.
  __device__ __forceinline__ CheckpointWalk(const Params& p, int n, int count)
      : p_(&p), n_(n), count_(count) {
    if (p.checkpoints.data == nullptr) return;
    rows_ =
        span_between(load_index(p.cu_checkpoints, p.wide_cu_checkpoints, n),
                     load_index(p.cu_checkpoints, p.wide_cu_checkpoints, n + 1), p.checkpoint_rows);
    find(0);
  }

  /// After how many tokens the next state is stored; kNone: no more.
  [[nodiscard]] __device__ __forceinline__ int after() const { return after_; }
  /// Its row of p.checkpoints.
  [[nodiscard]] __device__ __forceinline__ int row() const { return rows_.first + next_; }
  __device__ __forceinline__ void advance() {
    ++next_;
    find(after_);
  }

  /// The tokens that a row asks for; i: its place in the rows of sequence n.
  __device__ __forceinline__ static int64_t tokens_of_row(const Params& p, int n, int row, int i) {
    if (p.checkpoint_offsets != nullptr) {
      return load_index(p.checkpoint_offsets, p.wide_offsets, row);
    }
    const int64_t position =
        p.start_positions != nullptr ? load_index(p.start_positions, p.wide_positions, n) : 0;
    return tokens_to_multiple(position, p.checkpoint_every, p.checkpoints_before != 0, i);
  }

 private:
  /// From row next_ on, the first of at least `least` tokens.
  __device__ __forceinline__ void find(int least) {
    for (; next_ < rows_.count; ++next_) {
      const int64_t after = tokens_of_row(*p_, n_, rows_.first + next_, next_);
      if (after >= least && after <= count_) {
        after_ = static_cast<int>(after);
        return;
      }
    }
    after_ = kNone;
  }

  const Params* p_;
  int n_, count_;
  Span rows_{0, 0};
  int next_ = 0;
  int after_ = kNone;
};

/// Calls store(view, block) for where the state after `done` of `count` tokens goes: checkpoints,
/// and behind the last token the final slot, which is then forgotten. One copy of the code that
/// stores.
template <class Store>
__device__ __forceinline__ void store_due(const Params& p, CheckpointWalk& walk, int64_t& final,
                                          int done, int count, Store&& store) {
#pragma unroll 1
  while (true) {
    const StateView* view = &p.checkpoints;
    int64_t block = walk.row();
    if (walk.after() == done) {
      walk.advance();
    } else if (done == count && final != kNoSlot) {
      view = &p.final_state;
      block = final;
      final = kNoSlot;
    } else {
      return;
    }
    store(*view, block);
  }
}

}  // namespace goldenrule::gpu::prefill
