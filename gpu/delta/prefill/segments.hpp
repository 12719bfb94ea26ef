// SPDX-License-Identifier: Apache-2.0
//
// Long sequences of few heads in segments. The rule is affine in the state: over the tokens of a
// segment every row of the state, the 128 channels of one value, becomes
//
//     s_end = s_start M + n,      M [128 x 128] of a head, N [V x 128] with the rows n,
//
// and the walk over the chunks finds both: N starts from zero, M from the rows of the identity with
// v = 0. So a kernel in front finds the maps of all segments at once, and each segment then folds
// the maps before it onto the start state and makes its outputs beside the others. Segment 0 needs
// no M, as its start is known; nothing is dropped, however far the state has decayed.
//
// M is kept as two bf16 terms, N in fp32, and S M is made of three products of such terms: its
// error is some 2^-16 of |S| |M|, below that of the walk.
//
// Whether and where a sequence is cut depends on its own length and on the number of heads, never
// on its neighbours: its bits do not either. The walks take 2.3 times the products of one, so they
// only pay where heads leave most multiprocessors idle.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gpu/common/divisor.hpp"

#ifndef GOLDENRULE_GPU_LEAST_SPLIT
#define GOLDENRULE_GPU_LEAST_SPLIT 4096  // the execution on a host uses less
#endif

namespace goldenrule::gpu::prefill {

/// Sequences of at least `from` tokens are cut into `parts` segments, or fewer, of `least` tokens.
struct SplitRule {
  int32_t parts = 1;
  int32_t from = 0, least = 0;
};

inline constexpr int32_t kLeastSplit = GOLDENRULE_GPU_LEAST_SPLIT;

/// `heads` of 128 values.
inline SplitRule split_rule(int64_t heads) {
  if (heads <= 8) return {.parts = 8, .from = kLeastSplit, .least = kLeastSplit / 8};
  if (heads <= 16) return {.parts = 4, .from = 2 * kLeastSplit, .least = kLeastSplit / 4};
  return {};
}

/// Tokens of every segment but the last, a multiple of 64; all of a sequence that is not cut.
GOLDENRULE_GPU_BOTH inline int32_t segment_tokens(const SplitRule& rule, int32_t count) {
  if (rule.parts == 1 || count < rule.from) return count;
  const int32_t even = ((count - 1) / rule.parts / 64 + 1) * 64;
  return even < rule.least ? rule.least : even;
}
GOLDENRULE_GPU_BOTH inline int32_t segments_of(const SplitRule& rule, int32_t count) {
  if (rule.parts == 1 || count < rule.from) return 1;
  return (count - 1) / segment_tokens(rule, count) + 1;
}

/// The most segments that sequences which are cut can have in all.
inline int64_t most_segments(const SplitRule& rule, int64_t total, int64_t sequences) {
  if (rule.parts == 1) return 0;
  return std::min(sequences, total / rule.from) * rule.parts;
}

/// A segment of a sequence that is cut. Its place in the list is that of its map.
struct SegmentPlace {
  int32_t n, segment, segments;
};
struct alignas(256) SegmentListHead {
  int32_t count;
};

inline constexpr int64_t kMapBytes = int64_t{128} * 128 * 4;  ///< M
/// N of V values, and M; segment 0 keeps the start state there.
GOLDENRULE_GPU_BOTH inline int64_t segment_bytes(int64_t V) {
  const int64_t rows = V * 128 * 4;
  return rows + (rows < kMapBytes ? kMapBytes : rows);
}

}  // namespace goldenrule::gpu::prefill
