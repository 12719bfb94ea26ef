// SPDX-License-Identifier: Apache-2.0
//
// Verification of drafts in the forms that the other kernels have no argument for: rows of unequal
// length, trees, buffers of states of other rows or of another type, a second slot. Any K to 256,
// any V, type, layout and kind of gate, on the fp32 pipe; all tokens of a row at once.
//
// The closed form of token_weights.cuh holds for a tree when "the tokens before t" are its
// ancestors: with A(t) the ancestors of t and alpha(j..t] the product of the alphas on the path
// from j, without j, to t,
//
//     p_t = (alpha(..t] k^_t) . S_0 + sum_{j in A(t)} a_tj d_j      a_tj = (alpha(j..t] k^_t) .
//     k^_j d_t = beta_t (v_t - p_t) o_t = (alpha(..t] q^_t) . S_0 + sum_{j in A(t), t} b_tj d_j S_t
//     = alpha(..t] S_0 + sum_{j in A(t), t} alpha(j..t] k^_j d_j
//
// A chain is the tree in which each token continues the one before it. What stands on another
// branch is skipped, not multiplied by 0: a NaN there stays there. The register tile walks from
// token to token where these follow each other, and starts from S_0 again where they do not; so the
// slot of S_0 itself is written last.
#pragma once

#include "gpu/delta/recurrent/draft_rows.cuh"
#include "gpu/delta/recurrent/padding.cuh"
#include "gpu/delta/shared/step.cuh"
#include "gpu/ptx/grid_dependency.cuh"

namespace goldenrule::gpu::recurrent {

template <class C>
struct DraftStorage {
  static_assert(!C::kExact && C::kChannelGate && C::kChunks == 1, "one kernel for all calls");
  static_assert(C::kTokensPerRound <= 32, "a bit for each token");
  TokenStorage<C> tokens;
  int parent[C::kTokensPerRound];
  uint32_t before[C::kTokensPerRound];  // A(t), a bit for each token
};

/// Who continues whom. Barriers inside.
template <class C>
__device__ __forceinline__ void read_tree(const Params& p, BlockPlace at, int count,
                                          DraftStorage<C>& to) {
  const int t = static_cast<int>(threadIdx.x);
  if (t < count) {
    const int64_t parent = given_parent(p, at, t);
    to.parent[t] = is_parent(parent, t) ? static_cast<int>(parent) : -1;
  }
  __syncthreads();
  if (t < count) {
    uint32_t before = 0;
#pragma unroll 1
    for (int j = to.parent[t]; j >= 0; j = to.parent[j]) before |= 1u << j;
    to.before[t] = before;
  }
  __syncthreads();
}

/// weight[j][0][t] = a_tj and weight[j][1][t] = b_tj for the ancestors j of t, and for t itself;
/// k^ and q^ decayed from the start, per channel. Eight lanes take one k^_t or q^_t and walk up.
template <class C>
__device__ __forceinline__ void weigh_tree(int count, DraftStorage<C>& storage) {
  constexpr int kGroups = C::kThreads / kSumLanes;
  TokenStorage<C>& to = storage.tokens;
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  float left[C::kThreadChannels], right[C::kThreadChannels];
  // Every lane makes every round and every step: the shuffles are of whole warps.
#pragma unroll 1
  for (int base = 0; base < 2 * count; base += kGroups) {
    const int job = base + static_cast<int>(threadIdx.x) / kSumLanes;
    const bool active = job < 2 * count;
    const int half = active && job >= count ? 1 : 0;
    const int t = active ? job - half * count : 0;
    read_channels<C>(left, half == 1 ? to.q[t] : to.k[t], lane);
    int j = active ? t : -1;
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      const int from = j >= 0 ? j : 0;
      read_channels<C>(right, to.k[from], lane);
      float sum = 0.f;
#pragma unroll
      for (int e = 0; e < C::kThreadChannels; ++e) sum = fmaf(left[e], right[e], sum);
      sum = sum_over_row<1>(sum);
      if (j >= 0 && lane == 0) to.weight[j][half][t] = sum;
      read_channels<C>(right, to.alpha[from], lane);
#pragma unroll
      for (int e = 0; e < C::kThreadChannels; ++e) left[e] *= j >= 0 ? right[e] : 1.f;
      if (j >= 0) j = storage.parent[j];
    }
    if (active) {
      float* row = half == 1 ? to.q[t] : to.decayed_k[t];
#pragma unroll
      for (int e = 0; e < C::kThreadChannels; e += 4) {
        *reinterpret_cast<float4*>(row + C::channel(e, lane)) =
            make_float4(left[e], left[e + 1], left[e + 2], left[e + 3]);
      }
      if (half == 0 && lane == 0) to.decay[t] = 1.f;
    }
  }
  __syncthreads();
}

