// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/stage_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fixtures/call/dtype.hpp"
#include "reference/delta/budget/ring_grant.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/oracle/ring.hpp"

namespace goldenrule::delta {

using contract::Activation;
using contract::Format;
using contract::Point;
using contract::Rounding;

double rounding_error(const Rounding& rounding, double x) {
  if (!rounding) return 0.0;
  return (rounding == Format::kTF32 ? 2.0 : 1.0) * contract::half_ulp(info(*rounding), x);
}

double beside_storage(const Rounding& rounding, call::DType stored, double x) {
  if (!rounding) return 0.0;
  const contract::FormatInfo& format = info(*rounding);
  const call::DTypeInfo& type = call::info(stored);
  const bool holds =
      format.significand_bits <= type.significand_bits &&
      format.min_exponent - format.significand_bits >= type.min_exponent - type.significand_bits;
  const double own = rounding_error(rounding, x);
  return holds ? std::max(own - 0.5 * call::ulp(stored, x), 0.0) : own;
}

LaneGrants::LaneGrants(const contract::Contract& contract, const call::Convention& convention,
                       const Lane<double>& lane, double multiple)
    : contract_(contract),
      chunked_(*contract.chunked()),
      lane_(lane),
      multiple_(multiple),
      gates_(lane.tokens, lane.gates),
      sums_(lane.tokens, lane.gates) {
  const Rounding& format = chunked_.at(Point::kGateSum);
  const double u = format ? contract::unit_of(format) : chunked_.unit_roundoff;
  const auto levels =
      static_cast<double>(std::bit_width(static_cast<std::uint64_t>(chunked_.chunk - 1)));
  for (std::int64_t g = 0; g < lane.gates; ++g) {
    double size = 0.0;
    double prefixes = 0.0;
    for (std::int64_t t = 0; t < lane.tokens; ++t) {
      if (t % chunked_.chunk == 0) size = prefixes = 0.0;
      // What no kernel can sum is in no sum, or floored (emulation/chunk_emulator.hpp).
      const bool is_number = has_logarithm(convention, lane.alpha_at(t, g));
      const auto at = static_cast<std::size_t>(t * lane.gates + g);
      const double log_alpha = is_number ? lane.log_alpha[at] : 0.0;
      size += std::fabs(is_number ? log_alpha : static_cast<double>(kFlooredGate));
      prefixes += size;
      gates_(t, g) = gate_error(contract, convention, bounds(t), log_alpha, lane.logit_slope[at]);
      sums_(t, g) = u * (std::max(prefixes, levels * size) + size);
    }
  }
}

double LaneGrants::q(double x) const { return (of_key() + chunked_.unit_roundoff) * std::fabs(x); }

double LaneGrants::k(double x) const { return of_key() * std::fabs(x); }

double LaneGrants::beta(std::int64_t t) const {
  return (of_beta(t) + chunked_.unit_roundoff) * std::fabs(lane_.beta[static_cast<std::size_t>(t)]);
}

double LaneGrants::G(std::int64_t t, std::int64_t g) const {
  double sum = sums_(t, g);
  for (std::int64_t l = t / chunked_.chunk * chunked_.chunk; l <= t; ++l) sum += gates_(l, g);
  return sum;
}

Matrix<double> LaneGrants::A(std::int64_t first, std::int64_t c) const {
  Matrix<double> granted = Matrix<double>::Zero(c, c);
  const bool exp_of_sums =
      chunked_.at(Point::kGateSum).has_value() && !chunked_.has_coarse_operands();
  const double of_exp = contract_.functions.exp + chunked_.unit_roundoff;
  std::vector<double> decay(static_cast<std::size_t>(lane_.gates));
  std::vector<double> error(decay.size());
  for (std::int64_t j = 0; j < c; ++j) {
    std::ranges::fill(decay, 1.0);
    std::ranges::fill(error, 0.0);
    for (std::int64_t i = j + 1; i < c; ++i) {
      const double count = exp_of_sums ? 2.0 : static_cast<double>(i - j + 2);
      for (std::int64_t g = 0; g < lane_.gates; ++g) {
        const auto at = static_cast<std::size_t>(g);
        decay[at] *= std::fabs(lane_.alpha_at(first + i, g));
        error[at] += gates_(first + i, g);
      }
      granted(i, j) = element(first + i, first + j, decay, error, count * of_exp);
    }
  }
  return granted;
}

double LaneGrants::of_key() const { return norm_error(contract_, lane_.k_error > 0.0); }

double LaneGrants::of_beta(std::int64_t t) const {
  const TokenBounds& b = bounds(t);
  const contract::FunctionErrors& f = contract_.functions;
  return b.beta_computed ? f.sigmoid + b.beta_logit * f.logit : 0.0;
}

// Of an element of k^, as an activation and as an operand.
double LaneGrants::key_rounding(double k) const {
  return rounding_error(chunked_.at(Activation::kKey), k) +
         rounding_error(chunked_.at(Point::kIntra), k);
}

// A_ij of tokens i and j of the lane: the decay between them, what its gates err, and what its
// exponentials do.
double LaneGrants::element(std::int64_t i, std::int64_t j, const std::vector<double>& decay,
                           const std::vector<double>& gate_errors, double of_exp) const {
  const double beta = std::fabs(lane_.beta[static_cast<std::size_t>(i)]);
  const double u = chunked_.unit_roundoff;
  double sum = 0.0;
  double squares = 0.0;
  double error = 0.0;
  for (std::int64_t x = 0; x < lane_.K; ++x) {
    const std::int64_t g = lane_.gates == 1 ? 0 : x;
    const auto at = static_cast<std::size_t>(g);
    const double weight = beta * decay[at];
    if (weight == 0.0) continue;  // whatever an infinite logarithm errs
    const double ki = lane_.k_row(i)[x];
    const double kj = lane_.k_row(j)[x];
    const double term = weight * ki * kj;
    sum += term;
    squares += term * term;
    const double ri = key_rounding(ki);
    const double rj = key_rounding(kj);
    const double of_decay = gate_errors[at] + sums_(i, g) + sums_(j, g) + of_exp;
    error += weight * (ri * std::fabs(kj) + std::fabs(ki) * rj + ri * rj) +
             std::fabs(term) * (8.0 * u + std::expm1(of_decay));
  }
  const double rounded_beta = contract::unit_of(contract_.at(Activation::kBeta));
  const auto n = static_cast<double>(lane_.K);
  const double variance = (n / 3 * sum * sum + (n / 6 + 2) * squares) / 3;
  return error + std::fabs(sum) * (2 * of_key() + of_beta(i) + rounded_beta) +
         multiple_ * u * std::sqrt(variance);
}

}  // namespace goldenrule::delta
