// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/merge_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "reference/attention/rule/evaluate.hpp"
#include "reference/attention/rule/visible_keys.hpp"

namespace goldenrule::suites {
namespace {

using attention::Plan;
using attention::Request;
using attention::RowPlace;
using attention::Run;

template <class Real>
constexpr Real kNone = -std::numeric_limits<Real>::infinity();

template <class Real>
struct PartState {
  Real m = kNone<Real>, l = 0;
  std::vector<Real> acc;

  [[nodiscard]] bool is_empty() const { return l == Real{0}; }
  [[nodiscard]] Real lse() const { return m + std::log(l); }
  void add(Real s, const std::vector<double>& v) {
    const Real top = std::max(m, s);
    const Real kept = is_empty() ? Real{0} : std::exp(m - top), p = std::exp(s - top);
    m = top;
    l = l * kept + p;
    for (std::size_t x = 0; x < v.size(); ++x) acc[x] = acc[x] * kept + p * static_cast<Real>(v[x]);
  }
};
template <class Real>
using PartStates = std::vector<PartState<Real>>;

template <class Real>
struct Merged {
  std::vector<Real> o;
  Real lse = kNone<Real>;
};

template <class Real>
class MergerOfStates {
 public:
  // `weighing`: the states whose lse weigh those of the row.
  MergerOfStates(const MergeInParts& merge, const PartStates<Real>& states,
                 const PartStates<Real>& weighing)
      : merge_(merge), states_(states), weighing_(weighing) {}

  [[nodiscard]] Merged<Real> merged() const {
    Merged<Real> result = in_its_way();
    if (merge_.right_lse) result.lse = right().lse;
    return result;
  }

 private:
  using Index = std::size_t;

  [[nodiscard]] Merged<Real> in_its_way() const {
    const auto parts = static_cast<Real>(states_.size());
    const auto all = [](Index) { return Real{1}; };
    switch (merge_.way) {
      case WrongMerge::kNone:
        break;
      case WrongMerge::kBaseEOf2:
        return by_lse(std::numbers::log2e_v<Real>, all);
      case WrongMerge::kBase2OfE:
        return by_lse(std::numbers::ln2_v<Real>, all);
      case WrongMerge::kMean:
        return unweighted(Real{1} / parts);
      case WrongMerge::kSum:
        return unweighted(Real{1});
      case WrongMerge::kOwnMaximum:
        return by_states([](Real, Real) { return Real{1}; });
      case WrongMerge::kEmptyIsOne:
        return by_lse(Real{1}, all);
      case WrongMerge::kLost:
        return by_lse(Real{1}, [&](Index p) { return is_chosen(p) ? Real{0} : Real{1}; });
      case WrongMerge::kTwice:
        return by_lse(Real{1}, [&](Index p) { return is_chosen(p) ? Real{2} : Real{1}; });
      case WrongMerge::kLastWriter:
        return by_lse(Real{1}, [&](Index p) { return p == last() ? Real{1} : Real{0}; });
      case WrongMerge::kTransposed:
        return by_lse(Real{1}, all);
      case WrongMerge::kLseOfLast:
        return {right().o, states_[last()].lse()};
      case WrongMerge::kLseMaximum:
        return {right().o, largest_lse()};
    }
    return right();
  }

  [[nodiscard]] bool is_chosen(Index p) const { return p == static_cast<Index>(merge_.part); }
  [[nodiscard]] Index last() const {
    Index p = states_.size() - 1;
    while (p > 0 && states_[p].is_empty()) --p;
    return p;
  }
  [[nodiscard]] Real largest_lse() const {
    Real top = kNone<Real>;
    for (const PartState<Real>& s : states_) top = std::max(top, s.lse());
    return top;
  }

  [[nodiscard]] Merged<Real> right() const {
    return by_states([](Real m, Real top) { return std::exp(m - top); });
  }
  // acc and l of each part times factor(m_p, m).
  template <class Factor>
  [[nodiscard]] Merged<Real> by_states(const Factor& factor) const {
    PartState<Real> sum{.m = kNone<Real>, .l = 0, .acc = zeros()};
    for (const PartState<Real>& s : states_) sum.m = std::max(sum.m, s.m);
    for (const PartState<Real>& s : states_) {
      if (s.is_empty()) continue;
      const Real f = factor(s.m, sum.m);
      sum.l += f * s.l;
      for (Index x = 0; x < s.acc.size(); ++x) sum.acc[x] += f * s.acc[x];
    }
    for (Real& x : sum.acc) x /= sum.l;
    return {sum.acc, sum.lse()};
  }