/// d_t and o_t of all tokens; d_t replaces v_t.
template <class C>
__device__ __forceinline__ void solve_tree(const Params& p, BlockPlace at, ThreadPlace thread,
                                           const StateTile<C>& tile, DraftStorage<C>& storage,
                                           int count) {
  TokenStorage<C>& tokens = storage.tokens;
  const Owner<C> owner(thread.lk);
  const int row = thread.warp * C::kWarpRows + C::row(owner.row, thread.lv);
  const bool stores_o =
      owner.half == 1 && owner.first && at.row0 + row < p.V && p.o.data != nullptr;
#pragma unroll 1
  for (int t = 0; t < count; ++t) {
    float y = product<C>(tile, StoredToken<C>{tokens, t, thread.lk}, thread.lk);
#pragma unroll 1
    for (uint32_t left = storage.before[t]; left != 0; left &= left - 1) {
      const int j = __ffs(static_cast<int>(left)) - 1;
      y = fmaf(tokens.weight[j][owner.half][t], tokens.v[j][row], y);
    }
    const float d = from_k_half<C>(tokens.beta[t] * (tokens.v[t][row] - y), thread);
    __syncwarp();  // all lanes have read v
    if (owner.half == 0 && owner.first) tokens.v[t][row] = d;
    __syncwarp();
    if (stores_o) {
      char* to = token_row(p.o, at.b, at.token0 + t, at.hv);
      store_element(to + (at.row0 + row) * element_size(p.o_type), p.o_type,
                    fmaf(tokens.weight[t][1][t], d, y));
    }
  }
}

/// The register tile on its way along the branches.
template <class C>
class TreeWalk {
  using State = typename C::State;

 public:
  __device__ TreeWalk(const Params& p, BlockPlace at, ThreadPlace thread, int64_t start,
                      const DraftStorage<C>& storage, StateTile<C>& tile)
      : p_(p),
        at_(at),
        thread_(thread),
        storage_(storage),
        tile_(tile),
        head_(state_head<State>(p.state, start, at.hv)),
        row0_(at.row0 + thread.warp * C::kWarpRows) {}

  /// The tile becomes the state after token t; -1: S_0.
  __device__ __forceinline__ void go_to(int t) {
    const uint32_t path = t < 0 ? 0 : storage_.before[t] | 1u << t;
    if ((done_ & ~path) != 0) {
      tile_.load(head_, p_.state.outer, row0_, thread_, p_);
      done_ = 0;
    }
#pragma unroll 1
    for (uint32_t left = path & ~done_; left != 0; left &= left - 1) {
      const int j = __ffs(static_cast<int>(left)) - 1;
      float d[C::kTileRows];
#pragma unroll
      for (int r = 0; r < C::kTileRows; ++r) {
        d[r] = storage_.tokens.v[j][thread_.warp * C::kWarpRows + C::row(r, thread_.lv)];
      }
      update<C>(tile_, StoredToken<C>{storage_.tokens, j, thread_.lk}, d);
    }
    done_ = path;
  }

  __device__ __forceinline__ void store_to_slot(int64_t slot) const {
    tile_.store(state_head<State>(p_.final_state, slot, at_.hv), p_.final_state.outer, row0_,
                thread_, p_);
  }

