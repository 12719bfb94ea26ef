// SPDX-License-Identifier: Apache-2.0
//
// The budget of a recurrent fp32 kernel over the few tokens of decode and MTP: how far an honest
// kernel may be from the exact result, per element, from its contract and the data of the call.
// (Norms and absolute values lose too much over hundreds of tokens: spread.hpp.)
//
// Model. Each rounding of an arithmetic result x adds an error uniform in [-u|x|, u|x|], zero-mean
// and independent of the others; a bounded uniform variable is strictly sub-Gaussian with proxy
// variance (u x)^2 / 3. Errors are transported by the exact steps (I - beta k k^T) D, so an output
// error is a weighted sum of them, sub-Gaussian with proxy sigma^2 = the sum of the squared weights
// times proxies, and for n elements at false-alarm probability p
//
//   P(some |error| > lambda sigma) <= p   with   lambda = sqrt(2 ln(2 n / p))          (union
//   bound)
//
// whatever the correlation between elements. Errors of the kernel's functions (exp in alpha, the
// norm, the sigmoid) are not random: the same gate at every token errs the same way. They add
// linearly in a second recursion, `bias`. Budget = lambda sigma + bias + half an ulp of storage.
//
// Weights. A column error e after a step has norm at most phi a ||e|| (certificate.hpp), so with x'
// the decayed state, p its K-term sum with k, x_i the K products of that sum, d and z as before:
//
//   sigma_t^2 = (phi a)^2 sigma_{t-1}^2 + u^2/3 [ ||x'||^2                decay products
//        + ||k||^2 beta^2 ( P(p, x) + 2 sum x_i^2 )    sum; its products; rounded k
//        + ||k||^2 (2 + 2) d^2                         v - p and beta; k d and rounded k
//        + ||z||^2 ]                                   state sums
//
// P is the expected sum of the squared partial sums over all orders of summation,
//   P(p, x) = n/3 p^2 + n/6 sum x_i^2   (sampling without replacement: the i-th partial sum has
//   mean i/n p and variance i/n (1 - i/n) sum x_i^2 at most);
// a tree has fewer and smaller partial sums, so sequential order is the one to allow for.
//
//   bias_t = phi a bias_{t-1} + phi E_alpha ||z_{t-1}|| + ||k|| (E_norm (|d| + beta |p|) + E_beta
//   |d|)
//
// (errors travel with the alpha of the kernel, at most a = max alpha + E_alpha), with E_alpha etc.
// the contract's function errors through the sensitivities of the gate
// (TokenBounds). Output: o = sum_i z_i q_i,
//
//   sigma_o^2 = ||q||^2 sigma_t^2 + u^2/3 [ P(o, y) + 2 sum y_i^2 ],  y_i = z_i q_i
//   bias_o    = ||q|| bias_t + (E_norm + u) |o|.
//
// What the elements' own deviations s_i and biases b_i (below) say of these sums is the other
// bound, of which the smaller one counts: with large elements that neither q nor k reads it is the
// one that knows so. What p has of the state's errors,
//
//   carried_sigma = min( ||k|| a sigma_{t-1},  sum_i |k_i| alpha_i s_i )
//   carried_bias  = min( ||k|| (a bias_{t-1} + E_alpha ||z_{t-1}||),
//                        sum_i |k_i| (alpha_i b_i + E_alpha,i |z_i|) ),
//
// and of the output's first terms min( ||q|| sigma_t, sum_i |q_i| s_i ), min( ||q|| bias_t,
// sum_i |q_i| b_i ): deviations of sub-Gaussian numbers of any correlation add up at most. Likewise
// sigma_t is at most the norm of all s_i, and bias_t that of all b_i.
//
// The correction d = beta (v - p), which a ring keeps, takes what p has of the errors of the state
// and of its own sum, one more rounding of each product for the decayed state in it, and two of its
// own:
//
//   sigma_d^2 = (beta carried_sigma)^2 + u^2/3 [ beta^2 ( P(p, x) + 3 sum x_i^2 ) + 2 d^2 ]
//   bias_d    = beta carried_bias + E_norm beta |p| + E_beta |d|.
//
// Where d is given nothing is predicted and beta is 0: what is left of the recursion is the decay
// and k d^T. E_norm counts though the key is given too. A ring may hold many tokens, and where they
// are alike their roundings are no fresh errors (spread.hpp): 124 equal ones that move the state by
// less than its last bits took an honest kernel to 1.23 such budgets. Each element takes four
// roundings there and no sum, so they are granted by their amounts, in bias:
//
//   sigma_t^2 = (phi a)^2 sigma_{t-1}^2
//   bias_t    = .. + u ( a ||z_{t-1}|| + ||z_t|| ) + (2u + u_k) ||k|| |d|,   alike for an element.
//
// Activations that the contract rounds: beta and log alpha (alpha, where the call gives that) are
// rounded as functions are evaluated, always the same way, and add to E_beta and E_alpha; elements
// of k^ and q^ err independently of each other, by u_k and u_q relatively, and add
// u_k^2/3 ||k||^2 (beta^2 sum x_i^2 + d^2) and u_q^2/3 sum y_i^2 to the two variances.
//
// The bounds above are on the norm of a column's error. For an element of the state itself that is
// generous by up to sqrt(K), which matters where few steps lie between an exact start state and
// the result, as in decode. There the deviation s_i and the bias b_i of each element are followed
// too, by the triangle inequality for e_i -> alpha_i e_i - beta k_i k^T (D e):
//
//   s_i <- min( sqrt( (alpha_i s_i + beta |k_i| carried_sigma)^2 + local_i^2 ), sigma_t ),
//   b_i <- min( alpha_i b_i + beta |k_i| carried_bias + E_alpha,i |z_i|
//               + |k_i| (E_norm (|d| + beta |p|) + E_beta |d|), bias_t ),
//
// with local_i^2 the i-th parts of the bracket.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reference/contract/contract.hpp"
#include "reference/delta/budget/alpha_errors.hpp"
#include "reference/delta/budget/running_rows.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/delta/rule/recurrent.hpp"

