// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// The same numbers in a tier.
template <class S>
[[nodiscard]] Matrix<S> widen(const Matrix<double>& x) {
  return x.unaryExpr([](double y) { return S(y); });
}

}  // namespace goldenrule::delta
