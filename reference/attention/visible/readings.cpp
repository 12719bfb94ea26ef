// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/readings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "reference/attention/budget/row_budget.hpp"
#include "reference/attention/rule/evaluate.hpp"
#include "reference/scalar/infinity.hpp"

namespace goldenrule::attention {
namespace {

constexpr std::size_t kColumns = 8;      // by which intervals are screened
constexpr std::size_t kConfirmed = 24;   // intervals of a row and order
constexpr double kSlack = 2.0;           // of the estimate over the budget
constexpr double kUnderflow = 0x1p-900;  // a sum of weights below says nothing

double half_ulp(call::DType type, double reach) { return 0.5 * call::ulp(type, reach); }

// The request of a kernel that sees these keys: one query, that of the row.
Request request_of(const Observed& seen, const Place& place, const KeyLine& line,
                   const Interval& interval) {
  const Request& whole = seen.plan->requests[place.request];
  Request request{.first_query = whole.first_query + place.row.query, .queries = 1, .valid = 1};
  std::int64_t count = 0;
  const auto add = [&](const KeyPlace& key) {
    Run* last = request.runs.empty() ? nullptr : &request.runs.back();
    if (last != nullptr && last->source == key.source && last->row + last->count == key.row) {
      ++last->count;
    } else {
      request.runs.push_back({key.source, key.row, count, 1});
    }
    ++count;
  };
  for (std::int64_t i = interval.first; i < interval.last; ++i) {
    add(line.keys[static_cast<std::size_t>(i)]);
  }
  if (line.beside_fresh) {
    for (const KeyPlace& key : visible_keys(whole, place.row.query)) {
      if (key.source == Source::kFresh) add(key);
    }
  }
  request.visible = {{0, count}};
  return request;
}

// Distances from a captured element to what a kernel of this set gives.
bool within(double y, double exact, double spread, double radius, call::DType type) {
  if (!std::isfinite(exact)) return false;
  return std::fabs(y - exact) <= spread + radius + half_ulp(type, std::fabs(exact) + spread);
}

struct Sums {
  double l = 0.0;
  std::array<double, kColumns> v{}, size{}, square{};

  void add(double p, const std::array<double, kColumns>& value) {
    l += p;
    for (std::size_t x = 0; x < kColumns; ++x) {
      const double term = p * value[x];
      v[x] += term;
      size[x] += std::fabs(term);
      square[x] += term * term;
    }
  }
};

// One row, one order of keys.
class Screening {
 public:
  Screening(const Observed& seen, const Place& place, const KeyLine& line)
      : seen_(seen), place_(place), line_(line), declared_(declared(seen, place, line)) {
    const Plan& plan = *seen.plan;
    const call::Tensor& o = seen.record().outputs.at("o");
    type_ = o.dtype();
    const std::int64_t first = o_index(plan, plan.requests[place.request], place.row);
    for (std::size_t x = 0; x < kColumns; ++x) {
      column_[x] = static_cast<std::int64_t>(x) * plan.dims.V / static_cast<std::int64_t>(kColumns);
      y_[x] = o[first + column_[x]];
    }
    read();
    estimate();
  }

  Readings run(bool complete) {
    near_.push_back({declared_.first, declared_.first});
    upward(declared_.first, -1);
    for (std::int64_t first = 0; complete && first < line_.size(); ++first) {
      if (first != declared_.first) upward(first, declared_.last);
    }
    downward();
    Readings readings{.fits = {}, .complete = complete, .crowded = near_.size() > kConfirmed};
    if (readings.crowded) return readings;
    for (const Interval& interval : near_) {
      if (reproduces(seen_, place_, line_, interval)) readings.fits.push_back(interval);
    }
    return readings;
  }

