// SPDX-License-Identifier: Apache-2.0
//
// The numbers by which the host shares out the work of a call, in one row for each card that they
// were measured on (tools/bench_gpu/README.md). Only the blocks of a cluster of attention change
// bits of a result. Shapes of blocks are compiled into kernels (delta/recurrent/variants.hpp).
#pragma once

#include <cstdint>

namespace goldenrule::gpu {

struct Tuning {
  /// delta/recurrent/select.cpp.
  struct Tiles {
    /// From so many value rows for each multiprocessor on, a tile is tall: below two tiles of 64
    /// rows, low ones spread the rows over more of them.
    std::int64_t rows_for_tall;
    /// Low tiles of decode serve where they fill the waves so much better, although they do more
    /// for each row: at 8 rows of 32 heads, tall ones leave a third of two waves empty.
    double low_fill_better;
    /// States that are all written are fastest in few and long streams, from so many tokens and so
    /// many heads for each multiprocessor on: whole heads, one per multiprocessor (measured for
    /// T = 2, 4 and 8, fp32). Fewer heads would leave some without work for long. Bf16 states in
    /// [V,K] are faster with three: 64 rows of 4 and 8 tokens 123 and 199 us with one, 100 and 184.
    int write_bound_tokens;
    std::int64_t write_bound_heads;
  } tiles;
  /// delta/recurrent/resolve.cpp.
  struct Waves {
    /// Bytes of a wave of states that decode asks for ahead: they must not push out of L2 what is
    /// on its way to memory (of 60 MB; a wave of 17 MB pays, one of 26 MB costs a quarter).
    std::int64_t prefetched_bytes;
    /// How far ahead decode asks, in waves. A whole wave on, an H100 loses 8 % at 256 rows of 32
    /// heads (fp32: 391 us, at .5 to .7 361, at .8 366); an H200 loses 3 % where rows have drawn
    /// slots (276 and 267), else nothing. Below .5 both lose.
    double ahead;
    /// An MTP call of 1 / `alone_least_part` to `alone_most` waves holds much of the device for
    /// about one wave. Blocks of the next call and the states that they ask for take memory and
    /// places from it: 8.9 us became 10.9 with 8 rows of 2 tokens, 45 became 55 with all states
    /// kept; 1 and 64 rows gained.
    std::int64_t alone_least_part, alone_most;
  } waves;
  /// Cycles of a multiprocessor for a chunk (delta/prefill/sm90/gdn.cu).
  struct Gdn {
    double preparation, scan;
  } gdn;
  /// Cycles of a multiprocessor for a chunk (delta/prefill/sm90/kda.cu). That of sums is what takes
  /// the least time, not what it counts alone: beside the scan it is slower.
  struct Kda {
    double preparation_of_bounded, preparation_of_sums, preparation_by_levels;
    double scan_half, scan_whole;  ///< by blocks of 64 and of 128 values
  } kda;
  /// attention/table.cpp.
  struct Attention {
    /// Blocks of a call that leaves `splits` open, and the most of a cluster. Clusters do not fill
    /// a device with two blocks everywhere: 64 of 4 blocks took two turns where 64 of 2 took one,
    /// and a fifth more time. Nor do eight of 16 run side by side at full speed: on an H100 they
    /// take as long as eight of 8 for 16k keys (35 us), though a block has half of the tiles.
    std::int64_t blocks;
    int most_splits;
    /// So many clusters of kSplitsAlone blocks run at a time.
    std::int64_t alone;
  } attention;
};

/// Measured on an H200 (`ahead` on an H100, too), and used on every card.
inline constexpr Tuning kH200 = {.tiles = {.rows_for_tall = 128,
                                           .low_fill_better = 1.15,
                                           .write_bound_tokens = 4,
                                           .write_bound_heads = 8},
                                 .waves = {.prefetched_bytes = std::int64_t{20} << 20,
                                           .ahead = 0.7,
                                           .alone_least_part = 4,
                                           .alone_most = 2},
                                 .gdn = {.preparation = 1400, .scan = 1900},
                                 .kda = {.preparation_of_bounded = 4500,
                                         .preparation_of_sums = 8500,
                                         .preparation_by_levels = 13500,
                                         .scan_half = 1700,
                                         .scan_whole = 2900},
                                 .attention = {.blocks = 128, .most_splits = 8, .alone = 9}};

}  // namespace goldenrule::gpu
