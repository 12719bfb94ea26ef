// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of backward passes. Three kinds: a kernel that is right about another call; what a right
// kernel returns, changed; and a wrong step of the chain or of the adjoint (chain.hpp,
// variant.hpp). A mistake of the chain is made behind the kernel that is given, one of the adjoint
// in a kernel of its own.
#pragma once

#include <span>

#include "reference/calls/mistake.hpp"

namespace goldenrule::backward {

/// All of them, in the order of the documentation.
[[nodiscard]] std::span<const calls::Mistake> mistakes();

/// Rows of the table, by file.
std::span<const calls::Mistake> state_mistakes();
std::span<const calls::Mistake> output_mistakes();
std::span<const calls::Mistake> gate_sum_mistakes();
std::span<const calls::Mistake> adjoint_mistakes();
std::span<const calls::Mistake> gate_chain_mistakes();
std::span<const calls::Mistake> row_chain_mistakes();

}  // namespace goldenrule::backward