 private:
  // Scores and screened columns of the keys of the order, then of those beside it.
  void read() {
    const Plan& plan = *seen_.plan;
    const std::vector<double> q =
        query_of(seen_.tensors, plan, plan.requests[place_.request], place_.row);
    const std::int64_t head = key_head_of(plan, place_.row);
    std::vector<KeyPlace> keys = line_.keys;
    if (line_.beside_fresh) {
      for (const KeyPlace& key : visible_keys(plan.requests[place_.request], place_.row.query)) {
        if (key.source == Source::kFresh) keys.push_back(key);
      }
    }
    std::vector<double> k(q.size());
    std::vector<double> v(static_cast<std::size_t>(plan.dims.V));
    for (const KeyPlace& key : keys) {
      seen_.tensors.read_key(plan, key.source, key.row, head, k.data());
      seen_.tensors.read_value(plan, key.source, key.row, head, v.data());
      double s = score_of<double>(plan, q, k.data());
      for (const double x : v) s = std::isfinite(x) ? s : std::nan("");
      weight_.push_back(s);
      if (std::isfinite(s)) top_ = std::max(top_, s);
      if (std::isfinite(s)) largest_ = std::max(largest_, std::fabs(s));
      std::array<double, kColumns> columns{};
      for (std::size_t x = 0; x < kColumns; ++x) {
        columns[x] = v[static_cast<std::size_t>(column_[x])];
      }
      value_.push_back(columns);
    }
    for (double& s : weight_) s = std::isfinite(s) ? std::exp(s - top_) : std::nan("");
    for (std::size_t i = line_.keys.size(); i < keys.size(); ++i)
      beside_.add(weight_[i], value_[i]);
  }

  // What the estimate of a budget is made of: multiples of the root of the squares and of the
  // sizes.
  void estimate() {
    const contract::Softmax* rounding = seen_.judgement->contract.softmax();
    if (rounding == nullptr) return;
    const double multiple = seen_.judgement->expected.outputs.at("o").grant.multiple;
    const auto format = operand_format(seen_.tensors.q->dtype());
    const double h = format ? contract::unit_roundoff(*format) : 0.0;
    const bool stored = rounding->at(SoftmaxPoint::kScores);
    random_ = kSlack * multiple * h / std::numbers::sqrt3 *
              (1.0 + (stored ? std::numbers::sqrt2 * largest_ : 0.0));
    systematic_ = kSlack * (0x1p-18 * (1.0 + largest_) +
                            (seen_.plan->soft_cap > 0.0 ? rounding->tanh_error * largest_ : 0.0));
  }

  [[nodiscard]] bool is_near(const Sums& sums) const {
    if (sums.l < kUnderflow) return true;
    for (std::size_t x = 0; x < kColumns; ++x) {
      const double o = sums.v[x] / sums.l;
      const double spread = random_ * std::sqrt(sums.square[x] / (sums.l * sums.l) + o * o) +
                            systematic_ * sums.size[x] / sums.l;
      if (!(std::fabs(y_[x] - o) <= spread + 2.0 * half_ulp(type_, std::fabs(o) + spread))) {
        return false;
      }
    }
    return true;
  }

  // All intervals from `first` on, but the one that ends at `without`; a key that is not finite
  // ends them.
  void upward(std::int64_t first, std::int64_t without) {
    Sums sums = beside_;
    for (std::int64_t i = first; i < line_.size() && near_.size() <= kConfirmed; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (std::isnan(weight_[at])) return;
      sums.add(weight_[at], value_[at]);
      if (i + 1 != without && is_near(sums)) near_.push_back({first, i + 1});
    }
  }

  // All intervals that end where the call says, but the one that begins there too.
  void downward() {
    Sums sums = beside_;
    for (std::int64_t i = declared_.last; i-- > 0 && near_.size() <= kConfirmed;) {
      const auto at = static_cast<std::size_t>(i);
      if (std::isnan(weight_[at])) return;
      sums.add(weight_[at], value_[at]);
      if (i != declared_.first && is_near(sums)) near_.push_back({i, declared_.last});
    }
  }

