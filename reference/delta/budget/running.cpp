// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/running.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/delta/budget/perturbed_lane.hpp"
#include "reference/scalar/pack.hpp"

namespace goldenrule::delta {
namespace {

// How far a kernel's alpha, beta and norms may be off at one token.
struct TokenErrors {
  double alpha = 0.0;          // absolute
  double largest_alpha = 0.0;  // of the kernel: errors of earlier tokens travel with it
  double beta = 0.0;           // relative
};

// 0 times a bound that is infinite is 0: what is erased carries no error.
double times(double x, double bound) { return x == 0.0 ? 0.0 : x * bound; }

// The error of softplus is absolute, so with a large exp(A_log) it is no small one of log alpha:
// alpha (e^x - 1), x = exp(A_log) times the error, and no more than 1, since neither alpha leaves
// [0, 1]; where softplus is too small for a kernel to see, x is |log alpha| itself. The other
// errors of log alpha are relative ones of at most 745, where alpha > 0.
double alpha_by_softplus(const contract::FunctionErrors& f, const TokenBounds& b) {
  const double x = softplus_error(f, b.softplus_slope, b.log_alpha_max);
  if (x == 0.0) return 0.0;
  const bool seen = b.log_alpha_max >= b.softplus_slope * 0x1p-24;
  const double first_order = seen ? b.by_softplus * f.softplus : b.by_log_alpha;
  return std::min(first_order * (std::expm1(x) / x), 1.0);
}

TokenErrors token_errors(const contract::Contract& c, const TokenBounds& b) {
  const contract::FunctionErrors& f = c.functions;
  const double relative = b.by_exp * f.exp + b.by_log_alpha * f.log_alpha + b.by_logit * f.logit +
                          b.by_gate * contract::unit_of(c.at(contract::Activation::kGate));
  const double alpha = relative + alpha_by_softplus(f, b);
  return {.alpha = alpha,
          // A softplus that is too small makes alpha larger, but not larger than 1.
          .largest_alpha = std::min(b.alpha_max + alpha, std::max(b.alpha_max, 1.0) + relative),
          .beta = (b.beta_computed ? f.sigmoid + b.beta_logit * f.logit : 0.0) +
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

// The roundings of a token on its way into the state: as fresh errors, or, of a token that is
// replayed, by their amounts.
struct Roundings {
  double u2 = 0.0, key2 = 0.0;  // proxies, of arithmetic and of rounded k^
  double u = 0.0, key = 0.0;    // amounts
};

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

// One row of elements at one token: what its key channel, its columns and its elements have.
struct KeyTerms {
  double alpha, kernel_alpha, alpha_error, k, reach, widest;
  Roundings roundings;
};
struct ColumnTerms {
  const double *along2, *rounded2, *along_bias, *sigma, *bias, *norm;
};
struct ElementRow {
  double *sigma, *bias, *state;
};
GOLDENRULE_VECTOR_CLONES void advance_row(const KeyTerms& key, const ColumnTerms& column,
                                          const double* after, const ElementRow& row) {
  constexpr int kColumns = kTileColumns<double>;
  const Roundings r = key.roundings;
  // 0 times a bound is 0, as in times().
  constexpr std::array<double, kColumns> kNothing{};
  const double reach = key.reach * key.widest;
  const double* sigma = key.kernel_alpha == 0.0 ? kNothing.data() : row.sigma;
  const double* bias = key.kernel_alpha == 0.0 ? kNothing.data() : row.bias;
  const double* column_sigma = reach == 0.0 ? kNothing.data() : column.sigma;
  const double* column_bias = reach == 0.0 ? kNothing.data() : column.bias;
  for (int c = 0; c < kColumns; ++c) {
    const double before = row.state[c];
    const double z = after[c];
    const double decayed = key.alpha * before;
    const double local2 = decayed * decayed + key.k * key.k * column.along2[c] + z * z;
    const double moved = key.kernel_alpha * sigma[c] + reach * column_sigma[c];
    row.sigma[c] =
        std::sqrt(moved * moved + r.u2 * local2 + r.key2 * key.k * key.k * column.rounded2[c]);
    row.bias[c] = key.kernel_alpha * bias[c] + reach * column_bias[c] +
                  key.alpha_error * (std::fabs(before) + key.reach * column.norm[c]) +
                  key.k * column.along_bias[c] + r.u * (std::fabs(decayed) + std::fabs(z));
    row.state[c] = z;
  }
}

GOLDENRULE_VECTOR_CLONES void clip(const double* column, std::size_t count, double* elements) {
  constexpr std::size_t kColumns = kTileColumns<double>;
  for (std::size_t first = 0; first < count; first += kColumns) {
    for (std::size_t c = 0; c < kColumns; ++c) {
      elements[first + c] = std::min(elements[first + c], column[c]);
    }
  }
}

// call::f32_bound of numbers that are not negative.
GOLDENRULE_VECTOR_CLONES void round_up(const double* x, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto nearest = static_cast<float>(x[i]);
    const std::uint32_t below = static_cast<double>(nearest) < x[i] ? 1 : 0;
    to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) + below);
  }
}

}  // namespace

double error_transport(const contract::Contract& contract, const TokenBounds& bounds) {
  return bounds.spectral * token_errors(contract, bounds).largest_alpha;
}

