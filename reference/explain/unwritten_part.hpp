// SPDX-License-Identifier: Apache-2.0
//
// The part of an output that nobody wrote: it holds 0 or what it held before the call, and nothing
// that fails outside it does. A part is given by the rows, heads and channels that it has; an
// output of which nothing that fails was written is no part (pattern.hpp says that).
#pragma once

#include <optional>
#include <string>

#include "reference/explain/failures.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::explain {

/// What an output held before the call: the pool that it goes back to. nullptr: not known.
[[nodiscard]] const call::Tensor* old_content(const call::Record& record,
                                              const std::string& output);

/// "final_state holds 0 in key channels k >= 64 ..."; nothing where no part of its own does, or,
/// unless `or_all`, all that fails.
[[nodiscard]] std::optional<std::string> unwritten_part(const verdict::Judgement& judgement,
                                                        const Failures& failures,
                                                        bool or_all = false);

}  // namespace goldenrule::explain
