// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/rule/forms.hpp"

#include <utility>

#include "fixtures/random/philox.hpp"

namespace goldenrule::attention {
namespace {

// The scores and values of the keys that a row sees.
template <class S>
struct Keys {
  std::vector<S> score;
  std::vector<std::vector<S>> value;
};

template <class S>
Keys<S> keys_of(const Tensors& tensors, const Plan& plan, const Request& request,
                const RowPlace& row) {
  const Dims& d = plan.dims;
  const std::int64_t head = plan.key_head[static_cast<std::size_t>(row.head)];
  std::vector<double> q(static_cast<std::size_t>(d.K));
  std::vector<double> k(q.size());
  std::vector<double> v(static_cast<std::size_t>(d.V));
  tensors.q->read(((request.first_query + row.query) * d.HV + row.head) * d.K, d.K, q.data());
  Keys<S> keys;
  for (const Run& run : request.runs) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      if (!request.visible[static_cast<std::size_t>(row.query)].contains(run.t + i)) continue;
      tensors.read_key(plan, run.source, run.row + i, head, k.data());
      tensors.read_value(plan, run.source, run.row + i, head, v.data());
      keys.score.push_back(score_of<S>(plan, q, k.data()));
      keys.value.emplace_back(v.begin(), v.end());
    }
  }
  return keys;
}

template <class S>
S in_base(const Plan& plan, const S& lse) {
  return plan.lse_base == LseBase::kE ? lse : S(lse / scalar::log(S(2.0)));
}

template <class S>
struct Running {
  S m, l;
  std::vector<S> acc;
};

template <class S>
Running<S> merged(Running<S> a, const Running<S>& b) {
  const S m = a.m > b.m ? a.m : b.m;
  const S left = scalar::exp(a.m - m);
  const S right = scalar::exp(b.m - m);
  a.m = m;
  a.l = a.l * left + b.l * right;
  for (std::size_t x = 0; x < a.acc.size(); ++x) a.acc[x] = a.acc[x] * left + b.acc[x] * right;
  return a;
}

// As a split hands it over.
template <class S>
void normalise(Running<S>& state) {
  for (S& x : state.acc) x = x / state.l;
  state.m = state.m + scalar::log(state.l);
  state.l = S(1.0);
}

}  // namespace

template <class S>
RowValue<S> by_merge_tree(const Tensors& tensors, const Plan& plan, const Request& request,
                          const RowPlace& row, std::uint64_t seed) {
  const Keys<S> keys = keys_of<S>(tensors, plan, request, row);
  RowValue<S> value;
  value.has_keys = !keys.score.empty();
  if (!value.has_keys) return value;
  std::vector<Running<S>> states;
  for (std::size_t i = 0; i < keys.score.size(); ++i) {
    states.push_back({keys.score[i], S(1.0), keys.value[i]});
  }
  // Half of the trees merge any two states, the others mostly the two at the end, as a comb does.
  const random::Stream stream(seed, "merge tree");
  const bool comb = (stream.bits(0) & 1) != 0;
  for (std::int64_t step = 1; states.size() > 1; ++step) {
    const auto count = static_cast<double>(states.size());
    auto a = static_cast<std::size_t>(stream.uniform(4 * step) * count);
    if (comb && stream.uniform(4 * step + 1) < 0.9) a = states.size() - 1;
    std::swap(states[a], states.back());
    Running<S> last = std::move(states.back());
    states.pop_back();
    const auto b = static_cast<std::size_t>(stream.uniform(4 * step + 2) * (count - 1.0));
    states[b] = merged(std::move(states[b]), last);
    if ((stream.bits(4 * step + 3) & 1) != 0) normalise(states[b]);
    if (comb) std::swap(states[b], states.back());
  }
  Running<S>& root = states[0];
  value.lse = in_base(plan, S(root.m + scalar::log(root.l)));
  for (const S& x : root.acc) value.o.push_back(x / root.l);
  return value;
}

template <class S>
RowValue<S> by_reciprocals(const Tensors& tensors, const Plan& plan, const Request& request,
                           const RowPlace& row) {
  const Keys<S> keys = keys_of<S>(tensors, plan, request, row);
  RowValue<S> value;
  value.has_keys = !keys.score.empty();
  if (!value.has_keys) return value;
  value.o.assign(keys.value[0].size(), S(0.0));
  for (std::size_t t = 0; t < keys.score.size(); ++t) {
    S sum(0.0);
    for (const S& other : keys.score) sum += scalar::exp(other - keys.score[t]);
    const S w = S(1.0) / sum;
    if (t == 0) value.lse = in_base(plan, S(keys.score[t] + scalar::log(sum)));
    for (std::size_t x = 0; x < value.o.size(); ++x) value.o[x] += w * keys.value[t][x];
  }
  return value;
}

template RowValue<double> by_merge_tree<double>(const Tensors&, const Plan&, const Request&,
                                                const RowPlace&, std::uint64_t);
template RowValue<scalar::Multi> by_merge_tree<scalar::Multi>(const Tensors&, const Plan&,
                                                              const Request&, const RowPlace&,
                                                              std::uint64_t);
template RowValue<double> by_reciprocals<double>(const Tensors&, const Plan&, const Request&,
                                                 const RowPlace&);
template RowValue<scalar::Multi> by_reciprocals<scalar::Multi>(const Tensors&, const Plan&,
                                                               const Request&, const RowPlace&);

}  // namespace goldenrule::attention
