// SPDX-License-Identifier: Apache-2.0
//
// Mistakes between the gradients of a value head and those of q, k and beta: the sum over a group,
// the scale, the norm and the sigmoid.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "reference/backward/mistakes/common.hpp"
#include "reference/backward/mistakes/mistake.hpp"

namespace goldenrule::backward {
namespace {

using call::BetaForm;
using call::Convention;
using call::Record;
using call::TensorMap;

constexpr double kOtherEps = 1e-12;
constexpr double kVisible = 1e-3;  // relative, of a divisor

double sum_of_squares(const double* x, std::int64_t K) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < K; ++i) sum += x[i] * x[i];
  return sum;
}

void norm_missing(const Convention&, const double*, const double* dy, std::int64_t K, double* dx) {
  std::copy_n(dy, K, dx);
}
void norm_unprojected(const Convention& c, const double* x, const double* dy, std::int64_t K,
                      double* dx) {
  const double divisor = delta::norm_divisor(c, sum_of_squares(x, K));
  for (std::int64_t i = 0; i < K; ++i) dx[i] = dy[i] / divisor;
}
void norm_twice(const Convention& c, const double* x, const double* dy, std::int64_t K,
                double* dx) {
  std::vector<double> once(static_cast<std::size_t>(K));
  right_norm(c, x, dy, K, once.data());
  right_norm(c, x, once.data(), K, dx);
}
// (dy - y (y . dy)) / n, with the y of the forward pass.
void norm_without_eps(const Convention& c, const double* x, const double* dy, std::int64_t K,
                      double* dx) {
  const double sum = sum_of_squares(x, K);
  const double divisor = delta::norm_divisor(c, sum);
  double projection = 0.0;
  for (std::int64_t i = 0; i < K; ++i) projection += x[i] / divisor * dy[i];
  for (std::int64_t i = 0; i < K; ++i) {
    dx[i] = (dy[i] - x[i] / divisor * projection) / std::sqrt(sum);
  }
}

// Whether the divisor of some row of q or k differs from other(c, sum of squares).
template <class F>
bool any_divisor_differs(const Record& r, F&& other) {
  const std::int64_t K = call::validate(r).K;
  for (const char* name : {"q", "k"}) {
    const std::vector<double> x = r.inputs.at(name).to_doubles();
    for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(K)) {
      const double sum = sum_of_squares(x.data() + row, K);
      const double divisor = delta::norm_divisor(r.convention, sum);
      if (std::fabs(other(r.convention, sum) - divisor) > kVisible * divisor) return true;
    }
  }
  return false;
}
// One channel has no direction: its gradient is 0 as often as it passes the norm.
bool has_normed_rows(const Record& r) { return has_norm(r) && call::validate(r).K > 1; }
bool has_eps_in_root(const Record& r) {
  return has_norm(r) && r.convention.qk_l2norm == call::QkNorm::kRsqrtSumEps &&
         any_divisor_differs(r, [](const Convention&, double sum) { return std::sqrt(sum); });
}
bool has_visible_eps(const Record& r) {
  return has_norm(r) && any_divisor_differs(r, [](Convention c, double sum) {
           c.l2_eps = kOtherEps;
           return delta::norm_divisor(c, sum);
         });
}
TensorMap other_eps(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.convention.l2_eps = kOtherEps;
  return kernel(changed);
}

bool has_other_group_map(const Record& r) {
  const call::Dims d = call::validate(r);
  return has_groups(r) && d.H > 1;
}
double scale_of_call(const Record& r) {
  return call::resolved_scale(r.convention, call::validate(r).K);
}
bool has_scale(const Record& r) { return has_tokens(r) && scale_of_call(r) != 1.0; }
bool has_scale_to_repeat(const Record& r) { return has_scale(r) && scale_of_call(r) != 0.0; }

bool has_sigmoid(const Record& r) {
  return r.convention.beta != BetaForm::kDirect && has_tokens(r);
}
bool has_sigmoid2(const Record& r) {
  return r.convention.beta == BetaForm::kSigmoid2 && has_tokens(r);
}
bool has_zero_beta(const Record& r) {
  const BetaForm form = r.convention.beta;
  const std::vector<double> b = r.inputs.at(form == BetaForm::kDirect ? "beta" : "b").to_doubles();
  return std::ranges::any_of(b,
                             [&](double x) { return delta::beta_value<double>(form, x) == 0.0; });
}
double slope_missing(BetaForm, double) { return 1.0; }
double slope_half(BetaForm form, double b) {
  return right_beta(form == BetaForm::kSigmoid2 ? BetaForm::kSigmoid : form, b);
}