namespace goldenrule::delta {

/// 0 times a bound that is infinite is 0: what is erased carries no error.
[[nodiscard]] inline double times(double x, double bound) { return x == 0.0 ? 0.0 : x * bound; }

/// By how much an error of the state can grow at a token in a kernel of this contract.
[[nodiscard]] double error_transport(const contract::Contract& contract, const TokenBounds& bounds);

/// How far a kernel's alpha and beta may be off at one token.
struct TokenErrors {
  AlphaErrors alpha;  ///< the largest of its gates
  double beta = 0.0;  ///< relative
};

/// sigma and bias of one number.
struct Spread {
  double sigma = 0.0;
  double bias = 0.0;
};

/// The recursion for one tile of columns; advance it token by token beside the tile
/// (Detail::kSums).
class RunningError {
 public:
  RunningError(const contract::Contract& contract, const Lane<double>& lane,
               const RecurrentTile<double>& start);

  /// Token `t` of the lane has just been run by `tile`; `norms` is what it recorded.
  void advance(std::int64_t t, const ColumnNorms<double>& norms, const RecurrentTile<double>& tile);

  [[nodiscard]] Spread state(std::int64_t i, int column) const {
    const auto at = static_cast<std::size_t>(i * kColumns + column);
    return {.sigma = element_sigma_[at], .bias = element_bias_[at]};
  }
  /// Those of all elements, [K][kTileColumns], as bounds in f32.
  void read(float* sigma, float* bias) const;
  [[nodiscard]] Spread output(int column) const {
    return output_[static_cast<std::size_t>(column)];
  }
  /// d of the last token.
  [[nodiscard]] Spread correction(int column) const {
    return correction_[static_cast<std::size_t>(column)];
  }

 private:
  static constexpr int kColumns = kTileColumns<double>;
  using Row = ColumnNorms<double>::Row;

  void carry(std::int64_t t);
  void correct(std::int64_t t, const ColumnNorms<double>& norms);
  void advance_elements(std::int64_t t, const ColumnNorms<double>& norms,
                        const RecurrentTile<double>& tile);
  void advance_columns(std::int64_t t, const ColumnNorms<double>& norms);
  void finish(std::int64_t t, const ColumnNorms<double>& norms);

  [[nodiscard]] ElementRow row_of(std::int64_t i) {
    const auto at = static_cast<std::size_t>(i * kColumns);
    return {&element_sigma_[at], &element_bias_[at], &state_[at]};
  }
  [[nodiscard]] const AlphaErrors& alpha_of(std::int64_t i) const {
    return alpha_[alpha_.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }

  const contract::Contract* contract_;
  const Lane<double>* lane_;
  TokenErrors errors_;              // of the token that advances
  std::vector<AlphaErrors> alpha_;  // the same by gate
  Row carried_sigma_{}, carried_bias_{};
  Row norm_{};      // ||z_t||
  Row variance_{};  // sigma_t^2
  Row bias_{};
  std::array<Spread, static_cast<std::size_t>(kColumns)> output_{}, correction_{};
  std::vector<double> element_sigma_, element_bias_;  // [K][columns] s_i and b_i
  std::vector<double> state_;                         // [K][columns] z_t
};

}  // namespace goldenrule::delta
