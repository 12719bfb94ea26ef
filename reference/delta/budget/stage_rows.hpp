// SPDX-License-Identifier: Apache-2.0
//
// What a contract grants the stages of one lane that need no run: q, k, beta, G and A
// (stage_grant.hpp has the formulas).
#pragma once

#include <cstdint>
#include <vector>

#include "reference/contract/contract.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// The largest error of rounding x to a format: truncation to tf32 takes twice half an ulp.
[[nodiscard]] double rounding_error(const contract::Rounding& rounding, double x);

/// What rounding x to a format adds to its rounding to the type that it is stored in: where that
/// type holds every number of the format, only the first of the two counts.
[[nodiscard]] double beside_storage(const contract::Rounding& rounding, call::DType stored,
                                    double x);

class LaneGrants {
 public:
  /// Refers to its arguments. `multiple` is lambda.
  LaneGrants(const contract::Contract& contract, const call::Convention& convention,
             const Lane<double>& lane, double multiple);

  /// Of an element x of q^ or k^.
  [[nodiscard]] double q(double x) const;
  [[nodiscard]] double k(double x) const;
  [[nodiscard]] double beta(std::int64_t t) const;
  [[nodiscard]] double G(std::int64_t t, std::int64_t g) const;
  /// A of the chunk of c tokens from `first` on, [c,c], strictly lower.
  [[nodiscard]] Matrix<double> A(std::int64_t first, std::int64_t c) const;

 private:
  [[nodiscard]] const TokenBounds& bounds(std::int64_t t) const {
    return lane_.bounds[static_cast<std::size_t>(t)];
  }
  [[nodiscard]] double of_key() const;
  [[nodiscard]] double of_beta(std::int64_t t) const;
  [[nodiscard]] double key_rounding(double k) const;
  [[nodiscard]] double element(std::int64_t i, std::int64_t j, const std::vector<double>& decay,
                               const std::vector<double>& gate_errors, double of_exp) const;

  const contract::Contract& contract_;
  const contract::Chunked& chunked_;
  const Lane<double>& lane_;
  const double multiple_;
  Matrix<double> gates_, sums_;  // [tokens,gates] E_gate and c
};

}  // namespace goldenrule::delta