  /// Into row `row` of the buffer of states, after token t.
  __device__ __forceinline__ void keep(int64_t row, int t) const {
    const int64_t step = (p_.draft.kept_by_token != 0 ? at_.token0 : 0) + t;
    const int64_t head = row * p_.intermediate.block + step * p_.intermediate_token +
                         static_cast<int64_t>(at_.hv) * p_.intermediate.head;
    const auto type = static_cast<Element>(p_.draft.kept_type);
    if ((type == Element::kBF16) == (p_.bf16_state != 0)) {
      tile_.store(static_cast<State*>(p_.intermediate.data) + head, p_.intermediate.outer, row0_,
                  thread_, p_);
      return;
    }
    char* to = static_cast<char*>(p_.intermediate.data) + head * element_size(type);
    // Hidden as in StateTile.
    const int row0 = ptx::hidden_off_90(row0_), lk = ptx::hidden_off_90(thread_.lk);
#pragma unroll
    for (int r = 0; r < C::kTileRows; ++r) {
#pragma unroll
      for (int e = 0; e < C::kThreadChannels; ++e) {
        const int v = row0 + C::row(r, thread_.lv);
        const int k = C::channel(e, lk);
        if (v >= p_.V || k >= p_.K) continue;
        const int64_t outer = C::kVK ? v : k, inner = C::kVK ? k : v;
        store_element(to + (outer * p_.intermediate.outer + inner) * element_size(type), type,
                      tile_.s[r][e]);
      }
    }
  }

 private:
  const Params& p_;
  const BlockPlace at_;
  const ThreadPlace thread_;
  const DraftStorage<C>& storage_;
  StateTile<C>& tile_;
  const State* const head_;
  const int row0_;
  uint32_t done_ = 0;  // the tokens that the tile has taken
};

/// Every state that the row leaves.
template <class C>
__device__ __forceinline__ void leave_states(const Params& p, BlockPlace at, int64_t start,
                                             int count, TreeWalk<C>& walk,
                                             const DraftStorage<C>& storage) {
  const FinalWrite final = final_write(p, at.b, start, count);
  const FinalWrite second = second_write(p, at.b, start, count);
  const int64_t kept = kept_row(p, at.b);
  const bool in_place = p.final_state.data == p.state.data;
  int last = -1;  // the token whose state goes where S_0 is; after none of them it is there
#pragma unroll 1
  for (int t = -1; t < count; ++t) {
    const int64_t scattered = t >= 0 ? storage.tokens.slot[t] : kNoSlot;
    const bool keeps = t >= 0 && kept >= 0;
    const int64_t to_final = final.after == t + 1 ? final.slot : kNoSlot;
    const int64_t to_second = second.after == t + 1 ? second.slot : kNoSlot;
    if (keeps || scattered != kNoSlot || final.after == t + 1 || second.after == t + 1) {
      walk.go_to(t);
    }
    if (keeps) walk.keep(kept, t);
#pragma unroll 1
    for (int i = 0; i < 3; ++i) {
      // Not by index: what a loop indexes lies in local memory.
      const int64_t slot = i == 0 ? to_final : i == 1 ? to_second : scattered;
      if (slot == kNoSlot) continue;
      if (in_place && slot == start) {
        last = t;
      } else {
        walk.store_to_slot(slot);
      }
    }
  }
  if (last < 0) return;
  walk.go_to(last);
  walk.store_to_slot(start);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kMinBlocks)
    drafts_kernel(const __grid_constant__ Params p) {
  using State = typename C::State;
  extern __shared__ __align__(16) unsigned char shared[];
  auto& storage = *reinterpret_cast<DraftStorage<C>*>(shared);
  const ThreadPlace thread = this_thread<C>();
  BlockPlace at = place_of<C>(p, static_cast<int>(blockIdx.x));
  ptx::wait_for_dependencies();
  if (p.triggers != 0) ptx::launch_dependents();

  const Span span = tokens_of_row(p, at.b);
  at.token0 = span.first;
  const int64_t start = start_slot(p, at.b, request_start_slot(p, at.b));
  if (start == kNoSlot) {
    write_zeros<C>(p, at, span.count);
    return;
  }
  StateTile<C> tile;
  tile.load(state_head<State>(p.state, start, at.hv), p.state.outer,
            at.row0 + thread.warp * C::kWarpRows, thread, p);
  if (span.count > 0) {
    Tokens<C> prepared;
    prepared.request(p, at, 0, span.count, storage.tokens);
    read_tree(p, at, span.count, storage);
    ptx::commit_copies();  // none: convert() counts one group
    prepared.convert(p, at, 0, span.count, storage.tokens);
    weigh_tree(span.count, storage);
    solve_tree(p, at, thread, tile, storage, span.count);
  }
  TreeWalk<C> walk(p, at, thread, start, storage, tile);
  leave_states(p, at, start, span.count, walk, storage);
}

}  // namespace goldenrule::gpu::recurrent
