// SPDX-License-Identifier: Apache-2.0
//
// What a kernel without tail handling does to the indices of an axis beyond its last full tile: it
// does not read them, or does not write them, or both. tails.cpp enumerates the sensible points of
// this space; the table names some of them.
#pragma once

#include <cstdint>

#include "reference/calls/mistake.hpp"

namespace goldenrule::delta {

enum class TailAxis : std::uint8_t { kKeys, kValues, kTokens, kHeads, kRows };

/// What the kernel reads of the tail: all, nothing, or of key channels nothing behind the norm.
enum class TailRead : std::uint8_t { kAll, kNothing, kNothingAfterNorm };

/// What stands in the tail of the outputs.
enum class TailHolds : std::uint8_t {
  kResults,    ///< what is computed
  kUnwritten,  ///< what was there
  kZero,
  kFirst,  ///< the results of the first indices of the axis, in their order
  kLast,   ///< those of the last index of the last full tile
};

/// The outputs whose tail it is.
enum class TailOf : std::uint8_t { kAll, kO, kStates };

/// In place of a width: 128, or the largest power of two in an extent up to that.
inline constexpr std::int64_t kLargestTile = 0;

struct Tail {
  TailAxis axis;
  std::int64_t tile;  ///< its width
  TailRead read = TailRead::kAll;
  TailHolds holds = TailHolds::kUnwritten;
  TailOf of = TailOf::kAll;
  bool operator==(const Tail&) const = default;
};

/// Where the tail begins on an axis of `extent`; extent: there is none.
[[nodiscard]] std::int64_t tail_begin(std::int64_t extent, std::int64_t tile);
/// Whether the call has such a tail and another index that is in none.
[[nodiscard]] bool has_tail(const call::Record& record, TailAxis axis, std::int64_t tile);
[[nodiscard]] call::TensorMap with_tail(const call::Record& record, const calls::Kernel& kernel,
                                        const Tail& tail);

template <Tail kTail>
bool tail_applies(const call::Record& record) {
  return has_tail(record, kTail.axis, kTail.tile);
}
template <Tail kTail>
call::TensorMap commit_tail(const call::Record& record, const calls::Kernel& kernel) {
  return with_tail(record, kernel, kTail);
}

/// Tails with a name in the table: v_tail_unwritten, v_tail_garbage, k_tail_ignored,
/// head_tail_unwritten and tail_chunk_dropped.
inline constexpr Tail kVTailUnwritten{TailAxis::kValues, kLargestTile};
inline constexpr Tail kVTailGarbage{TailAxis::kValues, kLargestTile, TailRead::kAll,
                                    TailHolds::kFirst};
inline constexpr Tail kKTailIgnored{TailAxis::kKeys, kLargestTile, TailRead::kNothing,
                                    TailHolds::kResults};
inline constexpr Tail kHeadTailUnwritten{TailAxis::kHeads, kLargestTile};
inline constexpr Tail kTailChunkDropped{TailAxis::kTokens, 64, TailRead::kNothing,
                                        TailHolds::kUnwritten, TailOf::kO};
inline constexpr Tail kNamedTails[]{kVTailUnwritten, kVTailGarbage, kKTailIgnored,
                                    kHeadTailUnwritten, kTailChunkDropped};

}  // namespace goldenrule::delta
