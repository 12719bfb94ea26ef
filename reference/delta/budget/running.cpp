// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/running.hpp"

#include <algorithm>
#include <cmath>

#include "reference/delta/budget/running_rows.hpp"

namespace goldenrule::delta {
namespace {

TokenErrors token_errors(const contract::Contract& c, const TokenBounds& b) {
  return {.alpha = alpha_errors(c, b),
          .beta = (b.beta_computed ? c.functions.sigmoid + b.beta_logit * c.functions.logit : 0.0) +
                  contract::unit_of(c.at(contract::Activation::kBeta))};
}

double squared(double x) { return x * x; }

// Squared roundings, in units of u^2/3, that reach the state along k^ (per ||k^||^2 or k_i^2):
// those of p, its products and the rounded k^ in them; of v - p, of beta; of k^ d and the rounded
// k^.
template <class Norms>
double along_k2(double n, double beta, const Norms& norms, std::size_t c) {
  const double p = norms.predicted[c];
  const double d = norms.delta[c];
  return beta * beta * (n / 3 * p * p + (n / 6 + 2) * norms.predicted2[c]) + 4 * d * d;
}

// The same of elements of k^ rounded to a narrower format, in units of that u^2/3: in the sum p and
// in k^ d.
template <class Norms>
double rounded_key2(double beta, const Norms& norms, std::size_t c) {
  return beta * beta * norms.predicted2[c] + squared(norms.delta[c]);
}

Roundings roundings_of(const contract::Contract& c, bool replayed) {
  const double u = c.unit_roundoff();
  const double key = contract::unit_of(c.at(contract::Activation::kKey));
  if (replayed) return {.u = u, .key = key};
  return {.u2 = squared(u) / 3.0, .key2 = squared(key) / 3.0};
}

// Systematic errors that reach the state along k^ (per ||k^|| or |k_i|).
template <class Norms>
double along_k_bias(const contract::FunctionErrors& f, const TokenErrors& errors,
                    const Roundings& r, double beta, const Norms& norms, std::size_t c) {
  const double d = std::fabs(norms.delta[c]);
  return f.norm * (d + beta * std::fabs(norms.predicted[c])) +
         (errors.beta + 2.0 * r.u + r.key) * d;
}

}  // namespace

double error_transport(const contract::Contract& contract, const TokenBounds& bounds) {
  return bounds.spectral * alpha_errors(contract, bounds).largest;
}

RunningError::RunningError(const contract::Contract& contract, const Lane<double>& lane,
                           const RecurrentTile<double>& start)
    : contract_(&contract),
      lane_(&lane),
      alpha_(static_cast<std::size_t>(lane.gates)),
      element_sigma_(static_cast<std::size_t>(lane.K * kColumns)),
      element_bias_(element_sigma_.size()),
      state_(element_sigma_.size()) {
  Row row{};
  for (std::int64_t i = 0; i < lane.K; ++i) {
    start.read_row(i, row.data());
    for (int c = 0; c < start.columns(); ++c) {
      const double z = row[static_cast<std::size_t>(c)];
      norm_[static_cast<std::size_t>(c)] += z * z;
      state_[static_cast<std::size_t>(i * kColumns + c)] = z;
    }
  }
  for (double& norm : norm_) norm = std::sqrt(norm);
}

void RunningError::advance(std::int64_t t, const ColumnNorms<double>& norms,
                           const RecurrentTile<double>& tile) {
  errors_ = token_errors(*contract_, lane_->bounds[static_cast<std::size_t>(t)]);
  for (std::int64_t g = 0; g < lane_->gates; ++g) {
    alpha_[static_cast<std::size_t>(g)] = alpha_errors(*contract_, *lane_, t, g);
  }
  // These first: they need the errors of the token before.
  carry(t);
  correct(t, norms);
  advance_elements(t, norms, tile);
  advance_columns(t, norms);
  finish(t, norms);
}

void RunningError::carry(std::int64_t t) {
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const AlphaErrors& widest = errors_.alpha;
  carried_sigma_ = carried_bias_ = {};
  for (std::int64_t i = 0; i < lane_->K; ++i) {
    const double k = std::fabs(lane_->k_row(t)[i]);
    if (k == 0.0) continue;
    add_carried(k, alpha_of(i), row_of(i), carried_sigma_.data(), carried_bias_.data());
  }
  const double reach = b.k_norm * widest.largest;
  for (std::size_t c = 0; c < norm_.size(); ++c) {
    carried_sigma_[c] = std::fmin(carried_sigma_[c], times(reach, std::sqrt(variance_[c])));
    carried_bias_[c] = std::fmin(carried_bias_[c],
                                 times(reach, bias_[c]) + times(b.k_norm * widest.error, norm_[c]));
  }
}

void RunningError::correct(std::int64_t t, const ColumnNorms<double>& norms) {
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const auto n = static_cast<double>(lane_->K);
  const double u2 = squared(contract_->unit_roundoff()) / 3.0;
  const double key2 = squared(contract::unit_of(contract_->at(contract::Activation::kKey))) / 3.0;
  for (std::size_t c = 0; c < norm_.size(); ++c) {
    const double p = norms.predicted[c];
    const double d = std::fabs(norms.delta[c]);
    const double of_products = squared(b.beta) * norms.predicted2[c];
    const double of_sum = squared(b.beta) * n / 3 * p * p + (n / 6 + 3) * of_products + 2 * d * d;
    correction_[c] = {.sigma = std::sqrt(squared(times(b.beta, carried_sigma_[c])) + u2 * of_sum +
                                         key2 * of_products),
                      .bias = times(b.beta, carried_bias_[c]) +
                              contract_->functions.norm * b.beta * std::fabs(p) + errors_.beta * d};
  }
}

void RunningError::advance_elements(std::int64_t t, const ColumnNorms<double>& norms,
                                    const RecurrentTile<double>& tile) {
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const contract::FunctionErrors& f = contract_->functions;
  const auto n = static_cast<double>(lane_->K);
  const Roundings r = roundings_of(*contract_, t < lane_->given);
  // What all elements of a column have in common.
  Row along2{}, rounded2{}, along_bias{};
  for (std::size_t c = 0; c < along2.size(); ++c) {
    along2[c] = along_k2(n, b.beta, norms, c);
    rounded2[c] = rounded_key2(b.beta, norms, c);
    along_bias[c] = along_k_bias(f, errors_, r, b.beta, norms, c);
  }
  Row after{};
  for (std::int64_t i = 0; i < lane_->K; ++i) {
    const double k = std::fabs(lane_->k_row(t)[i]);
    const AlphaErrors& alpha = alpha_of(i);
    tile.read_row(i, after.data());
    advance_row({.alpha = std::fabs(lane_->alpha_at(t, i)),
                 .kernel_alpha = alpha.largest,
                 .alpha_error = alpha.error,
                 .k = k,
                 .reach = b.beta * k,
                 .roundings = r},
                {.along2 = along2.data(),
                 .rounded2 = rounded2.data(),
                 .along_bias = along_bias.data(),
                 .carried_sigma = carried_sigma_.data(),
                 .carried_bias = carried_bias_.data()},
                after.data(), row_of(i));
  }
}

void RunningError::advance_columns(std::int64_t t, const ColumnNorms<double>& norms) {
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const contract::FunctionErrors& f = contract_->functions;
  const auto n = static_cast<double>(lane_->K);
  const Roundings r = roundings_of(*contract_, t < lane_->given);
  const double transport = b.spectral * errors_.alpha.largest;
  const double k2 = b.k_norm * b.k_norm;
  for (std::size_t c = 0; c < norm_.size(); ++c) {
    const double decayed2 = b.alpha_max * b.alpha_max * norm_[c] * norm_[c];
    const double local2 = decayed2 + k2 * along_k2(n, b.beta, norms, c) + norms.state2[c];
    variance_[c] = times(transport * transport, variance_[c]) + r.u2 * local2 +
                   r.key2 * k2 * rounded_key2(b.beta, norms, c);
    bias_[c] = times(transport, bias_[c]) + b.spectral * errors_.alpha.error * norm_[c] +
               b.k_norm * along_k_bias(f, errors_, r, b.beta, norms, c) +
               r.u * (std::sqrt(decayed2) + std::sqrt(norms.state2[c]));
    norm_[c] = std::sqrt(norms.state2[c]);
  }
}

// The norm of a column's error bounds its elements, and they bound it; either bounds what the query
// sums of them.
void RunningError::finish(std::int64_t t, const ColumnNorms<double>& norms) {
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const auto n = static_cast<double>(lane_->K);
  const double u = contract_->unit_roundoff();
  const double u2 = squared(u) / 3.0;
  const double query2 =
      squared(contract::unit_of(contract_->at(contract::Activation::kQuery))) / 3.0;
  Row sigma{}, sigma2{}, bias2{}, of_sigma{}, of_bias{};
  for (std::size_t c = 0; c < sigma.size(); ++c) sigma[c] = std::sqrt(variance_[c]);
  for (std::int64_t i = 0; i < lane_->K; ++i) {
    clip_row(std::fabs(lane_->q_row(t)[i]), sigma.data(), bias_.data(), row_of(i),
             {sigma2.data(), bias2.data(), of_sigma.data(), of_bias.data()});
  }
  for (std::size_t c = 0; c < norm_.size(); ++c) {
    variance_[c] = std::fmin(variance_[c], sigma2[c]);
    bias_[c] = std::fmin(bias_[c], std::sqrt(bias2[c]));
    const double o = norms.output[c];
    const double carried = std::fmin(times(b.q_norm, sigma[c]), of_sigma[c]);
    output_[c] = {.sigma = std::sqrt(squared(carried) +
                                     u2 * (n / 3 * o * o + (n / 6 + 2) * norms.output2[c]) +
                                     query2 * norms.output2[c]),
                  .bias = std::fmin(times(b.q_norm, bias_[c]), of_bias[c]) +
                          (contract_->functions.norm + u) * std::fabs(o)};
  }
}

void RunningError::read(float* sigma, float* bias) const {
  round_up(element_sigma_.data(), element_sigma_.size(), sigma);
  round_up(element_bias_.data(), element_bias_.size(), bias);
}

}  // namespace goldenrule::delta
