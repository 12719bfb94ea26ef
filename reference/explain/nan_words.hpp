// SPDX-License-Identifier: Apache-2.0
//
// What a NaN says. A buffer that is filled with NaN before the call (torch.full, np.full) shows
// what a kernel did not write; but kernels compute NaN too, from 0 * Inf or Inf - Inf. The two
// differ in their bits:
//
//   filled     one payload everywhere, 0x7fc00000 in f32 where it comes from float("nan")
//   x86        the sign is set: 0xffc00000
//   CUDA       all fraction bits are set: 0x7fffffff
//
// and in their place: what is not written is missing for all heads of a token or slot, unless a
// tail is, which a computed NaN may be as well. So a NaN is called unwritten where whole rows of
// all heads hold one payload that neither x86 nor CUDA arithmetic makes; anything else may have
// been computed.
#pragma once

#include <string>

#include "reference/explain/failures.hpp"

namespace goldenrule::explain {

/// "all NaN: never written", "all NaN (computed or never written)" where whole rows are NaN, "all
/// NaN" where parts of rows are; empty unless every failing element is NaN.
[[nodiscard]] std::string nan_words(const call::Tensor& output, const Grid& grid,
                                    const Failures& failures);

}  // namespace goldenrule::explain
