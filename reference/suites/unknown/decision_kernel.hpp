// SPDX-License-Identifier: Apache-2.0
//
// A draft acceptance kernel that takes one or two parts of its decisions (drafts/search/points.hpp)
// in another way: fp32, and the flat places of its memory, past the end of a tensor its last
// element. Of the search that is to find it, it has the names of the parts alone.
#pragma once

#include "reference/drafts/search/points.hpp"

namespace goldenrule::suites {

/// The outputs of a call of draft acceptance, of a kernel that decides so.
[[nodiscard]] call::TensorMap decide(const call::Record& call, const drafts::CountPoint& count,
                                     const drafts::TokenPoint& token);

}  // namespace goldenrule::suites
