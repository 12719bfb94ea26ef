// SPDX-License-Identifier: Apache-2.0
//
// The budget of one element and the test that it decides, once for all who compare outputs with an
// expectation: the verdict itself and the explanation of a verdict.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "fixtures/call/plan.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::verdict {

/// The spacing at `x` of what is rounded to `a` and to `b`: the larger one, which is a question of
/// the value, since f16 has more digits than bf16, and none below 2^-24.
[[nodiscard]] inline double larger_ulp(call::DType a, call::DType b, double x) {
  return std::max(call::ulp(a, x), call::ulp(b, x));
}

/// The spacing at `x` of a state in a pool of type `pool` by a contract that stores it in `type`.
/// Of two types of one width a kernel may keep to either.
[[nodiscard]] inline double state_ulp(call::DType type, call::DType pool, double x) {
  return call::info(type).bytes == call::info(pool).bytes ? larger_ulp(type, pool, x)
                                                          : call::ulp(type, x);
}

/// What `contract` grants the elements of one tensor. Refers to what it was made from.
class Budget {
 public:
  /// `stored` is the type of output `name`. The contract's storage type holds for states; others
  /// are rounded to the type that they have, and what nobody writes keeps its own. States on the
  /// way are copies of a state in a buffer of their own: rounded to its type where that is coarser.
  Budget(const std::string& name, call::DType stored, const Expected& expected,
         const contract::Contract& contract)
      : expected_(&expected),
        stored_(stored),
        storage_(call::has_states(name) ? contract.state_dtype.value_or(stored) : stored),
        top_binade_(std::ldexp(1.0, call::info(stored).max_exponent)),
        is_pool_(name == call::name_of(call::Target::kFinalState)) {}

  /// False where the contract gives no budget for this tensor.
  [[nodiscard]] bool given() const { return expected_->grant.given; }

  /// multiple sigma + bias of element `i`.
  [[nodiscard]] double spread(std::size_t i) const {
    return expected_->grant.spread.empty() ? 0.0 : static_cast<double>(expected_->grant.spread[i]);
  }

  /// What flushing subnormal numbers to zero may cost element `i`.
  [[nodiscard]] double flushed(std::size_t i) const { return expected_->flushed(i); }

  /// The spread `s` of a value `x` of element `i`, half an ulp of storage where the unrounded value
  /// may lie, and what flushing may cost.
  [[nodiscard]] double around(std::size_t i, double x, double s) const {
    const double reach = std::fabs(x) + s;
    const double ulp =
        is_pool_ ? state_ulp(storage_, stored_, reach) : larger_ulp(storage_, stored_, reach);
    return s + 0.5 * ulp + flushed(i);
  }

  /// Whether the stored type holds the exact result of element `i`, and not each number that is
  /// granted beside it: from max + ulp / 2 on a number rounds to an infinity.
  [[nodiscard]] bool reaches_infinity(std::size_t i) const {
    const double golden = expected_->exact.golden[i];
    const double reach = std::fabs(golden) + spread(i) + flushed(i);
    return reach >= top_binade_ && std::isfinite(reach) &&
           std::isfinite(call::round_to(stored_, golden)) &&
           std::isinf(call::round_to(stored_, call::round_to(storage_, reach)));
  }

  /// The budget of element `i`.
  [[nodiscard]] double operator()(std::size_t i) const {
    const double golden = expected_->exact.golden[i];
    if (!expected_->exact.touched.empty() &&
        expected_->exact.touched[i / expected_->exact.block] == Touch::kKept) {
      // Exactly what it was, but for a stored type that does not hold it.
      return call::round_to(stored_, golden) == golden ? 0.0 : 0.5 * call::ulp(stored_, golden);
    }
    return around(i, golden, spread(i));
  }

 private:
  const Expected* expected_;
  call::DType stored_, storage_;
  double top_binade_;  // where that of the largest stored number begins
  bool is_pool_;       // the state that goes on
};

/// An error over what is granted; where nothing is, an error of 0 is no part of it.
[[nodiscard]] inline double ratio_of(double error, double budget) {
  return error == 0.0 ? 0.0 : error / budget;
}

/// Whether radius and budget bound what is right for element `i`, so that it can be judged. Where
/// the exact result is not finite since an input is not, it can: the output must not be either.
[[nodiscard]] inline bool is_bounded(const Expected& expected, std::size_t i, double budget) {
  if (!std::isfinite(expected.exact.radius[i])) return false;
  return !std::isfinite(expected.exact.golden[i]) || std::isfinite(budget);
}

/// Whether `y` passes for element `i`: within radius and budget, or not finite where the exact
/// result is not (Exact::admits_nonfinite), may overflow (Expected::is_overflow) or may be rounded
/// to an infinity (Expected::is_rounded_up). Only a failure of an element that is_bounded is one of
/// the kernel.
[[nodiscard]] inline bool passes(double y, const Expected& expected, std::size_t i, double budget) {
  const double golden = expected.exact.golden[i];
  if (!std::isfinite(golden)) return expected.exact.admits_nonfinite(i, y);
  if (!std::isfinite(y)) {  // though the radius may be infinite
    return expected.is_overflow(i, y) || expected.is_rounded_up(i, y);
  }
  return std::fabs(y - golden) <= budget + static_cast<double>(expected.exact.radius[i]);
}

/// A ratio as what counts elements by it takes it: above 1 where the element is out of budget, and
/// only there.
[[nodiscard]] inline float shown_ratio(double ratio, bool passes) {
  constexpr auto kLargest = static_cast<double>(std::numeric_limits<float>::max());
  constexpr float kAboveOne = 1.0F + std::numeric_limits<float>::epsilon();
  const auto rounded = static_cast<float>(std::min(ratio, kLargest));
  return passes ? std::min(rounded, 1.0F) : std::max(rounded, kAboveOne);
}

}  // namespace goldenrule::verdict
