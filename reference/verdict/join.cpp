// SPDX-License-Identifier: Apache-2.0
//
// What comparisons of two parts of a tensor say of both together.
#include <algorithm>
#include <iterator>

#include "reference/verdict/comparison.hpp"

namespace goldenrule::verdict {
namespace {

// Rows that both have are one row.
void join_rows(std::vector<RowFindings>& to, const std::vector<RowFindings>& from) {
  if (from.empty()) return;
  if (to.empty() || to.back().row < from.front().row) {
    to.insert(to.end(), from.begin(), from.end());
    return;
  }
  std::vector<RowFindings> rows;
  std::ranges::merge(to, from, std::back_inserter(rows), {}, &RowFindings::row, &RowFindings::row);
  to.clear();
  for (const RowFindings& row : rows) {
    if (to.empty() || to.back().row != row.row) {
      to.push_back(row);
      continue;
    }
    to.back().out_of_budget += row.out_of_budget;
    to.back().nan += row.nan;
  }
}

// Of two elements with one ratio the first is the worst one.
bool is_worse(const TensorReport& a, const TensorReport& b) {
  if (!a.worst || !b.worst) return a.worst.has_value();
  return a.max_ratio > b.max_ratio ||
         (a.max_ratio == b.max_ratio && a.worst->index < b.worst->index);
}

}  // namespace

void join(Sums& to, const Sums& from) {
  to.error2 += from.error2;
  to.golden2 += from.golden2;
  to.signed_error += from.signed_error;
  to.absolute_error += from.absolute_error;
  to.all_exact = to.all_exact && from.all_exact;
  to.all_zero = to.all_zero && from.all_zero;
  to.golden_zero = to.golden_zero && from.golden_zero;
  to.signal2 += from.signal2;
  to.budget2 += from.budget2;
  to.computed = to.computed || from.computed;
  to.computed_zero = to.computed_zero && from.computed_zero;
  to.has_rule = to.has_rule || from.has_rule;
  to.rule_judged = to.rule_judged || from.rule_judged;
}

void join(TensorReport& to, const TensorReport& from) {
  for (const auto count :
       {&TensorReport::compared, &TensorReport::nonfinite, &TensorReport::undefined,
        &TensorReport::out_of_budget, &TensorReport::undecided, &TensorReport::unbounded,
        &TensorReport::vacuous, &TensorReport::nan, &TensorReport::inf, &TensorReport::unwritten}) {
    to.*count += from.*count;
  }
  if (to.first_unjudged.empty() ||
      (!from.first_unjudged.empty() && from.first_unjudged < to.first_unjudged)) {
    to.first_unjudged = from.first_unjudged;
  }
  to.max_abs = std::max(to.max_abs, from.max_abs);
  if (is_worse(from, to)) {
    to.max_ratio = from.max_ratio;
    to.worst = from.worst;
  }
  for (std::size_t i = 0; i < to.ulp_histogram.size(); ++i) {
    to.ulp_histogram[i] += from.ulp_histogram[i];
  }
  for (std::size_t i = 0; i < to.ratio_histogram.size(); ++i) {
    to.ratio_histogram[i] += from.ratio_histogram[i];
  }
  join_rows(to.failing_rows, from.failing_rows);
}

double median_of(std::span<float> ratios) {
  if (ratios.empty()) return 0.0;
  const auto middle = ratios.begin() + std::ssize(ratios) / 2;
  std::nth_element(ratios.begin(), middle, ratios.end());
  return static_cast<double>(*middle);
}

}  // namespace goldenrule::verdict