  const Observed& seen_;
  const Place& place_;
  const KeyLine& line_;
  Interval declared_;
  call::DType type_{};
  std::array<std::int64_t, kColumns> column_{};
  std::array<double, kColumns> y_{};
  std::vector<double> weight_;
  std::vector<std::array<double, kColumns>> value_;
  double top_ = -kInfinity, largest_ = 0.0;
  double random_ = 0.0, systematic_ = 0x1p-40;
  Sums beside_;
  std::vector<Interval> near_;
};

// Without a key o is 0 and lse -inf.
bool is_empty_row(const Observed& seen, const Place& place) {
  const Plan& plan = *seen.plan;
  const Request& request = plan.requests[place.request];
  const call::Tensor& o = seen.record().outputs.at("o");
  const std::int64_t first = o_index(plan, request, place.row);
  for (std::int64_t x = 0; x < plan.dims.V; ++x) {
    if (o[first + x] != 0.0) return false;
  }
  const auto lse = seen.record().outputs.find("lse");
  if (lse == seen.record().outputs.end()) return true;
  const std::size_t at = lse_index(plan, request.first_query + place.row.query, place.row.head);
  return lse->second[static_cast<std::int64_t>(at)] == -kInfinity;
}

}  // namespace

Interval declared(const Observed& seen, const Place& place, const KeyLine& line) {
  const Range visible =
      seen.plan->requests[place.request].visible[static_cast<std::size_t>(place.row.query)];
  const Interval interval = line.indices(visible);
  return {std::min(interval.first, line.own), std::min(interval.last, line.own)};
}

bool reproduces(const Observed& seen, const Place& place, const KeyLine& line,
                const Interval& interval) {
  const Plan& plan = *seen.plan;
  const Request request = request_of(seen, place, line, interval);
  if (request.runs.empty()) return is_empty_row(seen, place);
  const RowPlace row{.query = 0, .head = place.row.head};
  const auto value = two_pass<double>(seen.tensors, plan, request, {&row, 1}, true)[0];
  const double lse = value.lse;
  const verdict::Expectations& expected = seen.judgement->expected;
  RowBudget budget;
  budget.sigma = budget.bias = std::vector<double>(value.o.size());
  const contract::Softmax* rounding = seen.judgement->contract.softmax();
  const double multiple = expected.outputs.at("o").grant.multiple;
  if (rounding != nullptr) {
    budget = row_budget(seen.tensors, plan, request, row, *rounding, multiple, value.o.data(), lse);
  }
  if (budget.anything) return false;
  const call::Tensor& o = seen.record().outputs.at("o");
  const std::int64_t first = o_index(plan, request, row);
  for (std::size_t x = 0; x < value.o.size(); ++x) {
    const double spread = multiple * budget.sigma[x] + budget.bias[x];
    const double y = o[first + static_cast<std::int64_t>(x)];
    if (!within(y, value.o[x], spread, value.radius[x] + budget.flushed, o.dtype())) return false;
  }
  const auto captured = seen.record().outputs.find("lse");
  if (captured == seen.record().outputs.end()) return true;
  const auto at = static_cast<std::int64_t>(lse_index(plan, request.first_query, row.head));
  const double spread =
      expected.outputs.at("lse").grant.multiple * budget.lse_sigma + budget.lse_bias;
  return within(captured->second[at], lse, spread, value.lse_radius, captured->second.dtype());
}

std::optional<bool> Readings::knows(const Interval& interval, const Interval& declared) const {
  if (crowded) return std::nullopt;
  if (std::ranges::find(fits, interval) != fits.end()) return true;
  const bool sought =
      complete || interval.first == declared.first || interval.last == declared.last;
  return sought ? std::optional(false) : std::nullopt;
}

Readings search(const Observed& seen, const Place& place, const KeyLine& line, bool complete) {
  return Screening(seen, place, line).run(complete);
}

}  // namespace goldenrule::attention