RunningError::RunningError(const contract::Contract& contract, const Lane<double>& lane,
                           const RecurrentTile<double>& start)
    : contract_(&contract),
      lane_(&lane),
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
  // These first: they need the column's sigma and bias of the token before.
  correct(t, norms);
  advance_elements(t, norms, tile);
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const contract::FunctionErrors& f = contract_->functions;
  const TokenErrors errors = token_errors(*contract_, b);
  const auto n = static_cast<double>(lane_->K);
  const double u = contract_->unit_roundoff();
  const double u2 = squared(u) / 3.0;
  const Roundings r = roundings_of(*contract_, t < lane_->given);
  const double query2 =
      squared(contract::unit_of(contract_->at(contract::Activation::kQuery))) / 3.0;
  const double transport = b.spectral * errors.largest_alpha;
  const double k2 = b.k_norm * b.k_norm;
  const double q2 = b.q_norm * b.q_norm;
  for (std::size_t c = 0; c < norm_.size(); ++c) {
    const double decayed2 = b.alpha_max * b.alpha_max * norm_[c] * norm_[c];
    const double o = norms.output[c];
    const double local2 = decayed2 + k2 * along_k2(n, b.beta, norms, c) + norms.state2[c];
    variance_[c] = times(transport * transport, variance_[c]) + r.u2 * local2 +
                   r.key2 * k2 * rounded_key2(b.beta, norms, c);
    bias_[c] = times(transport, bias_[c]) + b.spectral * errors.alpha * norm_[c] +
               b.k_norm * along_k_bias(f, errors, r, b.beta, norms, c) +
               r.u * (std::sqrt(decayed2) + std::sqrt(norms.state2[c]));
    output_[c] = {.sigma = std::sqrt(q2 * variance_[c] +
                                     u2 * (n / 3 * o * o + (n / 6 + 2) * norms.output2[c]) +
                                     query2 * norms.output2[c]),
                  .bias = b.q_norm * bias_[c] + (f.norm + u) * std::fabs(o)};
    norm_[c] = std::sqrt(norms.state2[c]);
  }
  clip_elements();
}

void RunningError::correct(std::int64_t t, const ColumnNorms<double>& norms) {
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const TokenErrors errors = token_errors(*contract_, b);
  const auto n = static_cast<double>(lane_->K);
  const double u2 = squared(contract_->unit_roundoff()) / 3.0;
  const double key2 = squared(contract::unit_of(contract_->at(contract::Activation::kKey))) / 3.0;
  const double reach = b.beta * b.k_norm;
  const double carried = reach * errors.largest_alpha;
  for (std::size_t c = 0; c < norm_.size(); ++c) {
    const double p = norms.predicted[c];
    const double d = std::fabs(norms.delta[c]);
    const double of_products = squared(b.beta) * norms.predicted2[c];
    const double of_sum = squared(b.beta) * n / 3 * p * p + (n / 6 + 3) * of_products + 2 * d * d;
    correction_[c] = {.sigma = std::sqrt(times(squared(carried), variance_[c]) + u2 * of_sum +
                                         key2 * of_products),
                      .bias = times(carried, bias_[c]) + times(reach * errors.alpha, norm_[c]) +
                              contract_->functions.norm * b.beta * std::fabs(p) + errors.beta * d};
  }
}

void RunningError::advance_elements(std::int64_t t, const ColumnNorms<double>& norms,
                                    const RecurrentTile<double>& tile) {
  const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
  const contract::FunctionErrors& f = contract_->functions;
  const TokenErrors errors = token_errors(*contract_, b);
  const auto n = static_cast<double>(lane_->K);
  const Roundings r = roundings_of(*contract_, t < lane_->given);
  const double widest = errors.largest_alpha;
  // What all elements of a column have in common.
  Row along2{}, rounded2{}, along_bias{}, sigma{};
  for (std::size_t c = 0; c < sigma.size(); ++c) {
    along2[c] = along_k2(n, b.beta, norms, c);
    rounded2[c] = rounded_key2(b.beta, norms, c);
    along_bias[c] = along_k_bias(f, errors, r, b.beta, norms, c);
    sigma[c] = std::sqrt(variance_[c]);
  }
  Row after{};
  for (std::int64_t i = 0; i < lane_->K; ++i) {
    const double k = std::fabs(lane_->k_row(t)[i]);
    const double alpha = std::fabs(lane_->alpha_at(t, i));
    tile.read_row(i, after.data());
    advance_row({.alpha = alpha,
                 .kernel_alpha = std::min(alpha + errors.alpha, widest),
                 .alpha_error = errors.alpha,
                 .k = k,
                 .reach = b.beta * k * b.k_norm,
                 .widest = widest,
                 .roundings = r},
                {.along2 = along2.data(),
                 .rounded2 = rounded2.data(),
                 .along_bias = along_bias.data(),
                 .sigma = sigma.data(),
                 .bias = bias_.data(),
                 .norm = norm_.data()},
                after.data(),
                {.sigma = &element_sigma_[static_cast<std::size_t>(i * kColumns)],
                 .bias = &element_bias_[static_cast<std::size_t>(i * kColumns)],
                 .state = &state_[static_cast<std::size_t>(i * kColumns)]});
  }
}

// The norm of a column's error bounds each of its elements.
void RunningError::clip_elements() {
  Row sigma{};
  for (std::size_t c = 0; c < sigma.size(); ++c) sigma[c] = std::sqrt(variance_[c]);
  clip(sigma.data(), element_sigma_.size(), element_sigma_.data());
  clip(bias_.data(), element_bias_.size(), element_bias_.data());
}

void RunningError::read(float* sigma, float* bias) const {
  round_up(element_sigma_.data(), element_sigma_.size(), sigma);
  round_up(element_bias_.data(), element_bias_.size(), bias);
}

}  // namespace goldenrule::delta