constexpr calls::Meant kSmallEps[] = {{"l2_eps", "", "1e-12"}};

constexpr std::string_view kGroups = "Gradients of groups and scale";
constexpr std::string_view kNorms = "Gradients of the norm";
constexpr std::string_view kBetas = "Gradients of beta";

template <auto change>
constexpr calls::Mistake part_row(std::string_view name, std::string_view group,
                                  std::string_view meaning, bool (*applies)(const Record&),
                                  bool rounds = false) {
  return {.name = name,
          .group = group,
          .meaning = meaning,
          .applies = applies,
          .commit = commit_chain<change>,
          .rounds = rounds};
}

constexpr std::array kRowChainMistakes{
    part_row<[](Chain& c) { c.group = GroupSum::kLast; }>(
        "group_not_summed", kGroups,
        "dq and dk of a head are those of the last value head that reads it", has_groups),
    part_row<[](Chain& c) { c.group = GroupSum::kMean; }>(
        "group_mean", kGroups, "dq and dk of a head are the mean over its value heads, not the sum",
        has_groups),
    part_row<[](Chain& c) { c.group = GroupSum::kOtherMap; }>(
        "group_sum_other_map", kGroups,
        "dq and dk are summed over the value heads that the other head_map gives the head",
        has_other_group_map),
    part_row<[](Chain& c) { c.group = GroupSum::kRounded; }>(
        "group_sum_bf16", kGroups,
        "dq and dk of value heads are rounded to bf16 and summed up in bf16", has_groups,
        calls::kRounds),
    part_row<[](Chain& c) { c.scales = 0; }>("dq_scale_missing", kGroups, "dq lacks the scale",
                                             has_scale),
    part_row<[](Chain& c) { c.scales = 2; }>("dq_scale_twice", kGroups, "dq has the scale twice",
                                             has_scale_to_repeat),
    part_row<[](Chain& c) { c.q_norm = c.k_norm = norm_missing; }>(
        "norm_adjoint_missing", kNorms, "dq and dk are the gradients by the normalised q and k",
        has_norm),
    part_row<[](Chain& c) { c.q_norm = c.k_norm = norm_unprojected; }>(
        "norm_adjoint_unprojected", kNorms,
        "dq and dk are divided by the norm, and keep the part along q and k", has_norm),
    part_row<[](Chain& c) { c.q_norm = c.k_norm = norm_twice; }>(
        "norm_adjoint_twice", kNorms, "dq and dk pass the norm's adjoint twice", has_normed_rows),
    part_row<[](Chain& c) { c.k_norm = norm_missing; }>(
        "norm_adjoint_q_only", kNorms, "dk is the gradient by the normalised k", has_norm),
    part_row<[](Chain& c) { c.q_norm = c.k_norm = norm_without_eps; }>(
        "norm_adjoint_without_eps", kNorms,
        "the norm's adjoint divides by the norm alone, without the eps of the forward pass",
        has_eps_in_root),
    calls::Mistake{"norm_eps_fixed", kNorms, "the eps of the norm is 1e-12", has_visible_eps,
                   other_eps, kSmallEps},
    part_row<[](Chain& c) { c.beta = slope_missing; }>(
        "beta_slope_missing", kBetas, "db is the gradient by the sigmoid of b", has_sigmoid),
    part_row<[](Chain& c) { c.beta = slope_half; }>(
        "beta_slope_half", kBetas, "db lacks the factor 2 of beta = 2 sigmoid(b)", has_sigmoid2),
    part_row<[](Chain& c) { c.dbeta_over_beta = true; }>(
        "dbeta_divided_by_beta", kBetas,
        "dbeta is what beta multiplies, divided by beta: NaN where beta is 0", has_zero_beta),
    part_row<[](Chain& c) { c.dbeta_rounded = true; }>(
        "dbeta_bf16", kBetas, "dbeta is rounded to bf16 before it passes the sigmoid", has_sigmoid,
        calls::kRounds),
};

}  // namespace

std::span<const calls::Mistake> row_chain_mistakes() { return kRowChainMistakes; }

}  // namespace goldenrule::backward
