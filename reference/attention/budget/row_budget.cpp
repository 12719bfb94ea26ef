// SPDX-License-Identifier: Apache-2.0
//
// Length: the terms of one row, each from the keys that it sees, which are read together.
#include "reference/attention/budget/row_budget.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "reference/attention/budget/binned.hpp"
#include "reference/attention/budget/rescales.hpp"
#include "reference/attention/rule/columns.hpp"
#include "reference/scalar/infinity.hpp"

namespace goldenrule::attention {
namespace {

constexpr double kU = 0x1p-24;
constexpr double kLargest = 0x1.fffffep127;
constexpr double kKappa = 2.0;

struct Key {
  KeyPlace place;
  double s = 0.0;      // as the exponential takes it
  double w = 0.0;      // exact weight
  double p = 0.0;      // what is rounded in its place
  double floor = 1.0;  // its error over h: above 1 where fp16 is subnormal
  double e = 0.0;      // E_t
  double d = 0.0;      // random error of a stored score, one bound of a uniform law
  double moved = 0.0;  // w exp(D_t) / Z, which w alone may be too small for
  double lost = 0.0;   // share of its weight that fp16 loses for certain
};

double log_of_sum(const std::vector<double>& logarithms) {
  const double top = *std::ranges::max_element(logarithms);
  double sum = 0.0;
  for (const double x : logarithms) sum += std::exp(x - top);
  return top + std::log(sum);
}

class Row {
 public:
  Row(const Tensors& tensors, const Plan& plan, const Request& request, const RowPlace& row,
      const Softmax& rounding, double multiple)
      : tensors_(tensors),
        plan_(plan),
        head_(key_head_of(plan, row)),
        rounding_(rounding),
        multiple_(multiple),
        format_(operand_format(tensors.q->dtype())) {
    if (format_) h_ = contract::unit_roundoff(*format_);
    const std::vector<double> q = query_of(tensors, plan, request, row);
    const std::vector<KeyPlace> places = visible_keys(request, row.query);
    std::vector<double> keys(q.size() * kKeysTogether);
    std::array<double, kKeysTogether> dot{}, size{};
    for (std::size_t first = 0; first < places.size(); first += kKeysTogether) {
      const std::size_t count = std::min<std::size_t>(kKeysTogether, places.size() - first);
      for (std::size_t i = 0; i < count; ++i) {
        const KeyPlace& place = places[first + i];
        tensors.read_key(plan, place.source, place.row, head_, keys.data() + i * q.size());
      }
      add_products(q.data(), keys.data(), q.size(), dot.data(), size.data());
      for (std::size_t i = 0; i < count; ++i) add_key(places[first + i], q.size(), dot[i], size[i]);
    }
    if (keys_.empty()) return;
    weigh();
    bound_errors();
  }

  /// Whether double holds the scores.
  [[nodiscard]] bool is_bounded() const { return !keys_.empty() && std::isfinite(m_); }

  RowBudget run(const double* o, double lse) {
    const auto V = static_cast<std::size_t>(plan_.dims.V);
    RowBudget budget{.sigma = std::vector<double>(V),
                     .bias = std::vector<double>(V),
                     .overflows = overflows_,
                     .column_overflows = std::vector<char>(V, overflows_ ? 1 : 0)};
    v_.resize(V);
    systematic(o, budget);
    if (rounding_.at(SoftmaxPoint::kScores) && format_) {
      const auto factor = [](const Key& key) { return key.moved * key.d * std::numbers::sqrt2; };
      // Equal scores are equal keys or keys within a quarter of their spacing.
      const auto bin = [&](const Key& key) {
        return (key.s < 0.0 ? -1.0 : 1.0) * std::log(std::fabs(key.s) + 1e-300) * 2.0 / h_;
      };
      by_bins(bin, factor, 1.0, true, 1.0 / 3.0, o, budget);
    }
    bound_by_scores(o, budget);
    if (rounding_.at(SoftmaxPoint::kWeights) && format_) {
      const double rho = rounding_.at(SoftmaxPoint::kSum) ? 1.0 : 0.0;
      const auto factor = [](const Key& key) { return key.lost > 0.0 ? 0.0 : key.w * key.floor; };
      by_bins([&](const Key& key) { return weight_bin(key); }, factor, rho,
              rounding_.at(SoftmaxPoint::kSum), h_ * h_ / 3.0, o, budget);
    }
    for (std::size_t i = 0; i < V; ++i) {
      // Second order: a sum of rounded weights may be off by h.
      budget.sigma[i] = std::sqrt(budget.sigma[i]) * (1.0 + 2.0 * h_);
    }
    budget.lse_sigma = std::sqrt(budget.lse_sigma) * (1.0 + 2.0 * h_);
    budget.lse_bias += 2.0 * kU * (std::fabs(lse) + 4.0);
    if (plan_.lse_base == LseBase::k2) {
      budget.lse_sigma *= std::numbers::log2e;
      budget.lse_bias *= std::numbers::log2e;
    }
    return budget;
  }

