// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the kernels: the oracle behind the C interface, on arguments that lie in the
// host's memory. With it placing, launching and judging are tested where there is no GPU.
#pragma once

#include "tests/gpu/live_call.hpp"

namespace goldenrule::test {

/// What the stand-in gets wrong on purpose.
enum class HostMistake {
  kNone,
  kIgnoresStrides,   ///< takes every tensor for dense
  kWritesGaps,       ///< writes the padding of o
  kWritesLastSlot,   ///< the last slot of the pool, whoever names it
  kKeyInBf16,        ///< k rounded to bf16
  kLeavesLastToken,  ///< o of the last token is not written
};

/// Serves calls like `record`: op, mode and conventions are taken from it, all numbers, shapes and
/// places from the arguments.
[[nodiscard]] Kernel host_kernel(const call::Record& record,
                                 HostMistake mistake = HostMistake::kNone);

}  // namespace goldenrule::test
