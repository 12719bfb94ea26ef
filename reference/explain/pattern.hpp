// SPDX-License-Identifier: Apache-2.0
//
// Where a call fails, in the words of the person who wrote the kernel: which sequence, from which
// token or chunk on, which heads, which channels; and what stands there if it is something plain
// (NaN, zero, the neighbour's value). Read off the data alone: no mistake is assumed.
//
// The failing elements of a tensor are described as a box: the set of failing indices on each axis
// (index_set.hpp; tokens by the shapes that chunks give). Where the failing indices of one axis
// depend on those of another, both are described together (axes.hpp). What is mostly empty is no
// description, and is said to be scattered.
#pragma once

#include <span>
#include <string>

#include "reference/explain/failures.hpp"

namespace goldenrule::explain {

/// One line: "o: only sequence 2, from token 64 on (a multiple of 64); final_state: all elements".
/// Outputs that fail in the same way are named together, those that do not fail are left out;
/// empty when nothing fails. `failures` as find_failures gives them, for this record.
[[nodiscard]] std::string describe_pattern(const call::Record& record,
                                           const contract::Contract& contract,
                                           const verdict::Expectations& evaluation,
                                           std::span<const Failures> failures);

}  // namespace goldenrule::explain
