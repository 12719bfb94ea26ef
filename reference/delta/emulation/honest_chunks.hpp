// SPDX-License-Identifier: Apache-2.0
//
// One lane as an honest chunked kernel of a contract runs it: by the fp32 emulator where its
// operands are fp32, by the roundings of its table elsewhere. Every freedom is drawn from the seed.
#pragma once

#include <cstdint>
#include <span>

#include "reference/contract/contract.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/emulation/pieces.hpp"

namespace goldenrule::delta {

/// `contract` must be chunked; `positions` are those of run_in_pieces. The choices of the kernel
/// depend on `seed` alone, `stream` names the lane. Stages are there where no position is given.
[[nodiscard]] KeptForm<double> honest_chunks(const Lane<double>& lane, const Matrix<double>& v,
                                             const Matrix<double>& start,
                                             std::span<const std::int64_t> positions,
                                             const contract::Contract& contract, std::uint64_t seed,
                                             std::uint64_t stream, Keep keep = Keep::kOutputs);

}  // namespace goldenrule::delta
