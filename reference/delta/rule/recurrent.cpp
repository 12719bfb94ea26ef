// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/rule/recurrent.hpp"

#include <cstring>
#include <type_traits>

namespace goldenrule::delta {
namespace {

constexpr int W = kTileVectors;

template <class S>
using VectorOf = typename scalar::Tier<S>::Vector;

// Columns of doubles: what leading() of a column vector gives.
template <class S>
using NormOf = decltype(scalar::leading(std::declval<const VectorOf<S>&>()));

template <class S>
GOLDENRULE_INLINE void store(const NormOf<S> (&from)[W], typename ColumnNorms<S>::Row& to) {
  constexpr int lanes = scalar::Tier<S>::kLanes;
  for (int w = 0; w < W; ++w) {
    for (int lane = 0; lane < lanes; ++lane) {
      if constexpr (lanes == 1) {
        to[static_cast<std::size_t>(w)] = from[w];
      } else {
        const int column = w * lanes + lane;
        to[static_cast<std::size_t>(column)] = from[w][lane];
      }
    }
  }
}

template <class S>
GOLDENRULE_INLINE void store_leading(const VectorOf<S> (&from)[W],
                                     typename ColumnNorms<S>::Row& to) {
  NormOf<S> norms[W];
  for (int w = 0; w < W; ++w) norms[w] = scalar::leading(from[w]);
  store<S>(norms, to);
}

// What the two passes over the K channels of a token sum up, per column.
template <class S>
struct Sums {
  VectorOf<S> value[W];
  NormOf<S> squares[W];  // of the products (Detail::kSums)

  GOLDENRULE_INLINE Sums() {
    for (int w = 0; w < W; ++w) {
      value[w] = scalar::broadcast_column(S(0));
      squares[w] = NormOf<S>{};
    }
  }
};

// Decays the state and returns p = S'^T k^.
template <class S, Detail kDetail>
GOLDENRULE_INLINE Sums<S> decay(const Lane<S>& lane, std::int64_t t, VectorOf<S>* state) {
  using Vector = VectorOf<S>;
  const S* k = lane.k_row(t);
  const S* alpha = lane.alpha.data() + t * lane.gates;
  const std::int64_t gate_step = lane.gates == 1 ? 0 : 1;
  Sums<S> predicted;
  for (std::int64_t i = 0; i < lane.K; ++i) {
    const Vector a = scalar::broadcast_column(alpha[i * gate_step]);
    const Vector ki = scalar::broadcast_column(k[i]);
    for (int w = 0; w < W; ++w) {
      const Vector decayed = state[i * W + w] * a;
      state[i * W + w] = decayed;
      const Vector product = decayed * ki;
      predicted.value[w] += product;
      if constexpr (kDetail == Detail::kSums) {
        predicted.squares[w] += scalar::leading(product) * scalar::leading(product);
      }
    }
  }
  return predicted;
}

// Adds k^ delta^T to the state, whose squared norms go to `state2`, and returns o.
template <class S, Detail kDetail>
GOLDENRULE_INLINE Sums<S> update(const Lane<S>& lane, std::int64_t t, const VectorOf<S>* delta,
                                 VectorOf<S>* state, NormOf<S>* state2) {
  using Vector = VectorOf<S>;
  const S* k = lane.k_row(t);
  const S* q = lane.q_row(t);
  Sums<S> output;
  for (std::int64_t i = 0; i < lane.K; ++i) {
    const Vector ki = scalar::broadcast_column(k[i]);
    const Vector qi = scalar::broadcast_column(q[i]);
    for (int w = 0; w < W; ++w) {
      const Vector updated = state[i * W + w] + ki * delta[w];
      state[i * W + w] = updated;
      const Vector product = updated * qi;
      output.value[w] += product;
      if constexpr (kDetail != Detail::kValues) {
        state2[w] += scalar::leading(updated) * scalar::leading(updated);
      }
      if constexpr (kDetail == Detail::kSums) {
        output.squares[w] += scalar::leading(product) * scalar::leading(product);
      }
    }
  }
  return output;
}

// One token on one tile. `v`, `o` and `correction` are [W].
template <class S, Detail kDetail>
GOLDENRULE_INLINE void step(const Lane<S>& lane, std::int64_t t, const VectorOf<S>* v,
                            VectorOf<S>* state, VectorOf<S>* o, VectorOf<S>* correction,
                            ColumnNorms<S>* norms) {
  using Vector = VectorOf<S>;
  const Sums<S> predicted = decay<S, kDetail>(lane, t, state);
  const Vector beta = scalar::broadcast_column(lane.beta[static_cast<std::size_t>(t)]);
  Vector delta[W];
  for (int w = 0; w < W; ++w) {
    delta[w] = t < lane.given ? v[w] : beta * (v[w] - predicted.value[w]);
    correction[w] = delta[w];
  }
  NormOf<S> state2[W];
  for (int w = 0; w < W; ++w) state2[w] = NormOf<S>{};
  const Sums<S> output = update<S, kDetail>(lane, t, delta, state, state2);
  for (int w = 0; w < W; ++w) o[w] = output.value[w];

  if constexpr (kDetail != Detail::kValues) {
    store<S>(state2, norms->state2);
    store_leading<S>(delta, norms->delta);
  }
  if constexpr (kDetail == Detail::kSums) {
    store_leading<S>(predicted.value, norms->predicted);
    store<S>(predicted.squares, norms->predicted2);
    store_leading<S>(output.value, norms->output);
    store<S>(output.squares, norms->output2);
  }
}

template <class S>
struct Run {
  const Lane<S>* lane;
  const double* v;  // offset to the first column of the tile
  std::int64_t v_stride;
  int columns;
  std::int64_t begin, end;
  VectorOf<S>* state;
  VectorOf<S>* output;
  VectorOf<S>* correction;
  ColumnNorms<S>* norms;
};

template <class S, Detail kDetail>
GOLDENRULE_INLINE void run_tokens(const Run<S>& r) {
  constexpr int lanes = scalar::Tier<S>::kLanes;
  for (std::int64_t t = r.begin; t < r.end; ++t) {
    VectorOf<S> v[W];
    for (int w = 0; w < W; ++w) v[w] = scalar::broadcast_column(S(0));
    for (int c = 0; c < r.columns; ++c) {
      scalar::set_lane(v[c / lanes], c % lanes, S(r.v[t * r.v_stride + c]));
    }
    const std::int64_t row = t - r.begin;
    step<S, kDetail>(*r.lane, t, v, r.state, r.output + row * W, r.correction + row * W,
                     kDetail == Detail::kValues ? nullptr : r.norms + row);
  }
}

template <class S>
GOLDENRULE_INLINE void run_detail(const Run<S>& r, Detail detail) {
  switch (detail) {
    case Detail::kValues:
      return run_tokens<S, Detail::kValues>(r);
    case Detail::kNorms:
      return run_tokens<S, Detail::kNorms>(r);
    case Detail::kSums:
      return run_tokens<S, Detail::kSums>(r);
  }
}

// target_clones needs ordinary functions: one for each tier that is vectorised.
GOLDENRULE_VECTOR_CLONES void run(const Run<double>& r, Detail detail) { run_detail(r, detail); }
GOLDENRULE_VECTOR_CLONES void run(const Run<scalar::Quad>& r, Detail detail) {
  run_detail(r, detail);
}
void run(const Run<scalar::Multi>& r, Detail detail) { run_detail(r, detail); }

// The numbers of a pack, or the first of them where fewer columns are left.
void copy_pack(const void* from, int columns, void* to) {
  if (columns >= scalar::kPackWidth) {
    std::memcpy(to, from, scalar::kPackWidth * sizeof(double));
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(double));
  }
}

}  // namespace

