// SPDX-License-Identifier: Apache-2.0
//
// Prefill as exact as the recurrent kernels, for K = 128 and one gate per key channel: the closed
// form of MTP (shared/mtp_channel_products.cuh), eight tokens at a time along a sequence. All
// operands are three bf16 terms of an fp32 number, so results keep the contracts of the recurrent
// kernels whatever type the tokens came in.
//
// A block is a head of one sequence and 64 value rows: four warps carry the state of 16 rows each
// in registers, and four more prepare what all rows share. With 1,024 gates, 9,216 products of the
// triangle and 18 KB of operands for eight tokens they have as much to do as the others, so they
// work beside them, one step ahead, and the copies of the rows begin one chunk before that.
//
// A step ends where a state is wanted: at the end of a chunk, or at a checkpoint within it, for
// which the keys are decayed anew and the state in front of the chunk is taken up again. Chunks are
// counted from the start of the sequence, so a checkpoint changes no bit of anything else, and has
// the bits of a call that ends there.
#pragma once

#include "gpu/delta/prefill/begin.cuh"
#include "gpu/delta/prefill/checkpoints.cuh"
#include "gpu/delta/prefill/chunk8_rows.cuh"
#include "gpu/delta/prefill/padding.cuh"
#include "gpu/delta/shared/mtp_channel_products.cuh"
#include "gpu/delta/shared/mtp_solve.cuh"

namespace goldenrule::gpu::prefill {

/// kThreads prepare, and as many carry the state.
struct Chunk8ChannelConfig
    : recurrent::MtpChannelConfig<recurrent::StateFormat{},
                                  recurrent::Shape{.rows = 1, .warps = 4, .min_blocks = 1}> {
  static constexpr bool kExact = false;  ///< the last block of a head may have fewer value rows
  static constexpr int kBarrier = 1;     ///< of the threads that prepare (shared/tokens.cuh)
  static constexpr int kRoles = 2;
  /// Chunks that are there at a time: on the way, prepared, and passed by the state.
  static constexpr int kChunks = 3;
};

/// `end` of `count` tokens of a chunk, whose state is wanted.
struct Chunk8Step {
  int chunk = 0, count = 0, end = 0;
  bool begins = false;  // the first step of the chunk
  int turn = 0;         // 0, 1, 0, ..
};

/// The steps of a sequence, one after the other.
class Chunk8Steps {
 public:
  __device__ __forceinline__ Chunk8Steps(const Params& p, int n, int count)
      : walk_(p, n, count), count_(count) {}

  [[nodiscard]] __device__ __forceinline__ bool done() const {
    return tokens_of_chunk(chunk_, count_) == 0;
  }
  /// Not when done.
  __device__ __forceinline__ Chunk8Step next() {
    Chunk8Step step{.chunk = chunk_, .count = tokens_of_chunk(chunk_, count_)};
    const int before = chunk_ * kMtpTokens;
    while (walk_.after() <= before + end_) walk_.advance();  // stored behind the last step
    step.begins = end_ == 0;
    const int wanted = walk_.after() - before;
    end_ = wanted < step.count ? wanted : step.count;
    step.end = end_;
    step.turn = turn_;
    turn_ ^= 1;
    if (end_ == step.count) {
      ++chunk_;
      end_ = 0;
    }
    return step;
  }
  /// At the first checkpoint behind the step before, or at one that it ends at.
  __device__ __forceinline__ CheckpointWalk& checkpoints() { return walk_; }

 private:
  CheckpointWalk walk_;
  int count_;
  int chunk_ = 0, end_ = 0, turn_ = 0;
};

/// Lifetime: the rows of chunk r + 1 are copied while chunk r is prepared and the state passes
/// chunk r - 1; the keys of a step are made while the state is at the step before. A barrier of the
/// block ends each step.
template <class C>
struct Chunk8ChannelStorage {
  recurrent::ChannelTokens<C> tokens[C::kChunks];
  recurrent::DecayedKeys<C> keys[2];
  float kept[C::kWarps][kStateRegisters][kWarp];  // a state while another is made of it
  uint64_t meeting;                               // of all threads, between steps

  __device__ __forceinline__ recurrent::ChannelTokens<C>& of(int chunk) {
    return tokens[chunk % C::kChunks];
  }
};

/// The first kThreads threads of the block.
template <class C>
class Chunk8ChannelPreparation {
 public:
  __device__ __forceinline__ Chunk8ChannelPreparation(const Params& p, BlockPlace at, Span span,
                                                      Chunk8ChannelStorage<C>& storage)
      : p_(p), at_(at), count_(span.count), storage_(storage) {
    at_.token0 = span.first;
  }

  __device__ __forceinline__ void prepare(const Chunk8Step& step) {
    auto& tokens = storage_.of(step.chunk);
    if (step.begins) {
      if (step.chunk == 0) request(0);
      recurrent::Tokens<C> here = next_;
      request(step.chunk + 1);
      here.convert(p_, at_, step.chunk * kMtpTokens, step.count, tokens);
      tokens.weigh(step.count);
    }
    tokens.decay_keys(step.end - 1, storage_.keys[step.turn]);
  }

 private:
  /// One group of copies for each chunk, also where there is nothing to copy.
  __device__ __forceinline__ void request(int chunk) {
    const int count = tokens_of_chunk(chunk, count_);
    if (count > 0) {
      next_.request(p_, at_, chunk * kMtpTokens, count, storage_.of(chunk));
    } else {
      ptx::commit_copies();
    }
  }

