// SPDX-License-Identifier: Apache-2.0
//
// The names of the precision tiers, for who asks for one and computes in none: the arithmetic of
// the widest one (tier.hpp) is a header that takes longer to compile than most files that would
// include it.
#pragma once

#include <string_view>

namespace goldenrule::scalar {

enum class Precision { kDouble, kQuad, kMulti };

[[nodiscard]] std::string_view name_of(Precision precision);  ///< "double", "quad", "multi"
[[nodiscard]] int bits_of(Precision precision);               ///< of the significand

}  // namespace goldenrule::scalar
