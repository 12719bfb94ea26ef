// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/budget/row_budget.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "reference/attention/budget/binned.hpp"

namespace goldenrule::attention {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kU = 0x1p-24;
constexpr double kKappa = 2.0;
constexpr std::size_t kStep = 16;

struct Key {
  KeyPlace place;
  double s = 0.0;      // as the exponential takes it
  double w = 0.0;      // exact weight
  double p = 0.0;      // what is rounded in its place
  double floor = 1.0;  // its error over h: above 1 where fp16 is subnormal
  double e = 0.0;      // E_t
  double d = 0.0;      // random error of a stored score, one bound of a uniform law
  double grow = 1.0;   // exp(D_t) / Z
  double lost = 0.0;   // share of its weight that fp16 loses for certain
};

// How many tiles of kStep keys behind that of each key raise the running maximum.
std::vector<double> rescales(const std::vector<Key>& keys) {
  const std::size_t tiles = (keys.size() + kStep - 1) / kStep;
  std::vector<double> top(tiles, -kInfinity);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    top[i / kStep] = std::max(top[i / kStep], keys[i].s);
  }
  const auto records = [&](bool forward) {
    std::vector<double> counts(tiles);
    double running = -kInfinity;
    double seen = 0.0;
    for (std::size_t j = 0; j < tiles; ++j) {
      const std::size_t at = forward ? j : tiles - 1 - j;
      if (top[at] > running) seen += 1.0;
      running = std::max(running, top[at]);
      counts[at] = seen;
    }
    for (double& c : counts) c = seen - c;
    return counts;
  };
  std::vector<double> worse = records(true);
  const std::vector<double> backward = records(false);
  for (std::size_t j = 0; j < tiles; ++j) worse[j] = std::max(worse[j], backward[j]);
  return worse;
}

class Row {
 public:
  Row(const Tensors& tensors, const Plan& plan, const Request& request, const RowPlace& row,
      const Softmax& rounding)
      : tensors_(tensors),
        plan_(plan),
        head_(key_head_of(plan, row)),
        rounding_(rounding),
        format_(operand_format(tensors.q->dtype())) {
    if (format_) h_ = contract::unit_roundoff(*format_);
    const std::vector<double> q = query_of(tensors, plan, request, row);
    std::vector<double> k(q.size());
    for (const KeyPlace& place : visible_keys(request, row.query)) {
      tensors.read_key(plan, place.source, place.row, head_, k.data());
      Key key{.place = place};
      double size = 0.0;
      for (std::size_t d = 0; d < q.size(); ++d) size += std::fabs(q[d] * k[d]);
      const double dot = score_of<double>(uncapped(), q, k.data());
      key.s = soft_capped(dot, plan.soft_cap);
      if (key.s == -kInfinity) continue;  // a weight that is exactly 0
      const double steps = 2.0 * std::ceil(static_cast<double>(q.size()) / 16.0) + 2.0;
      key.e = steps * kU * std::fabs(plan.scale) * size;
      if (plan.soft_cap > 0.0) key.e += rounding.tanh_error * std::fabs(key.s);
      if (rounding.at(SoftmaxPoint::kScores)) key.d = stored_error(dot);
      keys_.push_back(key);
    }
    if (keys_.empty()) return;
    weigh();
    bound_errors();
  }

  /// Whether double holds the scores, and the type that stores them does: else there is no budget.
  [[nodiscard]] bool is_finite() const {
    return !keys_.empty() && std::isfinite(m_) && !overflows_;
  }

