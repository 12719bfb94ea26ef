// SPDX-License-Identifier: Apache-2.0
//
// A decode kernel in which a mistake can be planted, to show that the harness and the sanitizer see
// it. It is as plain as can be, and none of it is the library's: one convention (gated delta rule,
// softplus gate, layout vk, fp32 state in place, bf16 q, k, v, o, fp32 gates, int32 state_indices,
// everything dense, K up to 256).
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "gpu/goldenrule_gpu.h"

namespace goldenrule::test {

enum class Mistake {
  kNone,
  kVTailGarbage,           ///< rows beyond V are computed and stored
  kKTailIgnored,           ///< channels beyond the last 32 are not summed
  kRemainderTilesDropped,  ///< blocks take equal shares of the tiles, nobody takes the rest
  kInt32Offset,            ///< the offset of a slot wraps at 2^31 elements
  kPadWritesSlot0,         ///< a pad slot is taken for slot 0
  kSharedMemoryRace,       ///< no barrier between writing k^, q^ and reading them
  kUninitialisedRead,      ///< o is added to what was there
  kBarrierInBranch,        ///< only warps with a row of V come to a barrier
};

inline constexpr std::array<std::pair<Mistake, std::string_view>, 9> kMistakes{{
    {Mistake::kNone, "none"},
    {Mistake::kVTailGarbage, "v_tail_garbage"},
    {Mistake::kKTailIgnored, "k_tail_ignored"},
    {Mistake::kRemainderTilesDropped, "remainder_tiles_dropped"},
    {Mistake::kInt32Offset, "int32_offset"},
    {Mistake::kPadWritesSlot0, "pad_writes_slot0"},
    {Mistake::kSharedMemoryRace, "shared_memory_race"},
    {Mistake::kUninitialisedRead, "uninitialised_read"},
    {Mistake::kBarrierInBranch, "barrier_in_branch"},
}};

/// Launches the kernel with that mistake, in the place of goldenrule_gpu_recurrent.
using PlantedKernel = goldenrule_gpu_status (*)(const goldenrule_gpu_recurrent_args*, char*,
                                                std::size_t);
[[nodiscard]] PlantedKernel planted_kernel(Mistake mistake);

}  // namespace goldenrule::test
