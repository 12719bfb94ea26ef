// SPDX-License-Identifier: Apache-2.0
//
// IEEE binary128 and its functions: 113 bits of significand, in which a Quad (106 bits) fits. On
// aarch64 Linux it is long double, and its functions are in libm; elsewhere it is __float128, and
// they are in libquadmath. Each of the two libraries is accurate to a few units of 2^-113, but
// their last places may differ. tests/delta/rule/test_functions.cpp compares what becomes of them
// with Multi.
#pragma once

#include <cfloat>

#if LDBL_MANT_DIG == 113
#include <cmath>
#else
#include <quadmath.h>
#endif

namespace goldenrule::scalar {

#if LDBL_MANT_DIG == 113
using Binary128 = long double;
namespace binary128 {
inline Binary128 exp(Binary128 x) { return std::exp(x); }
inline Binary128 exp2(Binary128 x) { return std::exp2(x); }
inline Binary128 log(Binary128 x) { return std::log(x); }
inline Binary128 log1p(Binary128 x) { return std::log1p(x); }
}  // namespace binary128
#else
using Binary128 = __float128;
namespace binary128 {
inline Binary128 exp(Binary128 x) { return expq(x); }
inline Binary128 exp2(Binary128 x) { return exp2q(x); }
inline Binary128 log(Binary128 x) { return logq(x); }
inline Binary128 log1p(Binary128 x) { return log1pq(x); }
}  // namespace binary128
#endif

}  // namespace goldenrule::scalar
