// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a chunk of eight as the warps of chunk8.cuh take them, and the warp that prepares
// them: rows of k and q as they are, copied two chunks ahead; and what the tokens are to each other
// (shared/mtp_tokens.cuh), found one chunk ahead. Both wait in shared memory, so what a chunk
// costs the warps that carry the state is reading it.
#pragma once

#include "gpu/delta/prefill/chunk8_rows.cuh"
#include "gpu/delta/prefill/copy_tiles.cuh"
#include "gpu/delta/shared/mtp_tokens.cuh"
#include "gpu/ptx/matrix.cuh"

namespace goldenrule::gpu::prefill {

/// One warp that prepares, and kWarps that carry 16 value rows each (shared/mtp_config.cuh).
struct Chunk8Config
    : recurrent::MtpConfig<recurrent::StateFormat{},
                           recurrent::Shape{.rows = 1, .warps = 2, .min_blocks = 2}> {
  static constexpr int kThreads = kWarp * (kWarps + 1);
  /// Copies begin so many chunks before their tokens are prepared.
  static constexpr int kAhead = 2;
  /// Chunks whose rows are there at a time: those on the way, the one that is prepared and the one
  /// that the state takes.
  static constexpr int kRowBuffers = kAhead + 2;
};

/// bf16 [token, channel], as two tiles of 64 channels.
using Chunk8Rows = char[2 * kBytesOfTile<kMtpTokens>];

/// Matrices of all tokens by 32 channels from 32 i on. x[m], row g, columns 2t and 2t + 1: token g,
/// channels 32 i + 8 m + 2t and on.
__device__ __forceinline__ void read_tokens(uint32_t (&x)[4], const Chunk8Rows& rows, int i,
                                            int lane_id) {
  ptx::load_matrices(x, ptx::shared_address(rows) +
                            static_cast<uint32_t>(i / 2 * kBytesOfTile<kMtpTokens>) +
                            piece_offset(lane_id % 8, i % 2 * 4 + lane_id / 8));
}
/// The same transposed: tokens 2t and 2t + 1, channel 32 i + 8 m + g.
__device__ __forceinline__ void read_channels(uint32_t (&x)[4], const Chunk8Rows& rows, int i,
                                              int lane_id) {
  ptx::load_transposed_matrices(x, ptx::shared_address(rows) +
                                       static_cast<uint32_t>(i / 2 * kBytesOfTile<kMtpTokens>) +
                                       piece_offset(lane_id % 8, i % 2 * 4 + lane_id / 8));
}

/// What the tokens of a chunk are to each other and to the state, names as in mtp_tokens.cuh.
struct alignas(16) Chunk8Weights {
  float weight[kMtpTokens][2][kMtpTokens];  // [j][0][t] = a_tj, [j][1][t] = b_tj
  float alpha[kMtpTokens], beta[kMtpTokens], k_factor[kMtpTokens];
  float k_from_start[kMtpTokens], q_from_start[kMtpTokens];
};

/// Lifetime: the rows of chunk r are written while chunk r - kAhead is prepared, its weights while
/// the state takes chunk r - 1; a barrier of the block ends each chunk.
template <class C>
struct Chunk8Storage {
  alignas(128) Chunk8Rows k[C::kRowBuffers], q[C::kRowBuffers];
  Chunk8Weights weights[2];
  float kept[C::kWarps][kStateRegisters][kWarp];  // a state while another is made of it
  uint64_t meeting;                               // of all threads, between chunks
};

template <class C>
class Chunk8Preparation {
 public:
  __device__ __forceinline__ Chunk8Preparation(const Params& p, BlockPlace at, Span span,
                                               Fragment lane, Chunk8Storage<C>& storage)
      : p_(p), at_(at), span_(span), lane_(lane), storage_(storage) {}

  /// Chunks 0, 1, .. in turn.
  __device__ __forceinline__ void prepare(int chunk) {
    if (chunk == 0) {
#pragma unroll
      for (int i = 0; i < C::kAhead; ++i) copy_rows(i);
      request(0);
    }
    copy_rows(chunk + C::kAhead);
    recurrent::MtpTokens<C> tokens = next_;
    request(chunk + 1);
    ptx::wait_for_copies_but<C::kAhead>();
    __syncwarp();
    const int lane_id = 4 * lane_.g + lane_.t;
    const int buffer = chunk % C::kRowBuffers;
#pragma unroll
    for (int i = 0; i < kHeadKeys / 32; ++i) {
      uint32_t k[4], q[4];
      read_tokens(k, storage_.k[buffer], i, lane_id);
      read_tokens(q, storage_.q[buffer], i, lane_id);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        tokens.k[2 * i + half] = make_uint2(k[2 * half], k[2 * half + 1]);
        tokens.q[2 * i + half] = make_uint2(q[2 * half], q[2 * half + 1]);
      }
    }
    tokens.finish(p_, lane_);
    store(tokens, storage_.weights[chunk % 2]);
  }

 private:
  [[nodiscard]] __device__ __forceinline__ int count_of(int chunk) const {
    return tokens_of_chunk(chunk, span_.count);
  }
  /// A group of copies for each chunk, also where there is nothing to copy.
  __device__ __forceinline__ void copy_rows(int chunk) {
    const int count = count_of(chunk);
    if (count > 0) {
      const int first = span_.first + chunk * kMtpTokens;
      const int buffer = chunk % C::kRowBuffers;
      copy_tiles<2, kWarp, kMtpTokens>(storage_.k[buffer], token_row(p_.k, 0, first, at_.h),
                                       p_.k.token, count);
      copy_tiles<2, kWarp, kMtpTokens>(storage_.q[buffer], token_row(p_.q, 0, first, at_.h),
                                       p_.q.token, count);
    }
    ptx::commit_copies();
  }
  __device__ __forceinline__ void request(int chunk) {
    const int count = count_of(chunk);
    if (count == 0) return;
    BlockPlace at = at_;
    at.token0 = span_.first + chunk * kMtpTokens;
    next_ = {};
    next_.request_scalars(p_, at, count, lane_);
  }
  __device__ __forceinline__ void store(const recurrent::MtpTokens<C>& tokens,
                                        Chunk8Weights& to) const {
    const int token = 2 * lane_.t;
    const auto store_pair = [&](float(&x)[kMtpTokens], const float(&of)[2]) {
      *reinterpret_cast<float2*>(&x[token]) = make_float2(of[0], of[1]);
    };
    store_pair(to.weight[lane_.g][0], tokens.k_weight);
    store_pair(to.weight[lane_.g][1], tokens.q_weight);
    if (lane_.t == 0) to.alpha[lane_.g] = tokens.alpha;
    if (lane_.g != 0) return;
    store_pair(to.beta, tokens.beta);
    store_pair(to.k_factor, tokens.k_factor);
    store_pair(to.k_from_start, tokens.k_from_start);
    store_pair(to.q_from_start, tokens.q_from_start);
  }

  const Params& p_;
  BlockPlace at_;
  Span span_;
  Fragment lane_;
  Chunk8Storage<C>& storage_;
  recurrent::MtpTokens<C> next_;
};

}  // namespace goldenrule::gpu::prefill
