// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the numbers: scale, soft cap, dimensions, rounding, and what is returned.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "reference/attention/mistakes/mistake.hpp"
#include "reference/contract/format.hpp"

namespace goldenrule::attention {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kRowTile = 64;
constexpr std::int64_t kKeyTile = 64;
constexpr std::int64_t kDimTile = 128;

void scale_default(Work& work) {
  work.plan.scale = call::resolved_scale(call::Convention{}, work.plan.dims.K);
}
void scale_missing(Work& work) { work.plan.scale = 1.0; }
void scale_twice(Work& work) { work.plan.scale *= work.plan.scale; }
void log2e_missing(Work& work) { work.plan.scale *= std::numbers::ln2; }
void cap_ignored(Work& work) { work.plan.soft_cap = 0.0; }
// scale cap tanh(<q,k> / cap) is cap' tanh(s / cap') with cap' = scale cap.
void cap_unscaled(Work& work) { work.plan.soft_cap *= std::fabs(work.plan.scale); }

// f(index, value) for every element of q, in f64.
template <class F>
void change_q(Work& work, const F& f) {
  const call::Tensor& q = work.call.record.inputs.at("q");
  std::vector<double> values = q.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = f(static_cast<std::int64_t>(i), values[i]);
  }
  work.record.inputs["q"] = call::Tensor(call::DType::kF64, q.shape(), values);
}
void q_scaled_bf16(Work& work) {
  const double scale = work.plan.scale;
  change_q(work, [&](std::int64_t, double x) {
    return contract::round_to(contract::Format::kBF16, x * scale);
  });
  work.plan.scale = 1.0;
}
void d_tail_dropped(Work& work) {
  const std::int64_t K = work.plan.dims.K;
  if (K <= kDimTile) return;
  change_q(work, [&](std::int64_t i, double x) { return i % K < kDimTile ? x : 0.0; });
}

bool lse_base(const Plan& plan, call::TensorMap& outputs) {
  call::Tensor& lse = outputs.at("lse");
  const double factor = plan.lse_base == LseBase::kE ? std::numbers::log2e : std::numbers::ln2;
  for (std::int64_t i = 0; i < lse.size(); ++i) lse.set(i, lse[i] * factor);
  return lse.size() > 0;
}

void set_row(const Plan& plan, const Request& request, const RowPlace& row, double x,
             call::TensorMap& outputs) {
  call::Tensor& o = outputs.at("o");
  const std::int64_t first = o_index(plan, request, row);
  for (std::int64_t i = 0; i < plan.dims.V; ++i) o.set(first + i, x);
}

// change(request, query) for all valid queries that which(request, query) names.
template <class Which>
bool spoil_rows(const Plan& plan, call::TensorMap& outputs, double x, const Which& which) {
  bool some = false;
  for (const Request& request : plan.requests) {
    for (std::int64_t i = 0; i < request.valid; ++i) {
      if (!which(request, i)) continue;
      some = true;
      for (std::int64_t j = 0; j < plan.dims.HV; ++j) set_row(plan, request, {i, j}, x, outputs);
    }
  }
  return some;
}

// Visible keys of a query among the first `most` of its request.
std::int64_t seen(const Request& request, std::int64_t query, std::int64_t most) {
  std::int64_t count = 0;
  for (const Run& run : request.runs) {
    for (std::int64_t i = 0; i < std::min(run.count, most); ++i) {
      if (request.visible[static_cast<std::size_t>(query)].contains(run.t + i)) ++count;
    }
    most -= std::min(run.count, most);
  }
  return count;
}

bool masked_tile(const Plan& plan, call::TensorMap& outputs) {
  return spoil_rows(plan, outputs, kNaN, [](const Request& request, std::int64_t i) {
    return request.key_count() > 0 && seen(request, i, kKeyTile) == 0;
  });
}
bool empty_row(const Plan& plan, call::TensorMap& outputs) {
  return spoil_rows(plan, outputs, kNaN, [](const Request& request, std::int64_t i) {
    return seen(request, i, kMaxKeys) == 0;
  });
}
bool row_tail(const Plan& plan, call::TensorMap& outputs) {
  return spoil_rows(plan, outputs, kNaN,
                    [](const Request&, std::int64_t i) { return i >= kRowTile; });
}

constexpr std::array kMistakes{
    Mistake{.name = "scale_default",
            .group = "scores",
            .meaning = "scales by D^-0.5, whatever is asked for",
            .change = scale_default,
            .reported = "Diffulex"},
    Mistake{.name = "scale_missing",
            .group = "scores",
            .meaning = "does not scale",
            .change = scale_missing},
    Mistake{
        .name = "scale_twice", .group = "scores", .meaning = "scales twice", .change = scale_twice},
    Mistake{.name = "log2e_missing",
            .group = "scores",
            .meaning = "takes exp2 of a score that was not multiplied by log2(e)",
            .change = log2e_missing},
    Mistake{.name = "soft_cap_ignored",
            .group = "scores",
            .meaning = "does not cap scores",
            .change = cap_ignored,
            .reported = "sgl-kernel-xpu #491"},
    Mistake{.name = "soft_cap_unscaled",
            .group = "scores",
            .meaning = "caps the product before it is scaled",
            .change = cap_unscaled,
            .reported = "FA #1025"},
    Mistake{.name = "q_scaled_bf16",
            .group = "scores",
            .meaning = "rounds q to bf16 after scaling it",
            .change = q_scaled_bf16},
    Mistake{.name = "d_tail_dropped",
            .group = "scores",
            .meaning = "reads the first 128 key dimensions",
            .change = d_tail_dropped,
            .reported = "Diffulex"},
    Mistake{.name = "lse_base_mixed",
            .group = "outputs",
            .meaning = "returns lse in the other base",
            .after = lse_base,
            .reported = "SGLang #40903, #35045"},
    Mistake{.name = "masked_tile_nan",
            .group = "outputs",
            .meaning = "makes NaN of a row whose first tile of keys is masked",
            .after = masked_tile,
            .reported = "Diffulex"},
    Mistake{.name = "empty_row_garbage",
            .group = "outputs",
            .meaning = "does not write a row that sees no key",
            .after = empty_row,
            .reported = "FlashInfer #4452"},
    Mistake{.name = "row_tail_unwritten",
            .group = "outputs",
            .meaning = "does not write the queries behind its tile",
            .after = row_tail,
            .reported = "Diffulex"},
};

}  // namespace

std::span<const Mistake> number_mistakes() { return kMistakes; }

}  // namespace goldenrule::attention