 private:
  // From the sums of q_d k_d and |q_d k_d| over K channels.
  void add_key(const KeyPlace& place, std::size_t K, double dot, double size) {
    Key key{.place = place};
    const double product = plan_.scale * dot;
    key.s = soft_capped(product, plan_.soft_cap);
    if (key.s == -kInfinity) return;  // a weight that is exactly 0
    const double factor = std::max(1.0, std::fabs(plan_.scale) * std::numbers::log2e);
    overflows_ = overflows_ || size * factor > kLargest;
    const double steps = 2.0 * std::ceil(static_cast<double>(K) / 16.0) + 2.0;
    key.e = soft_capped_error(steps * kU * std::fabs(plan_.scale) * size, product, plan_.soft_cap);
    if (plan_.soft_cap > 0.0) key.e += rounding_.tanh_error * std::fabs(key.s);
    if (rounding_.at(SoftmaxPoint::kScores)) {
      key.d = std::max(soft_capped_error(stored_error(product), product, plan_.soft_cap),
                       stored_error(key.s));
    }
    keys_.push_back(key);
  }

  // The largest error of a product that is stored, times the scale. Where the type cannot hold it,
  // an infinite score is a weight of 0, as the exact one, or no row has a finite result.
  [[nodiscard]] double stored_error(double s) const {
    if (!format_) return 0.0;
    const double scale = std::fabs(plan_.scale);
    return h_ * std::fabs(s) + contract::half_ulp(contract::info(*format_), 1e-300) * (1.0 + scale);
  }
  [[nodiscard]] bool is_stored_infinite(double s) const {
    if (!format_ || !rounding_.at(SoftmaxPoint::kScores) || plan_.soft_cap > 0.0) return false;
    const double largest = contract::info(*format_).largest();
    return std::fabs(s) >= largest * std::min(1.0, std::fabs(plan_.scale));
  }

  void weigh() {
    m_ = keys_[0].s;
    for (const Key& key : keys_) m_ = std::max(m_, key.s);
    overflows_ = overflows_ || is_stored_infinite(m_);
    for (Key& key : keys_) l_ += key.w = std::exp(key.s - m_);
    for (Key& key : keys_) {
      const double p = rounding_.at(SoftmaxPoint::kScores) ? key.w / l_ : key.w;
      key.w /= l_;
      key.p = p;
      if (format_ != contract::Format::kF16) continue;
      if (p < 0x1p-24) {
        key.lost = std::min(1.0, 0x1p-25 / p);
      } else {
        key.floor = std::max(1.0, 0x1p-25 / (p * h_));
      }
    }
  }

  void bound_errors() {
    std::vector<double> scores;
    for (const Key& key : keys_) scores.push_back(key.s);
    const std::vector<double> r = rescales(scores);
    const double n = static_cast<double>(keys_.size());
    // The exponential of s c - m c, of which m c is rounded before, is Inf in fp32 from here on.
    constexpr double kLargestExponent = 88.0;
    if (!rounding_.at(SoftmaxPoint::kScores) && 4.0 * kU * std::fabs(m_) > kLargestExponent) {
      overflows_ = true;
    }
    // low, high: logarithms of the terms of Z l
    std::vector<double> largest(keys_.size()), low(keys_.size()), high(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Key& key = keys_[i];
      key.e += (2.0 + r[i / kTensorCoreStep]) * rounding_.exp2_error + 2.0 * kU * (m_ - key.s) +
               4.0 * kU * (std::fabs(m_) + std::log(n));
      largest[i] = key.e + 2.0 * key.d;
      low[i] = key.s - m_ - largest[i];
      high[i] = key.s - m_ + largest[i];
    }
    const double log_low = log_of_sum(low);
    lse_most_ = std::max(log_of_sum(high) - std::log(l_), std::log(l_) - log_low);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      constexpr double kAnything = 230.0;  // e^230: what is visible bounds the result then
      const double log_moved = high[i] - log_low;
      keys_[i].moved = std::exp(std::min(log_moved, kAnything));
    }
  }

  void read(const Key& key) {
    tensors_.read_value(plan_, key.place.source, key.place.row, head_, v_.data());
  }

