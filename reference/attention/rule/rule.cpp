// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/rule/rule.hpp"

#include <algorithm>
#include <cmath>

#include "reference/attention/rule/columns.hpp"
#include "reference/scalar/infinity.hpp"

namespace goldenrule::attention {
namespace {

constexpr double kTau = 0x1p-6;
constexpr double kLargestE = 0x1p-8;
constexpr double kLost = 0x1p-1070;

template <class S>
double gamma(double n) {
  const double nu = n * scalar::Tier<S>::kUnitRoundoff;
  return nu / (1.0 - nu);
}

/// log2(e)
template <class S>
S log2_e() {
  return S(1.0) / scalar::log(S(2.0));
}

template <class S>
class TwoPass {
 public:
  using Vector = typename scalar::Tier<S>::Vector;
  static constexpr double kU = scalar::Tier<S>::kUnitRoundoff;
  static constexpr double kF = scalar::Tier<S>::kFunctionError;
  static constexpr int kLanes = scalar::Tier<S>::kLanes;

  TwoPass(const Tensors& tensors, const Plan& plan, const Request& request, RowPlaces places,
          bool certify)
      : tensors_(tensors),
        plan_(plan),
        request_(request),
        key_head_(plan.key_head[static_cast<std::size_t>(places[0].head)]),
        certify_(certify) {
    span_ = visible_of(places[0]);
    for (const RowPlace& place : places) {
      const Range visible = visible_of(place);
      span_.first = std::min(span_.first, visible.first);
      span_.last = std::max(span_.last, visible.last);
      Row row;
      row.visible = visible;
      row.q.resize(static_cast<std::size_t>(plan.dims.K));
      tensors.q->read(
          ((request.first_query + place.query) * plan.dims.HV + place.head) * plan.dims.K,
          plan.dims.K, row.q.data());
      row.q_norm = norm_of(row.q.data(), plan.dims.K);
      rows_.push_back(std::move(row));
    }
  }

  RowValues<S> run() {
    for_each_tile(request_, span_, [&](const Places& tile) { scores(tile); });
    for (Row& row : rows_) prepare(row);
    for_each_tile(request_, span_, [&](const Places& tile) { sums(tile); });
    for (Row& row : rows_) finish(row);
    if (certify_) {
      for_each_tile(request_, span_, [&](const Places& tile) { spread(tile); });
      for (Row& row : rows_) bound(row);
    }
    RowValues<S> values;
    for (Row& row : rows_) values.push_back(std::move(row.value));
    return values;
  }

 private:
  struct Row {
    Range visible;
    std::vector<double> q;
    double q_norm = 0.0;
    // Of the visible keys, in their order.
    std::vector<S> score;
    std::vector<double> e, weight;
    std::size_t next = 0;  // in the pass that runs
    S m{}, l{};
    std::vector<Vector> sum;
    bool finite_inputs = true;  // q and all visible k
    bool finite_scores = true;
    std::vector<double> o, e_spread, v_sum, v_max;  // per column
    std::vector<char> finite_v;
    double tiles = 0.0;
    RowValue<S> value;
  };

  [[nodiscard]] Range visible_of(const RowPlace& place) const {
    return request_.visible[static_cast<std::size_t>(place.query)];
  }

  void scores(const Places& tile) {
    const auto K = static_cast<std::size_t>(plan_.dims.K);
    const std::size_t groups = vectors_of<S>(kTile);
    keys_.resize(static_cast<std::size_t>(kTile) * K);
    columns_.assign(K * groups, Vector{});
    std::array<double, kTile> norm{};
    for (std::int64_t i = 0; i < tile.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      double* key = keys_.data() + at * K;
      tensors_.read_key(plan_, tile.source[at], tile.row[at], key_head_, key);
      norm[at] = norm_of(key, plan_.dims.K);
      for (std::size_t d = 0; d < K; ++d) {
        scalar::set_lane(columns_[d * groups + at / kLanes], static_cast<int>(at % kLanes),
                         S(key[d]));
      }
    }
    std::vector<Vector> sum(groups);
    for (Row& row : rows_) {
      std::fill(sum.begin(), sum.end(), Vector{});
      for (std::size_t d = 0; d < K; ++d) {
        const Vector q = scalar::broadcast_column<S>(S(row.q[d]));
        for (std::size_t g = 0; g < groups; ++g) sum[g] += q * columns_[d * groups + g];
      }
      for (std::size_t at = 0; at < static_cast<std::size_t>(tile.count); ++at) {
        if (!row.visible.contains(tile.t[at])) continue;
        const S dot = scalar::get_lane(sum[at / kLanes], static_cast<int>(at % kLanes));
        add_score(row, S(plan_.scale) * dot, norm[at], keys_.data() + at * K);
      }
    }
  }