  const Params& p_;
  BlockPlace at_;
  int count_;
  Chunk8ChannelStorage<C>& storage_;
  recurrent::Tokens<C> next_;
};

template <class C>
class Chunk8ChannelState : public WarpRows<C, 4> {
 public:
  using WarpRows<C, 4>::WarpRows;

  __device__ __forceinline__ void read(recurrent::LaneSteps<C>& s, int step,
                                       Fragment /*lane*/) const {
    ptx::read_no_further_off_90();
#pragma unroll
    for (int i = 0; i < 8; ++i) s[0][i / 2 % 2][i / 4 * 2 + i % 2] = state_[8 * step + i];
  }

  /// Becomes the state after the tokens up to `end`, of which the keys are.
  __device__ __forceinline__ void follow(const recurrent::DecayedKeys<C>& keys,
                                         const LaneTokens<C> (&d)[1], int end) {
    const recurrent::Corrections<C> until = recurrent::Corrections<C>(d).until(end, lane_);
#pragma unroll
    for (int step = 0; step < C::kChannelSteps; ++step) {
      recurrent::LaneSteps<C> s;
      read(s, step, lane_);
      until.follow(s[0], keys, step, lane_);
#pragma unroll
      for (int i = 0; i < 8; ++i) state_[8 * step + i] = s[0][i / 2 % 2][i / 4 * 2 + i % 2];
    }
  }

 private:
  using WarpRows<C, 4>::lane_, WarpRows<C, 4>::state_;
};

/// A warp that carries the state along a sequence.
template <class C>
class Chunk8ChannelWalk {
 public:
  __device__ __forceinline__ Chunk8ChannelWalk(const Params& p, int n, BlockPlace at, Span span,
                                               int64_t start, Fragment lane,
                                               Chunk8ChannelStorage<C>& storage)
      : p_(p),
        at_(at),
        span_(span),
        lane_(lane),
        storage_(storage),
        start_(start),
        final_(final_slot(p, n, start)),
        state_(at, lane) {}

  /// Loads the state in front of all tokens, and stores it where it is wanted.
  __device__ __forceinline__ void begin(Chunk8Steps& steps) {
    state_.load(p_, start_, at_.hv);
    store(steps, 0);
  }

  __device__ __forceinline__ void pass(const Chunk8Step& step, Chunk8Steps& steps) {
    const int before = step.chunk * kMtpTokens;
    if (step.begins) {
      const auto& tokens = storage_.of(step.chunk);
      const recurrent::ChannelColumns<C> columns(tokens, lane_);
      LaneTokens<C> v, x, y;
      columns.values(state_.row() - at_.row0, lane_, v);
      recurrent::multiply_state(state_, tokens.columns, lane_, x, y);
      recurrent::solve_triangle<C, true>(step.count, columns, lane_, v, x, y, d_[0]);
      state_.store_output(p_, at_.hv, span_.first + before, step.count, y);
    }
    auto& kept = storage_.kept[lane_.warp];
    const bool again = step.end < step.count;
    if (again) state_.save(kept);
    state_.follow(storage_.keys[step.turn], d_, step.end - 1);
    store(steps, before + step.end);
    if (again) state_.restore(kept);
  }

 private:
  __device__ __forceinline__ void store(Chunk8Steps& steps, int done) {
    store_due(p_, steps.checkpoints(), final_, done, span_.count,
              [&](const StateView& view, int64_t block) { state_.store(p_, view, block, at_.hv); });
  }

  const Params& p_;
  BlockPlace at_;
  Span span_;
  Fragment lane_;
  Chunk8ChannelStorage<C>& storage_;
  int64_t start_;
  int64_t final_;
  Chunk8ChannelState<C> state_;
  LaneTokens<C> d_[1];
};

/// Warps whose rows lie behind V do nothing but meet the others.
template <class C>
__global__ void __launch_bounds__(C::kThreads* C::kRoles, C::kMinBlocks)
    chunk8_channel_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) unsigned char shared[];
  auto& storage = *reinterpret_cast<Chunk8ChannelStorage<C>*>(shared);
  Fragment lane = recurrent::this_fragment();
  const bool prepares = lane.warp < C::kWarps;
  lane.warp %= C::kWarps;
  const auto [at, n] = begin_sequence<C>(p);
  const Span span = tokens_of(p, n);
  const int64_t start = start_slot(p, n);
  if (start == kNoSlot) {
    if (prepares) write_zeros<C>(p, at, span);
    return;
  }
  const bool has_rows = at.row0 + C::kWarpRows * lane.warp < p.V;
  if (threadIdx.x == 0) ptx::initialize_barrier(storage.meeting, C::kThreads * C::kRoles);
  __syncthreads();
  Chunk8Steps steps(p, n, span.count);
  if (prepares) {
    Chunk8ChannelPreparation<C> preparation(p, at, span, storage);
#pragma unroll 1
    for (int i = 0; !steps.done(); ++i) {
      preparation.prepare(steps.next());
      meet(storage, i);
    }
  } else {
    Chunk8ChannelWalk<C> walk(p, n, at, span, start, lane, storage);
    if (has_rows) walk.begin(steps);
#pragma unroll 1
    for (int i = 0; !steps.done(); ++i) {
      meet(storage, i);
      const Chunk8Step step = steps.next();
      if (has_rows) walk.pass(step, steps);
    }
  }
}

}  // namespace goldenrule::gpu::prefill
