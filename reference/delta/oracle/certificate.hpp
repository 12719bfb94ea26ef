// SPDX-License-Identifier: Apache-2.0
//
// The certificate: a rigorous bound on the error of the recurrent form in any tier, per value
// column, at the price of one squared norm per token.
//
// Let s_t be the exact column and z_t the computed one, e_t >= ||z_t - s_t||_2. One exact step is
// the affine map M(x) = (I - beta k k^T) D x + beta v k, D = diag(alpha), so
//
//   ||z_t - s_t|| <= ||M(z_{t-1}) - M(s_{t-1})|| + ||z_t - M(z_{t-1})||
//                 <= phi a e_{t-1} + local,     phi = ||I - beta k k^T||_2,  a = max alpha_i.
//
// For 0 <= beta ||k||^2 <= 2 and alpha <= 1 the factor is at most 1: errors never grow, they add.
//
// Local error. Write x' for the computed S' (a column), p^ for the computed x'^T k^, d^ for the
// computed d, and u for the unit roundoff (gamma = K u / (1 - K u)). With the errors of the
// prepared quantities (lane.hpp) |alpha^ - alpha| <= A, |k^ - k| <= h |k^|, |beta^ - beta| <= b
// |beta^|:
//
//   x'  = D z_{t-1} + a',           ||a'|| <= (A + u a) ||z_{t-1}||
//   p^  = x'^T k + r,               |r|    <= (gamma + h) ||x'|| ||k||       (Cauchy-Schwarz)
//   d^  = beta (v - p^)(1 + th),    |th|   <= b + 2u
//   z_t = x' + k^ d^ + c,           ||c||  <= u ||k|| |d^| + u ||z_t||
//
// Comparing with M(z_{t-1}) = (x' - a') + beta k (v - (x' - a')^T k):
//
//   z_t - M(z_{t-1}) = (I - beta k k^T) a' + (k^ - k) d^ + k (d^ - beta (v - x'^T k)) + c
//   local <= phi (A + u a) ||z_{t-1}|| + ||k|| [ (h + b + 2u + u) |d^|
//            + beta (gamma + h) ||x'|| ||k|| ] + u ||z_t||,       ||x'|| <= a ||z_{t-1}|| (1 + u).
//
// Products of two of these small numbers are covered by the factor 1 + 2^-6 on `local`, the double
// arithmetic of the bound itself (positive terms only) by the factor 1 + 2^-46 on e_t, and the
// norms, computed in double from K squares, by 1 + (K + 8) 2^-53. Underflow adds an absolute term
// per operation. The output adds its own sum:
//
//   |o^ - o| <= ||q|| e_t + (gamma + h_q) ||z_t|| ||q||.
//
// and the correction, which a ring keeps, the errors of p^ and of what follows it, with the exact
// state's decayed column in the place of x':
//
//   |d^ - d| <= beta ||k|| [ a e_{t-1} + (A + u a) ||z_{t-1}|| + (gamma + h) a ||z_{t-1}|| ]
//               + (b + 2u) |d^|.
//
// Where d is given (Lane::given) nothing is predicted: beta = 0, phi = 1, and of the terms above
// those stay that have no beta; h counts though the key is given as well.
//
// References: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.1
// and 3.3 (gamma_n and running error analysis).
#pragma once

#include <cstdint>
#include <span>

#include "reference/delta/rule/lane.hpp"
#include "reference/delta/rule/recurrent.hpp"

namespace goldenrule::delta {

/// The bound of one tile of columns; advance it beside the tile (Detail::kNorms or more).
template <class S>
class Certificate {
 public:
  using Row = typename ColumnNorms<S>::Row;

  /// `state2` holds the squared norms of the start columns, which are exact.
  Certificate(const Lane<S>& lane, const Row& state2);

  /// One token: `norms` are those that the tile recorded for token `t` of the lane.
  void advance(std::int64_t t, const ColumnNorms<S>& norms);

  /// Bounds after the last token: every element of the state column, the element of o, and that of
  /// the token's correction.
  [[nodiscard]] double state_radius(int column) const {
    return error_[static_cast<std::size_t>(column)];
  }
  [[nodiscard]] double output_radius(int column) const {
    return output_[static_cast<std::size_t>(column)];
  }
  [[nodiscard]] double correction_radius(int column) const {
    return correction_[static_cast<std::size_t>(column)];
  }

 private:
  const Lane<S>* lane_;
  Row norm_{};   // upper bounds of ||z_t||
  Row error_{};  // e_t
  Row output_{};
  Row correction_{};
};

extern template class Certificate<double>;
extern template class Certificate<scalar::Quad>;
extern template class Certificate<scalar::Multi>;

}  // namespace goldenrule::delta