  RowBudget run(const double* o, double lse) {
    const auto V = static_cast<std::size_t>(plan_.dims.V);
    RowBudget budget{.sigma = std::vector<double>(V), .bias = std::vector<double>(V)};
    v_.resize(V);
    systematic(o, budget);
    if (rounding_.at(SoftmaxPoint::kWeights) && format_) {
      const double rho = rounding_.at(SoftmaxPoint::kSum) ? 1.0 : 0.0;
      const auto x = [&](const Key& key, double v, double mean) {
        if (key.lost > 0.0) return 0.0;
        return key.w * key.floor * (v - rho * mean);
      };
      by_bins([&](const Key& key) { return weight_bin(key); }, x, rounding_.at(SoftmaxPoint::kSum),
              h_ * h_ / 3.0, o, budget);
    }
    if (rounding_.at(SoftmaxPoint::kScores) && format_) {
      const auto x = [](const Key& key, double v, double mean) {
        return key.w * key.grow * key.d * std::numbers::sqrt2 * (v - mean);
      };
      // Equal scores are equal keys or keys within a quarter of their spacing.
      const auto bin = [&](const Key& key) {
        return (key.s < 0.0 ? -1.0 : 1.0) * std::log(std::fabs(key.s) + 1e-300) * 2.0 / h_;
      };
      by_bins(bin, x, true, 1.0 / 3.0, o, budget);
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
  [[nodiscard]] const Plan& uncapped() {
    bare_.scale = plan_.scale;
    return bare_;
  }

  // The largest error of a product that is stored, times the scale; infinite where the type cannot
  // hold it.
  [[nodiscard]] double stored_error(double s) const {
    if (!format_) return 0.0;
    const double largest = contract::info(*format_).largest();
    const double scale = std::fabs(plan_.scale);
    if (std::fabs(s) >= largest * std::min(1.0, scale)) return kInfinity;
    return h_ * std::fabs(s) + contract::half_ulp(contract::info(*format_), 1e-300) * (1.0 + scale);
  }

  void weigh() {
    m_ = keys_[0].s;
    for (const Key& key : keys_) {
      m_ = std::max(m_, key.s);
      if (key.d == kInfinity) overflows_ = true;
    }
    double l = 0.0;
    for (Key& key : keys_) l += key.w = std::exp(key.s - m_);
    for (Key& key : keys_) {
      const double p = rounding_.at(SoftmaxPoint::kScores) ? key.w / l : key.w;
      key.w /= l;
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
    const std::vector<double> r = rescales(keys_);
    const double n = static_cast<double>(keys_.size());
    double z = 0.0;
    std::vector<double> largest(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      Key& key = keys_[i];
      key.e += (2.0 + r[i / kStep]) * rounding_.exp2_error + 2.0 * kU * (m_ - key.s) +
               4.0 * kU * (std::fabs(m_) + std::log(n));
      largest[i] = key.e + 2.0 * key.d;
      z += key.w * std::exp(-largest[i]);
    }
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      constexpr double kAnything = 1e100;  // what is visible bounds the result then
      const double grow = std::exp(largest[i]) / z;
      keys_[i].grow = grow < kAnything ? grow : kAnything;
    }
  }

  void read(const Key& key) {
    tensors_.read_value(plan_, key.place.source, key.place.row, head_, v_.data());
  }

  // What adds linearly: functions, scores, truncation, and what fp16 loses.
  void systematic(const double* o, RowBudget& budget) {
    const std::size_t V = v_.size();
    std::vector<double> linear(V), lost(V), size(V), partial(V), forward(V), backward(V), top(V);
    double weight = 0.0;
    double drift = 0.0;
    double drift_back = 0.0;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const Key& key = keys_[i];
      read(key);
      weight += key.w;
      const double linear_error = key.w * key.grow * (key.e + key.d * key.d / 3.0);
      budget.lse_bias += linear_error + (rounding_.at(SoftmaxPoint::kSum) ? key.w * key.lost : 0.0);
      const bool ends = i % kStep == kStep - 1 || i + 1 == keys_.size();
      for (std::size_t x = 0; x < V; ++x) {
        linear[x] += linear_error * std::fabs(v_[x] - o[x]);
        lost[x] +=
            key.w * key.lost * std::fabs(v_[x] - (rounding_.at(SoftmaxPoint::kSum) ? o[x] : 0.0));
        size[x] += key.w * std::fabs(v_[x]);
        top[x] = std::max(top[x], std::fabs(v_[x] - o[x]));
        budget.flushed = std::max(budget.flushed, std::fabs(v_[x]));
        partial[x] += key.w * v_[x];
        if (ends) {
          forward[x] += std::fabs(partial[x]);
          backward[x] += std::fabs(o[x] - partial[x]);
        }
      }
      if (ends) {
        drift += weight;
        drift_back += 1.0 - weight;
      }
    }
    for (std::size_t x = 0; x < V; ++x) {
      budget.bias[x] = std::min(linear[x], top[x]) + lost[x] +
                       kKappa * 2.0 * kU * std::max(forward[x], backward[x]) + 16.0 * kU * size[x] +
                       4.0 * kU * std::fabs(o[x]);
      cap_.push_back(top[x]);
    }
    budget.lse_bias += kKappa * 2.0 * kU * std::max(drift, drift_back);
    budget.flushed *= static_cast<double>(keys_.size()) * 0x1p-126;
  }

  // A quarter of the spacing of what is rounded; subnormal numbers of fp16 have one spacing.
  [[nodiscard]] double weight_bin(const Key& key) const {
    constexpr double kBelow = -1e12;
    return key.floor > 1.0 ? kBelow + key.p * 0x1p26 : std::log(key.p) * 2.0 / h_;
  }

  // Adds `variance` times the sums of x(key, v, o) in bins of bin(key) to the squares of sigma.
  template <class Bin, class X>
  void by_bins(const Bin& bin, const X& x, bool in_lse, double variance, const double* o,
               RowBudget& budget) {
    std::vector<double> place;
    for (const Key& key : keys_) place.push_back(std::floor(bin(key)));
    std::vector<std::size_t> order(keys_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return place[i]; });
    const std::size_t V = v_.size();
    Binned sums(V + 1);
    for (std::size_t j = 0; j < order.size(); ++j) {
      const Key& key = keys_[order[j]];
      read(key);
      for (std::size_t c = 0; c < V; ++c) sums.add(c, x(key, v_[c], o[c]));
      sums.add(V, x(key, 1.0, 0.0));
      if (j + 1 == order.size() || place[order[j]] != place[order[j + 1]]) sums.close();
    }
    for (std::size_t c = 0; c < V; ++c) {
      // A mean of visible values is no farther from o than the farthest of them.
      budget.sigma[c] += std::min(variance * sums.total(c), cap_[c] * cap_[c] + o[c] * o[c]);
    }
    if (in_lse) budget.lse_sigma += variance * sums.total(V);
  }

  const Tensors& tensors_;
  const Plan& plan_;
  Plan bare_;
  std::int64_t head_;
  const Softmax& rounding_;
  std::optional<contract::Format> format_;
  double h_ = 0.0, m_ = 0.0;
  bool overflows_ = false;
  std::vector<Key> keys_;
  std::vector<double> v_, cap_;
};

}  // namespace

RowBudget row_budget(const Tensors& tensors, const Plan& plan, const Request& request,
                     const RowPlace& row, const Softmax& rounding, const double* o, double lse) {
  Row terms(tensors, plan, request, row, rounding);
  if (terms.is_finite()) return terms.run(o, lse);
  const auto V = static_cast<std::size_t>(plan.dims.V);
  return {.sigma = std::vector<double>(V),
          .bias = std::vector<double>(V, kInfinity),
          .lse_bias = kInfinity};
}

}  // namespace goldenrule::attention
