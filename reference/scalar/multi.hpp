// SPDX-License-Identifier: Apache-2.0
//
// The widest tier: binary floating point of 168 bits (50 decimal digits), round to nearest even,
// with an exponent range in which exp(-2661) is an ordinary number. Expression templates are off:
// an operation is one call with one rounding, as in the other tiers.
#pragma once

#include <boost/multiprecision/cpp_bin_float.hpp>

namespace goldenrule::scalar {

using Multi = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<50>,
                                            boost::multiprecision::et_off>;

}  // namespace goldenrule::scalar