  void add_score(Row& row, S s, double key_norm, const double* key) {
    const bool finite = std::isfinite(row.q_norm) && std::isfinite(key_norm);
    row.finite_inputs = row.finite_inputs && finite;
    double e = gamma<S>(static_cast<double>(row.q.size() + 2)) * std::fabs(plan_.scale) *
                   row.q_norm * key_norm +
               0x1p-1000;
    if (std::isfinite(scalar::to_double(s))) {
      if (plan_.soft_cap > 0.0) e += kU * std::fabs(scalar::to_double(s));
      s = soft_capped(s, plan_.soft_cap);
    } else {
      if (finite) row.finite_scores = false;  // the tier overflowed
      s = score_of<S>(plan_, row.q, key);     // vectors do not know infinity in every tier
      e = 0.0;  // exactly infinite or at the cap: a weight of 0, or no finite row
    }
    e += plan_.soft_cap * (2.0 * kF + 5.0 * kU);
    row.score.push_back(s);
    row.e.push_back(e);
  }

  void prepare(Row& row) {
    const auto V = static_cast<std::size_t>(plan_.dims.V);
    row.value.has_keys = !row.score.empty();
    row.sum.assign(vectors_of<S>(plan_.dims.V), Vector{});
    row.l = S(0.0);
    if (!row.value.has_keys) return;
    row.m = row.score[0];
    for (const S& s : row.score) {
      if (std::isnan(scalar::to_double(row.m))) break;
      if (s > row.m || std::isnan(scalar::to_double(s))) row.m = s;
    }
    row.weight.resize(row.score.size());
    for (std::size_t i = 0; i < row.score.size(); ++i) {
      const double below = std::fabs(scalar::to_double(row.score[i] - row.m));
      row.e[i] += std::isfinite(below) ? kU * below + 2.0 * kF : 0.0;
    }
    row.e_spread.assign(V, 0.0);
    row.v_sum.assign(V, 0.0);
    row.v_max.assign(V, 0.0);
    row.finite_v.assign(V, 1);
  }

  void read_values(const Places& tile) {
    const auto V = static_cast<std::size_t>(plan_.dims.V);
    values_.resize(static_cast<std::size_t>(kTile) * V);
    for (std::size_t at = 0; at < static_cast<std::size_t>(tile.count); ++at) {
      double* v = values_.data() + at * V;
      tensors_.read_value(plan_, tile.source[at], tile.row[at], key_head_, v);
      finite_value_[at] = std::all_of(v, v + V, [](double x) { return std::isfinite(x); });
    }
  }

  void sums(const Places& tile) {
    const auto V = static_cast<std::size_t>(plan_.dims.V);
    const std::size_t groups = vectors_of<S>(plan_.dims.V);
    read_values(tile);
    std::vector<Vector> v(static_cast<std::size_t>(tile.count) * groups);
    for (std::size_t at = 0; at < static_cast<std::size_t>(tile.count); ++at) {
      to_vectors<S>(values_.data() + at * V, plan_.dims.V, v.data() + at * groups);
    }
    std::vector<Vector> sum(groups);
    for (Row& row : rows_) {
      std::fill(sum.begin(), sum.end(), Vector{});
      S l(0.0);
      for (std::size_t at = 0; at < static_cast<std::size_t>(tile.count); ++at) {
        if (!row.visible.contains(tile.t[at])) continue;
        const S p = scalar::exp(row.score[row.next] - row.m);
        row.weight[row.next++] = scalar::to_double(p);
        l += p;
        const Vector factor = scalar::broadcast_column<S>(p);
        for (std::size_t g = 0; g < groups; ++g) sum[g] += factor * v[at * groups + g];
      }
      row.l += l;
      for (std::size_t g = 0; g < groups; ++g) row.sum[g] += sum[g];
      row.tiles += 1.0;
    }
  }

