// SPDX-License-Identifier: Apache-2.0
//
// Rows of attention and the keys that they see, in words.
#pragma once

#include <string>
#include <vector>

#include "reference/attention/visible/readings.hpp"

namespace goldenrule::attention {

/// "each query of heads 4 to 7 of request 1": of these rows, as far as requests and heads tell.
[[nodiscard]] std::string whose_words(const Plan& plan, const std::vector<Place>& rows);

/// "query 3, head 1 of request 0 sees positions 0 to 16 instead of 0 to 39"
[[nodiscard]] std::string interval_words(const Place& place, const KeyLine& line,
                                         const Interval& seen, const Interval& declared);

}  // namespace goldenrule::attention