  // What adds linearly: functions, scores, truncation, and what fp16 loses.
  void systematic(const double* o, RowBudget& budget) {
    const std::size_t V = v_.size();
    std::vector<double> lost(V), size(V), partial(V), forward(V), backward(V), largest(V);
    linear_.resize(V);
    cap_.resize(V);
    const std::vector<double> nothing(V);
    const double* mean = rounding_.at(SoftmaxPoint::kSum) ? o : nothing.data();
    const BudgetSums sums{linear_.data(), lost.data(),    size.data(),
                          cap_.data(),    largest.data(), partial.data()};
    double weight = 0.0;
    double drift = 0.0;
    double drift_back = 0.0;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const Key& key = keys_[i];
      read(key);
      weight += key.w;
      const double linear_error = key.moved * (key.e + key.d * key.d / 3.0);
      lse_linear_ += linear_error;
      if (rounding_.at(SoftmaxPoint::kSum)) budget.lse_bias += key.w * key.lost;
      const bool ends = i % kTensorCoreStep == kTensorCoreStep - 1 || i + 1 == keys_.size();
      add_share({key.w, linear_error, key.w * key.lost}, v_.data(), o, mean, V, sums);
      if (ends) add_partial(partial.data(), o, V, forward.data(), backward.data());
      if (ends) {
        drift += weight;
        drift_back += 1.0 - weight;
      }
    }
    const double flushed = static_cast<double>(keys_.size()) * 0x1p-126;
    for (std::size_t x = 0; x < V; ++x) {
      budget.bias[x] = std::fmin(linear_[x], cap_[x]) + lost[x] +
                       kKappa * 2.0 * kU * std::max(forward[x], backward[x]) + 16.0 * kU * size[x] +
                       4.0 * kU * std::fabs(o[x]) + flushed * largest[x];
      if (l_ * size[x] > kLargest) budget.column_overflows[x] = 1;
    }
    budget.lse_bias += kKappa * 2.0 * kU * std::max(drift, drift_back);
    budget.flushed = 2.0 * flushed;
  }

  // What errors of the scores do at most. The squares of sigma are those of stored scores alone.
  // The mean of equal values is that value, whatever the weights are, but for the oracle's
  // rounding.
  void bound_by_scores(const double* o, RowBudget& budget) {
    for (std::size_t x = 0; x < cap_.size(); ++x) {
      const double reach = linear_[x] + multiple_ * std::sqrt(budget.sigma[x]);
      const bool is_apart = cap_[x] > 0x1p-30 * std::fabs(o[x]) && std::isfinite(cap_[x]);
      budget.anything = budget.anything || (is_apart && !(reach < cap_[x]));
    }
    if (!(lse_linear_ + multiple_ * std::sqrt(budget.lse_sigma) <= lse_most_)) {
      lse_linear_ = lse_most_;
      budget.lse_sigma = 0.0;
    }
    budget.lse_bias += lse_linear_;
  }

  // A quarter of the spacing of what is rounded; subnormal numbers of fp16 have one spacing.
  [[nodiscard]] double weight_bin(const Key& key) const {
    constexpr double kBelow = -1e12;
    return key.floor > 1.0 ? kBelow + key.p * 0x1p26 : std::log(key.p) * 2.0 / h_;
  }

  // Adds `variance` times the sums of factor(key) (v - rho o) in bins of bin(key) to the squares of
  // sigma. What has no factor is no term, whatever its v is.
  template <class Bin, class Factor>
  void by_bins(const Bin& bin, const Factor& factor, double rho, bool in_lse, double variance,
               const double* o, RowBudget& budget) {
    std::vector<double> place;
    for (const Key& key : keys_) place.push_back(std::floor(bin(key)));
    std::vector<std::size_t> order(keys_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return place[i]; });
    const std::size_t V = v_.size();
    Binned sums(V + 1);
    for (std::size_t j = 0; j < order.size(); ++j) {
      const Key& key = keys_[order[j]];
      const double of_key = factor(key);
      if (of_key != 0.0) {
        read(key);
        sums.add(of_key, rho, v_.data(), o, V);
        sums.add(V, of_key);
      }
      if (j + 1 == order.size() || place[order[j]] != place[order[j + 1]]) sums.close();
    }
    for (std::size_t c = 0; c < V; ++c) {
      // A mean of visible values is no farther from o than the farthest of them.
      budget.sigma[c] += std::fmin(variance * sums.total(c), cap_[c] * cap_[c] + o[c] * o[c]);
    }
    if (in_lse) budget.lse_sigma += variance * sums.total(V);
  }

  const Tensors& tensors_;
  const Plan& plan_;
  std::int64_t head_;
  const Softmax& rounding_;
  double multiple_;
  std::optional<contract::Format> format_;
  double h_ = 0.0, m_ = 0.0, l_ = 0.0;
  double lse_linear_ = 0.0;
  double lse_most_ = 0.0;   // what errors of the scores do to lse
  bool overflows_ = false;  // scores or their exponentials
  std::vector<Key> keys_;
  std::vector<double> v_, linear_, cap_;
};

}  // namespace

RowBudget row_budget(const Tensors& tensors, const Plan& plan, const Request& request,
                     const RowPlace& row, const Softmax& rounding, double multiple, const double* o,
                     double lse) {
  Row terms(tensors, plan, request, row, rounding, multiple);
  if (terms.is_bounded()) return terms.run(o, lse);
  const auto V = static_cast<std::size_t>(plan.dims.V);
  return {.sigma = std::vector<double>(V),
          .bias = std::vector<double>(V, kInfinity),
          .lse_bias = kInfinity,
          .column_overflows = std::vector<char>(V, 0)};
}

}  // namespace goldenrule::attention
