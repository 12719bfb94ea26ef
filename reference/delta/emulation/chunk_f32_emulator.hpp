// SPDX-License-Identifier: Apache-2.0
//
// An honest chunked kernel in fp32, as torch and C++ code writes it: every number is a float and
// every operation a float operation. What such kernels are free to do is drawn from a seed:
//
//   - log gates cumulated in sequence, in a tree, or in fp64 and rounded once; decays are exp of
//     differences of the sums;
//   - the order of each sum: one random permutation, added up in sequence or in a tree; products
//     and sums fused or separate; products added onto what stands there, or to zero first;
//   - corrections from w and u, or from the residual;
//   - functions (exp, norm, sigmoid) wrong by up to the contract's errors, the same way throughout.
//
// It shares no code with the emulator from which budgets follow (chunk_emulator.hpp): budgets that
// it leaves are wrong.
#pragma once

#include <cstdint>

#include "reference/contract/contract.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Runs one lane in chunks of `chunk` tokens; functions and activations are those of `contract`.
/// `stream` names the lane; the kernel's choices depend on `seed` alone, so that all lanes of a
/// call are run by the same kernel. One that takes its corrections from the residual has no w and
/// u.
[[nodiscard]] FormResult<float> emulate_chunks_f32(
    const Lane<double>& lane, const Matrix<double>& v, const Matrix<double>& initial,
    const contract::Contract& contract, std::int64_t chunk, std::uint64_t seed,
    std::uint64_t stream, Keep keep = Keep::kOutputs);

}  // namespace goldenrule::delta
