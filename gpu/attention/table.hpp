// SPDX-License-Identifier: Apache-2.0
//
// The dispatch table of attention, and the choice of an entry. The key of a call is
//
//     type of q, width of the dimensions, rows of a tile, blocks that share the keys of a request
//
// or the plain kernel. Everything else of a call is a runtime value: numbers of requests, lengths,
// widths and strides of tables, pages, masks, windows and scales of any size have one entry. A
// kernel per length of a context would be compiled again as the context grows.
#pragma once

#include <iterator>

#include "gpu/attention/params.hpp"
#include "gpu/launch/entry_name.hpp"
#include "gpu/launch/kernel_table.hpp"

namespace goldenrule::gpu::attention {

using KernelFunction = void (*)(Params);

/// What the host launches.
struct Code {
  KernelFunction kernel = nullptr;
  int threads = 0, shared_bytes = 0;
};

/// Kernels of the tensor cores; they are launched in clusters of several sizes.
struct Shape {
  Element type = Element::kBF16;
  int dim = 0, rows = 0;         ///< the widest K and V; rows of a tile
  Code shared = {}, alone = {};  ///< alone: for kSplitsAlone, if there is one
};

inline constexpr int kShapes = 8;
extern const Shape kTunedShapes[kShapes];  // decode.cu
extern const Code kPlainCode;              // plain.cu

inline constexpr int kSplitSizes = static_cast<int>(std::size(kSplits));
/// Half of the shapes have a kernel for kSplitsAlone. The plain kernel stands last.
inline constexpr int kTableSize = kShapes * kSplitSizes - kShapes / 2 + 1;

/// Blocks that share the keys of a request where a call leaves it open: as many as make about one
/// for each multiprocessor of the largest device (launch/tuning.hpp).
[[nodiscard]] int default_splits(std::int64_t N, std::int64_t H);

/// Which entry serves a call on this device, after kernels() is prepared for it; sets what of the
/// parameters depends on it, and the number of blocks.
struct Choice {
  int entry = 0;
  std::int64_t blocks = 0;
};
[[nodiscard]] Choice choose(Params& params, std::int64_t most_q, std::int64_t splits,
                            const Device& device);

KernelTable& kernels();

/// For programs that launch kernels otherwise (tests/gpu_host).
[[nodiscard]] KernelFunction entry_function(int i);

}  // namespace goldenrule::gpu::attention
