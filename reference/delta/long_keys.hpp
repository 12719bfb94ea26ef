// SPDX-License-Identifier: Apache-2.0
//
// Why the exact result of a call may be of no use. One token multiplies what a state holds along
// its key by alpha (1 - beta |k|^2). With |k| = 1 and beta in [0, 1] (or [0, 2]) that is at most
// alpha in magnitude; with beta |k|^2 > 2 it is more than 1 where alpha is near 1, the state grows
// token by token, and so does what any rounding does to it. Kernels of the rule are given keys of
// norm 1 or normalise them; a call whose keys are longer has mostly lost one or the other.
#pragma once

#include <string>

#include "fixtures/call/record.hpp"

namespace goldenrule::delta {

/// A sentence about keys for which beta |k|^2 may exceed 2, with the longest of them; empty where
/// there are none, and for calls that normalise theirs.
[[nodiscard]] std::string long_keys(const call::Record& record);

}  // namespace goldenrule::delta
