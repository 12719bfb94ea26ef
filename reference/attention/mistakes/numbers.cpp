// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in the numbers: scale, soft cap, dimensions, rounding, and what is returned.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "reference/attention/mistakes/mistake.hpp"
#include "reference/attention/rule/evaluate.hpp"
#include "reference/calls/unwritten.hpp"
#include "reference/contract/format.hpp"

namespace goldenrule::attention {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kRowTile = 64;
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

// f(index, value) for every element of q, which is a number of `type`: what a kernel rounds on the
// way depends on the type of q.
template <class F>
void change_q(Work& work, call::DType type, const F& f) {
  const call::Tensor& q = work.call.inputs.at("q");
  std::vector<double> values = q.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = f(static_cast<std::int64_t>(i), values[i]);
  }
  work.record.inputs["q"] = call::Tensor(type, q.shape(), values);
}
void q_scaled_bf16(Work& work) {
  const double scale = work.plan.scale;
  const bool half = work.call.inputs.at("q").dtype() == call::DType::kF16;
  const contract::Format format = half ? contract::Format::kF16 : contract::Format::kBF16;
  change_q(work, half ? call::DType::kF16 : call::DType::kBF16,
           [&](std::int64_t, double x) { return contract::round_to(format, x * scale); });
  work.plan.scale = 1.0;
}
void d_tail_dropped(Work& work) {
  const std::int64_t K = work.plan.dims.K;
  if (K <= kDimTile) return;
  const call::DType type = work.call.inputs.at("q").dtype();
  change_q(work, type, [&](std::int64_t i, double x) { return i % K < kDimTile ? x : 0.0; });
}

bool lse_base(const call::Record&, const Plan& plan, call::TensorMap& outputs) {
  call::Tensor& lse = outputs.at("lse");
  const double factor = plan.lse_base == LseBase::kE ? std::numbers::log2e : std::numbers::ln2;
  for (std::int64_t i = 0; i < lse.size(); ++i) lse.set(i, lse[i] * factor);
  return lse.size() > 0;
}

// The memory of the other layout, in the shape that is declared.
bool lse_transposed(const call::Record&, const Plan& plan, call::TensorMap& outputs) {
  call::Tensor& lse = outputs.at("lse");
  const std::int64_t rows = lse.shape().front();
  const std::int64_t columns = lse.shape().back();
  if (plan.dims.tokens < 2 || plan.dims.HV < 2) return false;
  const std::vector<double> right = lse.to_doubles();
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      lse.set(j * rows + i, right[static_cast<std::size_t>(i * columns + j)]);
    }
  }
  return true;
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

bool masked_tile(const call::Record&, const Plan& plan, call::TensorMap& outputs) {
  return spoil_rows(plan, outputs, kNaN, [](const Request& request, std::int64_t i) {
    return request.key_count() > 0 && seen(request, i, kKeyTile) == 0;
  });
}
bool empty_row(const call::Record&, const Plan& plan, call::TensorMap& outputs) {
  return spoil_rows(plan, outputs, calls::kUnwritten, [](const Request& request, std::int64_t i) {
    return seen(request, i, kMaxKeys) == 0;
  });
}
bool row_tail(const call::Record&, const Plan& plan, call::TensorMap& outputs) {
  return spoil_rows(plan, outputs, calls::kUnwritten,
                    [](const Request&, std::int64_t i) { return i >= kRowTile; });
}

// Weight 0 times NaN. The slots are those of the last page behind the last key.
bool v_tail(const call::Record& record, const Plan& plan, call::TensorMap& outputs) {
  const call::Tensor* v = record.find_input("v_cache");
  const std::int64_t P = plan.dims.page_size;
  if (v == nullptr || P == 0) return false;
  bool some = false;
  const auto spoil = [&](const Request& request, std::int64_t slot, std::int64_t head) {
    const auto key_head = plan.key_head[static_cast<std::size_t>(head)];
    const std::int64_t first = key_element(plan, Source::kCache, slot, key_head, plan.dims.V);
    for (std::int64_t c = 0; c < plan.dims.V; ++c) {
      if (std::isfinite((*v)[first + c])) continue;
      for (std::int64_t i = 0; i < request.valid; ++i) {
        outputs.at("o").set(o_index(plan, request, {i, head}) + c, kNaN);
        some = true;
      }
    }
  };
  for (const Request& request : plan.requests) {
    const auto last =
        std::ranges::find(request.runs.rbegin(), request.runs.rend(), Source::kCache, &Run::source);
    if (last == request.runs.rend()) continue;
    const std::int64_t end = last->row + last->count;
    for (std::int64_t slot = end; slot % P != 0; ++slot) {
      for (std::int64_t head = 0; head < plan.dims.HV; ++head) spoil(request, slot, head);
    }
  }
  return some;
}

constexpr std::array kOtherBase{calls::Meant{"lse_base", "e", "2"},
                                calls::Meant{"lse_base", "2", "e"}};

constexpr std::array kNumbersMistakes{
    mistake<scale_default>("scale_default", "scores", "scales by D^-0.5, whatever is asked for",
                           "Diffulex"),
    mistake<scale_missing>("scale_missing", "scores", "does not scale"),
    mistake<scale_twice>("scale_twice", "scores", "scales twice"),
    mistake<log2e_missing>("log2e_missing", "scores",
                           "takes exp2 of a score that was not multiplied by log2(e)"),
    mistake<cap_ignored>("soft_cap_ignored", "scores", "does not cap scores",
                         "sgl-kernel-xpu #491"),
    mistake<cap_unscaled>("soft_cap_unscaled", "scores", "caps the product before it is scaled",
                          "FA #1025"),
    mistake<q_scaled_bf16>("q_scaled_bf16", "scores",
                           "rounds q to its 16 bits, or to bf16, after scaling it", "", {},
                           calls::kRounds),
    mistake<d_tail_dropped>("d_tail_dropped", "scores", "reads the first 128 key dimensions",
                            "Diffulex"),
    mistake<lse_base>("lse_base_mixed", "outputs", "returns lse in the other base",
                      "SGLang #40903, #35045", kOtherBase),
    mistake<lse_transposed>("lse_transposed", "outputs",
                            "writes lse as [H,T] where it belongs as [T,H], or the reverse"),
    mistake<masked_tile>("masked_tile_nan", "outputs",
                         "makes NaN of a row whose first tile of keys is masked", "Diffulex"),
    mistake<empty_row>("empty_row_garbage", "outputs", "does not write a row that sees no key",
                       "FlashInfer #4452"),
    mistake<v_tail>("v_tail_nan", "outputs",
                    "multiplies the values behind the last key of a page by 0, NaN among them",
                    "FA #1745, #2374"),
    mistake<row_tail>("row_tail_unwritten", "outputs", "does not write the queries behind its tile",
                      "Diffulex"),
};

}  // namespace

std::span<const calls::Mistake> number_mistakes() { return kNumbersMistakes; }

}  // namespace goldenrule::attention