template <class S>
RecurrentTile<S>::RecurrentTile(const Lane<S>& lane, const double* v, std::int64_t v_stride,
                                std::int64_t first_column, int columns)
    : lane_(&lane),
      v_(v),
      v_stride_(v_stride),
      first_column_(first_column),
      columns_(columns),
      state_(static_cast<std::size_t>(lane.K * W), scalar::broadcast_column(S(0))) {}

template <class S>
void RecurrentTile<S>::set_state(std::int64_t i, int c, const S& x) {
  constexpr int lanes = scalar::Tier<S>::kLanes;
  scalar::set_lane(state_[static_cast<std::size_t>(i * W + c / lanes)], c % lanes, x);
}

template <class S>
S RecurrentTile<S>::state(std::int64_t i, int c) const {
  constexpr int lanes = scalar::Tier<S>::kLanes;
  return scalar::get_lane(state_[static_cast<std::size_t>(i * W + c / lanes)], c % lanes);
}

template <class S>
void RecurrentTile<S>::set_row(std::int64_t i, const S* from) {
  if constexpr (std::is_same_v<S, double>) {  // a pack lies as its numbers do
    for (int w = 0; w * scalar::kPackWidth < columns_; ++w) {
      const int c = w * scalar::kPackWidth;
      copy_pack(from + c, columns_ - c, &state_[static_cast<std::size_t>(i * W + w)].v);
    }
  } else {
    for (int c = 0; c < columns_; ++c) set_state(i, c, from[c]);
  }
}

template <class S>
void RecurrentTile<S>::read_row(std::int64_t i, S* to) const {
  if constexpr (std::is_same_v<S, double>) {
    for (int w = 0; w * scalar::kPackWidth < columns_; ++w) {
      const int c = w * scalar::kPackWidth;
      copy_pack(&state_[static_cast<std::size_t>(i * W + w)].v, columns_ - c, to + c);
    }
  } else {
    for (int c = 0; c < columns_; ++c) to[c] = state(i, c);
  }
}

template <class S>
void RecurrentTile<S>::advance(std::int64_t begin, std::int64_t end, Detail detail) {
  const auto count = static_cast<std::size_t>(end - begin);
  output_.resize(count * static_cast<std::size_t>(W));
  correction_.resize(count * static_cast<std::size_t>(W));
  if (detail != Detail::kValues) norms_.resize(count);
  run({lane_, v_ + first_column_, v_stride_, columns_, begin, end, state_.data(), output_.data(),
       correction_.data(), norms_.data()},
      detail);
}

template <class S>
S RecurrentTile<S>::output(std::int64_t t, int c) const {
  constexpr int lanes = scalar::Tier<S>::kLanes;
  return scalar::get_lane(output_[static_cast<std::size_t>(t * W + c / lanes)], c % lanes);
}

template <class S>
S RecurrentTile<S>::correction(std::int64_t t, int c) const {
  constexpr int lanes = scalar::Tier<S>::kLanes;
  return scalar::get_lane(correction_[static_cast<std::size_t>(t * W + c / lanes)], c % lanes);
}

template class RecurrentTile<double>;
template class RecurrentTile<scalar::Quad>;
template class RecurrentTile<scalar::Multi>;

}  // namespace goldenrule::delta