  void finish(Row& row) {
    if (!row.value.has_keys) return;
    row.next = 0;
    for (std::int64_t x = 0; x < plan_.dims.V; ++x) {
      row.value.o.push_back(scalar::get_lane(row.sum[static_cast<std::size_t>(x / kLanes)],
                                             static_cast<int>(x % kLanes)) /
                            row.l);
      row.o.push_back(scalar::to_double(row.value.o.back()));
    }
    row.value.lse = row.m + scalar::log(row.l);
    if (plan_.lse_base == LseBase::k2) row.value.lse = row.value.lse * log2_e<S>();
  }

  void spread(const Places& tile) {
    const auto V = static_cast<std::size_t>(plan_.dims.V);
    read_values(tile);
    for (Row& row : rows_) {
      if (!row.value.has_keys) continue;
      const double l = scalar::to_double(row.l);
      const SpreadSums sums{row.e_spread.data(), row.v_sum.data(), row.v_max.data()};
      for (std::size_t at = 0; at < static_cast<std::size_t>(tile.count); ++at) {
        if (!row.visible.contains(tile.t[at])) continue;
        const double w = row.weight[row.next] / l;
        const double we = w * row.e[row.next++];
        const double* v = values_.data() + at * V;
        add_spread(w, we, v, row.o.data(), V, sums);
        for (std::size_t x = 0; !finite_value_[at] && x < V; ++x) {
          if (!std::isfinite(v[x])) row.finite_v[x] = 0;
        }
      }
    }
  }

  void bound(Row& row) {
    if (!row.value.has_keys) return;
    const double n = static_cast<double>(row.score.size());
    const double terms = static_cast<double>(kTile) + row.tiles;
    const double l = scalar::to_double(row.l);
    double largest = 0.0;
    double mean = 0.0;
    for (std::size_t i = 0; i < row.e.size(); ++i) {
      largest = std::max(largest, row.e[i]);
      mean += row.weight[i] / l * row.e[i];
    }
    const bool bounded = row.finite_scores && largest <= kLargestE;
    for (std::size_t x = 0; x < row.value.o.size(); ++x) {
      const double o = scalar::to_double(row.value.o[x]);
      const double radius = (1.0 + kTau) * (row.e_spread[x] + gamma<S>(terms + 1.0) * row.v_sum[x] +
                                            (gamma<S>(terms) + 2.0 * kU) * std::fabs(o)) +
                            n * kLost * row.v_max[x];
      const bool finite_inputs = row.finite_inputs && row.finite_v[x] != 0;
      row.value.radius.push_back(radius_of(o, radius, bounded, finite_inputs));
    }
    const double lse = scalar::to_double(row.value.lse);
    double radius = mean + gamma<S>(terms) + kF * std::fabs(std::log(l)) + kU * std::fabs(lse);
    if (plan_.lse_base == LseBase::k2) {
      radius = radius * scalar::to_double(log2_e<S>()) + (kF + 3.0 * kU) * std::fabs(lse);
    }
    radius = (1.0 + kTau) * radius + n * kLost;
    row.value.lse_radius = radius_of(lse, radius, bounded, row.finite_inputs);
    row.value.largest = std::move(row.v_max);
  }

  // Not finite: because an input is not, or because the tier is too narrow.
  static double radius_of(double value, double radius, bool bounded, bool finite_inputs) {
    if (!std::isfinite(value)) return finite_inputs ? kInfinity : 0.0;
    return bounded && std::isfinite(radius) ? radius : kInfinity;
  }

  const Tensors& tensors_;
  const Plan& plan_;
  const Request& request_;
  std::int64_t key_head_;
  bool certify_;
  Range span_;
  std::vector<Row> rows_;
  std::vector<double> keys_, values_;
  std::array<bool, kTile> finite_value_{};
  std::vector<Vector> columns_;
};

}  // namespace

template <class S>
RowValues<S> two_pass(const Tensors& tensors, const Plan& plan, const Request& request,
                      RowPlaces rows, bool certify) {
  return TwoPass<S>(tensors, plan, request, rows, certify).run();
}

template RowValues<double> two_pass(const Tensors&, const Plan&, const Request&, RowPlaces, bool);
template RowValues<scalar::Quad> two_pass(const Tensors&, const Plan&, const Request&, RowPlaces,
                                          bool);
template RowValues<scalar::Multi> two_pass(const Tensors&, const Plan&, const Request&, RowPlaces,
                                           bool);

}  // namespace goldenrule::attention
