// SPDX-License-Identifier: Apache-2.0
//
// (I + A)^-1 of a chunk, A strictly lower triangular, as kernels compute it. The inverse is a
// polynomial, sum of (-A)^n for n below the size of the chunk, and so a product of few factors:
// (I - A)(I + A^2)(I + A^4).. For keys that resemble each other its terms are large, of both signs,
// and add up to little, so that what is rounded or cut off is larger than the result.
#pragma once

#include <cstdint>

#include "reference/delta/mistakes/variant.hpp"

namespace goldenrule::delta {

/// The inverse of I + A, where the whole chunk has `chunk` rows.
[[nodiscard]] Matrix<double> inverse_of(Inverse how, std::int64_t chunk, const Matrix<double>& A);

}  // namespace goldenrule::delta