  // times(p) e^(base lse_p) of outputs that each part has divided by its l.
  template <class Times>
  [[nodiscard]] Merged<Real> by_lse(Real base, const Times& times) const {
    std::vector<Real> lse;
    for (const PartState<Real>& s : weighing_) {
      const bool is_one = s.is_empty() && merge_.way == WrongMerge::kEmptyIsOne;
      lse.push_back(is_one ? Real{0} : s.lse());
    }
    const Real top = *std::ranges::max_element(lse);
    Merged<Real> result{zeros(), kNone<Real>};
    Real sum = 0;
    for (Index p = 0; p < lse.size(); ++p) {
      const Real w = times(p) == Real{0} ? Real{0} : times(p) * std::exp(base * (lse[p] - top));
      sum += w;
      add_output(p, w, result.o);
    }
    for (Real& x : result.o) x = sum == Real{0} ? Real{0} : x / sum;
    result.lse = top + std::log(sum) / base;
    return result;
  }
  [[nodiscard]] Merged<Real> unweighted(Real w) const {
    Merged<Real> result{zeros(), Real{0}};
    for (Index p = 0; p < states_.size(); ++p) {
      if (states_[p].is_empty()) continue;
      add_output(p, w, result.o);
      result.lse += w * states_[p].lse();
    }
    return result;
  }
  void add_output(Index p, Real w, std::vector<Real>& o) const {
    const PartState<Real>& s = states_[p];
    for (Index x = 0; !s.is_empty() && x < o.size(); ++x) o[x] += w * s.acc[x] / s.l;
  }
  [[nodiscard]] std::vector<Real> zeros() const {
    return std::vector<Real>(states_.front().acc.size(), Real{0});
  }

  const MergeInParts& merge_;
  const PartStates<Real>& states_;
  const PartStates<Real>& weighing_;
};

template <class Real>
class KernelInParts {
 public:
  KernelInParts(const call::Record& call, const MergeInParts& merge)
      : plan_(attention::make_plan(call)), tensors_(call), merge_(merge) {
    for (const Request& r : plan_.requests) {
      if (r.key_count() > 0) parts_ = std::max(parts_, merge.part_of(r, r.key_count() - 1) + 1);
    }
    const auto rows = static_cast<std::size_t>(plan_.dims.tokens * plan_.dims.HV);
    states_.assign(rows, PartStates<Real>(static_cast<std::size_t>(parts_), empty()));
  }

  call::TensorMap run() {
    const call::Dims& d = plan_.dims;
    call::TensorMap outputs;
    outputs["o"] = call::Tensor(call::DType::kF64, {d.tokens, d.HV, d.V});
    outputs["lse"] = call::Tensor(call::DType::kF64, attention::lse_shape(plan_));
    for (std::int64_t i = 0; i < outputs["lse"].size(); ++i) {
      outputs["lse"].set(i, kNone<double>);
    }
    for_each_row([&](const Request& r, const RowPlace& row) { read(r, row); });
    for_each_row([&](const Request& r, const RowPlace& row) { write(r, row, outputs); });
    return outputs;
  }

 private:
  [[nodiscard]] PartState<Real> empty() const {
    return {.acc = std::vector<Real>(static_cast<std::size_t>(plan_.dims.V), Real{0})};
  }
  template <class Do>
  void for_each_row(const Do& act) {
    for (const Request& r : plan_.requests) {
      for (RowPlace row; row.query < r.valid; ++row.query) {
        for (row.head = 0; row.head < plan_.dims.HV; ++row.head) act(r, row);
      }
    }
  }
  // Where [tokens, heads] has a row, and where it is read.
  [[nodiscard]] PartStates<Real>& states_of(const Request& r, const RowPlace& row) {
    return states_[static_cast<std::size_t>((r.first_query + row.query) * plan_.dims.HV +
                                            row.head)];
  }
  [[nodiscard]] const PartStates<Real>& weighing(const Request& r, const RowPlace& row) {
    if (merge_.way != WrongMerge::kTransposed) return states_of(r, row);
    const std::int64_t place = (r.first_query + row.query) * plan_.dims.HV + row.head;
    const std::int64_t head = place / plan_.dims.tokens, token = place % plan_.dims.tokens;
    return states_[static_cast<std::size_t>(token * plan_.dims.HV + head)];
  }

