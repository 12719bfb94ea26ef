// SPDX-License-Identifier: Apache-2.0
//
// The variants of the recurrent kernels as data: what each serves, what it is called, and the
// numbers that it is tuned by, chosen here and nowhere else (tools/bench_gpu/README.md measures).
#pragma once

#include <cstdint>

#include "gpu/delta/recurrent/params.hpp"
#include "gpu/delta/shared/shape.hpp"
#include "gpu/goldenrule_gpu.h"
#include "gpu/launch/tuning.hpp"

namespace goldenrule::gpu::recurrent {

/// The tuned shapes of a state format, each for small and for large grids.
struct Shapes {
  Shape one[2], few[2], few_write_bound[2], any[2];
  Shape few_channel[2], few_channel_write_bound[2];  ///< with one gate per key channel
};
inline constexpr Shape kWholeHead = {
    .rows = 1, .warps = 8, .min_blocks = 1, .one_block_per_sm = true};
inline constexpr Shapes kShapes[kStateFormats] = {
    // f32, [V,K]
    {.one = {{2, 2, 8}, {4, 4, 3}},
     .few = {{1, 2, 6}, {2, 2, 6}},
     .few_write_bound = {kWholeHead, kWholeHead},
     .any = {{2, 4, 4}, {4, 4, 4}},
     .few_channel = {{1, 4, 3}, {1, 8, 2}},
     .few_channel_write_bound = {kWholeHead, kWholeHead}},
    // f32, [K,V]
    {.one = {{2, 4, 5}, {4, 4, 3}},
     .few = {{1, 2, 6}, {2, 2, 6}},
     .few_write_bound = {kWholeHead, kWholeHead},
     .any = {{2, 4, 4}, {4, 4, 4}},
     .few_channel = {{1, 4, 3}, {1, 8, 2}},
     .few_channel_write_bound = {kWholeHead, kWholeHead}},
    // bf16, [V,K]
    {.one = {{4, 2, 6}, {4, 2, 6, 2}},
     .few = {{1, 2, 6}, {2, 2, 8}},
     .few_write_bound = {{1, 8, 3}, {1, 8, 3}},
     .any = {{2, 4, 4}, {4, 4, 4}},
     .few_channel = {{1, 4, 4}, {1, 8, 3}},
     .few_channel_write_bound = {{1, 8, 3}, {1, 8, 3}}},
    // bf16, [K,V]
    {.one = {{4, 4, 4}, {4, 2, 6, 2}},
     .few = {{1, 2, 6}, {2, 2, 8}},
     .few_write_bound = {kWholeHead, kWholeHead},
     .any = {{4, 4, 3}, {4, 4, 4}},
     .few_channel = {{1, 4, 4}, {1, 8, 3}},
     .few_channel_write_bound = {{1, 8, 3}, {1, 8, 3}}}};

/// What a kernel for K = 128 does. The first that serves a call is chosen, if its blocks divide V;
/// of what Params::draft asks for, those for few tokens know rows of tokens and of kept states.
enum class Work : std::uint8_t {
  kOneToken,             ///< decode.cuh: q and k in bf16 or f16, aligned to four elements
  kFewTokensWriteBound,  ///< as kFewTokens, with so many stored states that writing dominates
  kFewTokens,  ///< mtp.cuh, and with a gate per channel mtp_channel.cuh: 2 to 8, q and k in
               ///< bf16, aligned to four elements
  kAnyTokens,  ///< recurrent.cuh
};

/// What the choice depends on beside the parameters.
struct Load {
  std::int64_t rows;    ///< B
  int multiprocessors;  ///< of the device
};

struct Variant {
  Work work;
  const char* name;
  bool (*serves)(const Params&, const Load&);
};

constexpr bool reads_fours(const Params& p) {  // of two bytes
  return p.q_unit >= 8 && p.k_unit >= 8;
}
constexpr bool serves_one(const Params& p, const Load& /*load*/) {
  return p.draft.wanted == 0 && p.T == 1 && reads_fours(p) && p.qk_type != Element::kF32;
}
constexpr bool serves_few(const Params& p, const Load& /*load*/) {
  return p.draft.beyond_rows == 0 && p.T >= 2 && p.T <= kMtpTokens && reads_fours(p) &&
         p.qk_type == Element::kBF16;
}
/// Writing is then all that counts.
constexpr bool serves_few_write_bound(const Params& p, const Load& load) {
  const bool every_state = p.intermediate.data != nullptr ||
                           (p.ssm_state_indices != nullptr && p.disable_state_update == 0);
  constexpr Tuning::Tiles kTiles = kH200.tiles;
  return serves_few(p, load) && every_state && p.T >= kTiles.write_bound_tokens && p.V % 128 == 0 &&
         load.rows * p.HV * (p.V / 128) >= kTiles.write_bound_heads * load.multiprocessors;
}
constexpr bool serves_any(const Params& p, const Load& /*load*/) { return p.draft.wanted == 0; }

/// Replay: whether mtp_replay.cuh, or with a gate per key channel mtp_channel_replay.cuh, serves a
/// call with K = 128; replay.cuh serves all others. As many tokens as the ring has places for may
/// be pending, and a packed row may have no token of its own. A call without tokens reads none.
constexpr bool replays_few(const Params& p) {
  const int least = p.draft.bounds == nullptr ? p.T : 0;
  const bool one_gate_only = p.channel_gate != 0 && p.gate_kind == GOLDENRULE_GPU_GATE_NONE;
  const bool reads_tokens = p.T == 0 || (reads_fours(p) && p.qk_type == Element::kBF16);
  return !one_gate_only && p.T <= kMtpTokens && reads_tokens && p.ring.k_type == Element::kBF16 &&
         p.ring.k_unit >= 8 && p.ring.places - least <= kPendingTokens;
}
/// Its shape in every state format.
inline constexpr Shape kReplayShape = {.rows = 2, .warps = 2, .min_blocks = 6};
/// With a gate per key channel, for small and for large grids; fp32 and bf16 states.
inline constexpr Shape kChannelReplayShapes[2][2] = {{{1, 4, 3}, {1, 8, 2}},
                                                     {{1, 4, 4}, {1, 8, 3}}};

inline constexpr Variant kVariants[] = {
    {Work::kOneToken, "one", serves_one},
    {Work::kFewTokensWriteBound, "few_write_bound", serves_few_write_bound},
    {Work::kFewTokens, "few", serves_few},
    {Work::kAnyTokens, "any", serves_any},
};
inline constexpr int kWorks = 4;
static_assert(sizeof(kVariants) / sizeof(kVariants[0]) == kWorks);

}  // namespace goldenrule::gpu::recurrent
