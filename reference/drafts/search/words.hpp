// SPDX-License-Identifier: Apache-2.0
//
// What a point does, as the end of a sentence about a kernel.
#pragma once

#include <string>

#include "reference/drafts/search/points.hpp"

namespace goldenrule::drafts {

/// "accepts where u <= p, and counts all that pass".
[[nodiscard]] std::string words(const CountPoint& point);
[[nodiscard]] std::string words(const TokenPoint& point);

}  // namespace goldenrule::drafts
