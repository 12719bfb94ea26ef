// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the norm of q and k and in the scale.
#include <array>
#include <cmath>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/permits.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/rule/gate.hpp"

namespace goldenrule::delta {
namespace {

using call::QkNorm;
using call::Record;
using call::TensorMap;
using contract::Activation;

TensorMap with_scale(const Record& r, const calls::Kernel& kernel, std::optional<double> scale) {
  Record changed = calls::without_outputs(r);
  changed.convention.scale = scale;
  return kernel(changed);
}
TensorMap with_norm(const Record& r, const calls::Kernel& kernel, QkNorm norm) {
  Record changed = calls::without_outputs(r);
  changed.convention.qk_l2norm = norm;
  return kernel(changed);
}
bool has_norm(const Record& r) { return r.convention.qk_l2norm != QkNorm::kNone; }
bool is_inside_root(const Record& r) { return r.convention.qk_l2norm == QkNorm::kRsqrtSumEps; }

// Replaces each row x of `name` by f(x).
template <class F>
void change_rows(Record& r, const char* name, std::int64_t K, F&& f) {
  const call::Tensor given = r.inputs.at(name);
  std::vector<double> values = given.to_doubles();
  for (std::size_t row = 0; row < values.size(); row += static_cast<std::size_t>(K)) {
    f(std::span(values).subspan(row, static_cast<std::size_t>(K)));
  }
  r.inputs[name] = call::Tensor(call::DType::kF64, given.shape(), values);
}

bool scale_missing_applies(const Record& r) { return scale_of(r) != 1.0; }
TensorMap scale_missing(const Record& r, const calls::Kernel& kernel) {
  return with_scale(r, kernel, 1.0);
}

bool scale_twice_applies(const Record& r) { return scale_of(r) != 1.0 && scale_of(r) != 0.0; }
TensorMap scale_twice(const Record& r, const calls::Kernel& kernel) {
  return with_scale(r, kernel, scale_of(r) * scale_of(r));
}

bool is_zero_scale(const Record& r) { return r.convention.scale == 0.0; }
TensorMap scale_zero_default(const Record& r, const calls::Kernel& kernel) {
  return with_scale(r, kernel, std::nullopt);
}

bool has_own_scale(const Record& r) {
  return scale_of(r) != call::resolved_scale({}, call::validate(r).K);
}
TensorMap scale_ignored(const Record& r, const calls::Kernel& kernel) {
  return with_scale(r, kernel, std::nullopt);
}

TensorMap l2_ignored(const Record& r, const calls::Kernel& kernel) {
  return with_norm(r, kernel, QkNorm::kNone);
}

TensorMap l2_eps_outside(const Record& r, const calls::Kernel& kernel) {
  return with_norm(r, kernel, QkNorm::kNormPlusEps);
}

bool max_form_applies(const Record& r) {
  return has_norm(r) && r.convention.qk_l2norm != QkNorm::kMaxNormEps;
}
TensorMap l2_max_form(const Record& r, const calls::Kernel& kernel) {
  return with_norm(r, kernel, QkNorm::kMaxNormEps);
}

// Only the rows of `name` are normalised.
TensorMap with_one_norm(const Record& r, const calls::Kernel& kernel, const char* name) {
  Record changed = calls::without_outputs(r);
  change_rows(changed, name, call::validate(r).K, [&](std::span<double> x) {
    double sum = 0.0;
    for (const double y : x) sum += y * y;
    const double divisor = norm_divisor(r.convention, sum);
    for (double& y : x) y /= divisor;
  });
  changed.convention.qk_l2norm = QkNorm::kNone;
  return kernel(changed);
}
TensorMap l2_k_only(const Record& r, const calls::Kernel& kernel) {
  return with_one_norm(r, kernel, "k");
}
TensorMap l2_q_only(const Record& r, const calls::Kernel& kernel) {
  return with_one_norm(r, kernel, "q");
}

// Where the rows already have length 1 a norm is no mistake. Such rows in 8 bits are off by 2^-9.
bool unasked_applies(const Record& r) {
  if (has_norm(r)) return false;
  constexpr double kOff = 0x1p-7;
  call::Convention norm = r.convention;
  norm.qk_l2norm = QkNorm::kRsqrtSumEps;
  const std::int64_t K = call::validate(r).K;
  for (const char* name : {"q", "k"}) {
    const call::Tensor& x = r.inputs.at(name);
    for (std::int64_t row = 0; row < x.size(); row += K) {
      double sum = 0.0;
      for (std::int64_t i = row; i < row + K; ++i) sum += x[i] * x[i];
      if (sum > 0.0 && std::fabs(norm_divisor(norm, sum) - 1.0) > kOff) return true;
    }
  }
  return false;
}
TensorMap l2_unasked(const Record& r, const calls::Kernel& kernel) {
  return with_norm(r, kernel, QkNorm::kRsqrtSumEps);
}

// x * rsqrt(sum(x * x) + eps) with every result rounded to bf16, the sum accumulated in fp32.
TensorMap norm_bf16(const Record& r, const calls::Kernel& kernel) {
  const auto bf16 = [](double x) { return call::round_to(call::DType::kBF16, x); };
  Record changed = calls::without_outputs(r);
  const std::int64_t K = call::validate(r).K;
  for (const char* name : {"q", "k"}) {
    change_rows(changed, name, K, [&](std::span<double> x) {
      double sum = 0.0;
      for (const double y : x) sum += bf16(y * y);
      sum = bf16(sum);
      const double inverse = bf16(1.0 / norm_divisor(r.convention, sum));
      for (double& y : x) y = bf16(y * inverse);
    });
  }
  changed.convention.qk_l2norm = QkNorm::kNone;
  return kernel(changed);
}

TensorMap norm_to_bf16(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  for (const char* name : {"q", "k"}) {
    change_rows(changed, name, call::validate(r).K, [&](std::span<double> x) {
      double sum = 0.0;
      for (const double y : x) sum += y * y;
      const double divisor = norm_divisor(r.convention, sum);
      for (double& y : x) y = call::round_to(call::DType::kBF16, y / divisor);
    });
  }
  changed.convention.qk_l2norm = QkNorm::kNone;
  return kernel(changed);
}

bool has_own_eps(const Record& r) {
  return has_norm(r) && r.convention.l2_eps != call::Convention{}.l2_eps;
}
TensorMap l2_eps_ignored(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.convention.l2_eps = call::Convention{}.l2_eps;
  return kernel(changed);
}

// The eps is added to the mean of the squares.
TensorMap l2_eps_mean(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.convention.l2_eps *= static_cast<double>(call::validate(r).K);
  return kernel(changed);
}

// x / sqrt(mean + eps): rows have length sqrt(K) instead of 1.
TensorMap l2_rms(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  const std::int64_t K = call::validate(r).K;
  for (const char* name : {"q", "k"}) {
    change_rows(changed, name, K, [&](std::span<double> x) {
      double sum = 0.0;
      for (const double y : x) sum += y * y;
      const double divisor = std::sqrt(sum / static_cast<double>(K) + r.convention.l2_eps);
      for (double& y : x) y /= divisor;
    });
  }
  changed.convention.qk_l2norm = QkNorm::kNone;
  return kernel(changed);
}

// Rounding the sum of squares, its reciprocal root and the products to bf16 leaves a factor (1 + e)
// common to a row, |e| <= 2^-10 + 2^-9, and 2^-9 per element. The budget grants each element of q^
// and k^ (and everything made of them) its 2^-9 about lambda / sqrt(3) >= 3 times.
std::string_view norm_bf16_permitted(const contract::Contract& c) {
  if (!keeps_at_most(8, c, Activation::kQuery, Activation::kKey)) return {};
  return "q^ and k^ are rounded to 8 bits, and the budget covers several such errors; what bf16 "
         "arithmetic adds is a factor within 1.5 of them";
}

constexpr calls::Meant kScaleOne[] = {{"scale", "", "1"}};
constexpr calls::Meant kNoNorm[] = {{"qk_l2norm", "", "none"}};
constexpr calls::Meant kNorm[] = {{"qk_l2norm", "none", "rsqrt_sum_eps"}};
constexpr calls::Meant kEpsOutside[] = {{"qk_l2norm", "", "norm_plus_eps"}};
constexpr calls::Meant kMaxForm[] = {{"qk_l2norm", "", "max_norm_eps"}};
constexpr calls::Meant kUsualEps[] = {{"l2_eps", "", "1e-6"}};

constexpr std::string_view kNormGroup = "Normalization and scale";
constexpr std::array kNormMistakes{
    calls::Mistake{"scale_missing", kNormGroup, "q is not scaled", scale_missing_applies,
                   scale_missing, kScaleOne},
    calls::Mistake{"scale_twice", kNormGroup, "q is scaled twice", scale_twice_applies,
                   scale_twice},
    calls::Mistake{"scale_zero_default", kNormGroup, "a scale of 0 is read as `use K^-0.5`",
                   is_zero_scale, scale_zero_default},
    calls::Mistake{"scale_ignored", kNormGroup, "the scale of the call is not used, K^-0.5 is",
                   has_own_scale, scale_ignored},
    calls::Mistake{"l2_ignored", kNormGroup, "q and k are not normalised", has_norm, l2_ignored,
                   kNoNorm},
    calls::Mistake{"l2_unasked", kNormGroup,
                   "q and k are normalised where the call does not say so", unasked_applies,
                   l2_unasked, kNorm},
    calls::Mistake{
        "l2_eps_outside", kNormGroup,
        "the eps of the norm stands outside the root: x / (n + eps) for x / sqrt(n^2 + eps)",
        is_inside_root, l2_eps_outside, kEpsOutside},
    calls::Mistake{"l2_max_form", kNormGroup,
                   "the norm is x / max(n, eps) (torch F.normalize) where the call adds the eps",
                   max_form_applies, l2_max_form, kMaxForm},
    calls::Mistake{"l2_k_only", kNormGroup, "k is normalised, q is not", has_norm, l2_k_only},
    calls::Mistake{"l2_q_only", kNormGroup, "q is normalised, k is not", has_norm, l2_q_only},
    calls::Mistake{"l2_eps_ignored", kNormGroup,
                   "the eps of the call is not used in the norm, 1e-6 is", has_own_eps,
                   l2_eps_ignored, kUsualEps},
    calls::Mistake{
        "l2_eps_mean", kNormGroup,
        "the eps is added to the mean of the squares, not to their sum: it is K times as "
        "large",
        is_inside_root, l2_eps_mean},
    calls::Mistake{"l2_rms", kNormGroup,
                   "the norm is that of RMSNorm, x / sqrt(mean + eps): q and k have length K^0.5",
                   has_norm, l2_rms},
    calls::Mistake{"norm_bf16",
                   kNormGroup,
                   "q and k are normalised in bf16 arithmetic",
                   has_norm,
                   norm_bf16,
                   {},
                   calls::kRounds,
                   norm_bf16_permitted},
    calls::Mistake{"norm_bf16",
                   kNormGroup,
                   "the normalised q and k are rounded to bf16",
                   has_norm,
                   norm_to_bf16,
                   {},
                   calls::kRounds,
                   norm_bf16_permitted},
};

}  // namespace

std::span<const calls::Mistake> norm_mistakes() { return kNormMistakes; }

}  // namespace goldenrule::delta