  void read(const Request& request, const RowPlace& row) {
    const std::vector<double> q = attention::query_of(tensors_, plan_, request, row);
    const std::int64_t key_head = attention::key_head_of(plan_, row);
    std::vector<double> k(q.size()), v(static_cast<std::size_t>(plan_.dims.V));
    std::int64_t before = 0;
    for (const Run& run : request.runs) {
      for (std::int64_t i = 0; i < run.count; ++i) {
        if (!request.visible[static_cast<std::size_t>(row.query)].contains(run.t + i)) continue;
        tensors_.read_key(plan_, run.source, run.row + i, key_head, k.data());
        tensors_.read_value(plan_, run.source, run.row + i, key_head, v.data());
        const std::int64_t part = merge_.part_of(request, before + i);
        states_of(request, row)[static_cast<std::size_t>(part)].add(
            static_cast<Real>(attention::score_of<double>(plan_, q, k.data())), v);
      }
      before += run.count;
    }
  }

  void write(const Request& request, const RowPlace& row, call::TensorMap& outputs) {
    const PartStates<Real>& states = states_of(request, row);
    if (std::ranges::all_of(states, &PartState<Real>::is_empty)) return;
    const Merged<Real> merged =
        MergerOfStates<Real>(merge_, states, weighing(request, row)).merged();
    const std::int64_t first = attention::o_index(plan_, request, row);
    for (std::size_t x = 0; x < merged.o.size(); ++x) {
      outputs["o"].set(first + static_cast<std::int64_t>(x), static_cast<double>(merged.o[x]));
    }
    const std::size_t at = attention::lse_index(plan_, request.first_query + row.query, row.head);
    const double unit = plan_.lse_base == attention::LseBase::kE ? 1.0 : std::numbers::log2e;
    outputs["lse"].set(static_cast<std::int64_t>(at), static_cast<double>(merged.lse) * unit);
  }

  Plan plan_;
  attention::Tensors tensors_;
  const MergeInParts& merge_;
  std::int64_t parts_ = 1;
  std::vector<PartStates<Real>> states_;  // of each row of [tokens, heads], of each part
};

}  // namespace

std::string_view words_for(WrongMerge way) {
  switch (way) {
    case WrongMerge::kNone:
      return "merges parts rightly";
    case WrongMerge::kBaseEOf2:
      return "weights e^x of an lse in base 2";
    case WrongMerge::kBase2OfE:
      return "weights 2^x of an lse in base e";
    case WrongMerge::kMean:
      return "takes the mean of the parts";
    case WrongMerge::kSum:
      return "adds the outputs of the parts";
    case WrongMerge::kOwnMaximum:
      return "adds states of parts as they are";
    case WrongMerge::kEmptyIsOne:
      return "counts a part without a visible key as lse 0";
    case WrongMerge::kLost:
      return "leaves out a part";
    case WrongMerge::kTwice:
      return "counts a part twice";
    case WrongMerge::kLastWriter:
      return "overwrites the parts by the last";
    case WrongMerge::kTransposed:
      return "weights by the transposed lse";
    case WrongMerge::kLseOfLast:
      return "returns the lse of the last part";
    case WrongMerge::kLseMaximum:
      return "returns the largest lse of the parts";
  }
  return "";
}

template <class Real>
call::TensorMap merge_in_parts(const call::Record& call, const MergeInParts& merge) {
  return KernelInParts<Real>(call, merge).run();
}
template call::TensorMap merge_in_parts<float>(const call::Record&, const MergeInParts&);
template call::TensorMap merge_in_parts<double>(const call::Record&, const MergeInParts&);

}  // namespace goldenrule::suites
