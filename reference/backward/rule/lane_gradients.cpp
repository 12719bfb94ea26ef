// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/rule/lane_gradients.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/backward/rule/adjoint_certificate.hpp"
#include "reference/delta/oracle/certificate.hpp"

namespace goldenrule::backward {
namespace {

using delta::Certificate;
using delta::Lane;
using delta::RecurrentTile;

constexpr int kPacks = kTileVectors;

// One tile of columns of a lane, on the way back.
template <class S>
class Tile {
 public:
  using Vector = typename scalar::Tier<S>::Vector;

  Tile(const Lane<S>& lane, const LaneInputs& inputs, std::int64_t first, LaneGradients<S>& to,
       StateGradients<S>* states)
      : lane_(lane),
        inputs_(inputs),
        first_(first),
        columns_(static_cast<int>(std::min<std::int64_t>(kTileColumns<S>, inputs.V - first))),
        to_(to),
        kept_(states),
        block_(std::max<std::int64_t>(
            1, static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(lane.tokens)))))),
        tile_(lane, inputs.v.data(), inputs.V, first, columns_),
        G_(static_cast<std::size_t>(lane.K * kPacks), scalar::broadcast_column(S(0))) {}

  void run() {
    set_start();
    Certificate<S> certificate(lane_, start2_);
    std::vector<Kept> kept;
    const std::int64_t last = lane_.tokens > 0 ? (lane_.tokens - 1) / block_ * block_ : -1;
    for (std::int64_t t = 0; t <= last; ++t) {
      if (t % block_ == 0) kept.push_back({tile_.columns_of_state(), certificate, states_});
      if (t < last) advance(t, certificate);
    }
    set_state_gradient();
    AdjointCertificate<S> backward(lane_, columns_, inputs_.V, inputs_.by_alpha);
    for (std::int64_t begin = last; begin >= 0; begin -= block_) {
      parallel::stop_if_asked();
      take_block(begin, std::move(kept.back()), backward);
      kept.pop_back();
    }
    copy_gradient(backward, to_.dstart, to_.dstart_radius);
  }

 private:
  using States = StateColumns<S>;

  struct Kept {
    std::vector<Vector> state;
    Certificate<S> certificate;
    States states;
  };

  void set_start() {
    if (inputs_.start.empty()) return;
    for (std::int64_t i = 0; i < lane_.K; ++i) {
      for (int c = 0; c < columns_; ++c) {
        const double x = inputs_.start[static_cast<std::size_t>(i * inputs_.V + first_ + c)];
        tile_.set_state(i, c, S(x));
        start2_[static_cast<std::size_t>(c)] += x * x;
      }
    }
    for (std::size_t c = 0; c < start2_.size(); ++c) {
      states_.norm[c] = std::sqrt(start2_[c]) * norm_factor();
    }
  }

  [[nodiscard]] double norm_factor() const {
    return 1.0 + static_cast<double>(lane_.K + 8) * 0x1p-53;
  }

  void set_state_gradient() {
    if (inputs_.state_gradient.empty()) return;
    constexpr int lanes = scalar::Tier<S>::kLanes;
    for (std::int64_t i = 0; i < lane_.K; ++i) {
      for (int c = 0; c < columns_; ++c) {
        const double x =
            inputs_.state_gradient[static_cast<std::size_t>(i * inputs_.V + first_ + c)];
        scalar::set_lane(G_[static_cast<std::size_t>(i * kPacks + c / lanes)], c % lanes, S(x));
      }
    }
  }

  // One token forward: the state and what is known of it.
  void advance(std::int64_t t, Certificate<S>& certificate) {
    tile_.advance(t, t + 1, delta::Detail::kNorms);
    const auto& norms = tile_.norms()[0];
    certificate.advance(t, norms);
    for (int c = 0; c < columns_; ++c) {
      const auto column = static_cast<std::size_t>(c);
      states_.norm[column] = std::sqrt(norms.state2[column]) * norm_factor();
      states_.error[column] = certificate.state_radius(c);
    }
  }

  // Tokens of the block that begins at `begin`: forward again, then back.
  void take_block(std::int64_t begin, Kept kept, AdjointCertificate<S>& backward) {
    const std::int64_t end = std::min(begin + block_, lane_.tokens);
    std::vector<std::vector<Vector>> states{std::move(kept.state)};
    std::vector<States> known{kept.states};
    tile_.set_columns_of_state(states.front());
    states_ = kept.states;
    for (std::int64_t t = begin; t < end; ++t) {
      advance(t, kept.certificate);
      states.emplace_back(tile_.columns_of_state());
      known.push_back(states_);
    }
    for (std::int64_t t = end - 1; t >= begin; --t) {
      const auto i = static_cast<std::size_t>(t - begin);
      keep_gradient(t, backward);
      take_token(t, states[i], states[i + 1], known[i], known[i + 1], backward);
    }
  }

  void take_token(std::int64_t t, const std::vector<Vector>& before,
                  const std::vector<Vector>& behind, const States& known_before,
                  const States& known_behind, AdjointCertificate<S>& backward) {
    Vector v[kPacks];
    Vector output_gradient[kPacks];
    Vector dv[kPacks];
    const std::int64_t at = t * inputs_.V + first_;
    load(inputs_.v.data() + at, v);
    load(inputs_.output_gradient.data() + at, output_gradient);
    StepNorms<S> norms;
    const AdjointStep<S> step{.lane = &lane_,
                              .token = t,
                              .by_alpha = inputs_.by_alpha,
                              .before = before.data(),
                              .after = behind.data(),
                              .v = v,
                              .output_gradient = output_gradient,
                              .G = G_.data(),
                              .dv = dv,
                              .dq = to_.dq.data() + t * lane_.K,
                              .dk = to_.dk.data() + t * lane_.K,
                              .dg = to_.dg.data() + t * lane_.gates,
                              .dbeta = &to_.dbeta[static_cast<std::size_t>(t)],
                              .norms = &norms};
    backward::run(step);
    constexpr int lanes = scalar::Tier<S>::kLanes;
    for (int c = 0; c < columns_; ++c) {
      to_.dv[static_cast<std::size_t>(at + c)] = scalar::get_lane(dv[c / lanes], c % lanes);
    }
    backward.advance(t, known_before, known_behind, norms, inputs_.output_gradient.data() + at, at,
                     to_);
  }

  // G behind token t, where a chunk ends with it.
  void keep_gradient(std::int64_t t, const AdjointCertificate<S>& backward) {
    if (kept_ == nullptr || ((t + 1) % kept_->chunk != 0 && t + 1 != lane_.tokens)) return;
    const auto chunk = static_cast<std::size_t>(t / kept_->chunk);
    copy_gradient(backward, kept_->values[chunk], kept_->radius[chunk]);
  }

  void load(const double* from, Vector (&to)[kPacks]) const {
    constexpr int lanes = scalar::Tier<S>::kLanes;
    for (int w = 0; w < kPacks; ++w) to[w] = scalar::broadcast_column(S(0));
    for (int c = 0; c < columns_; ++c) scalar::set_lane(to[c / lanes], c % lanes, S(from[c]));
  }

  void copy_gradient(const AdjointCertificate<S>& backward, std::vector<S>& values,
                     std::vector<double>& radius) const {
    constexpr int lanes = scalar::Tier<S>::kLanes;
    for (int c = 0; c < columns_; ++c) {
      for (std::int64_t i = 0; i < lane_.K; ++i) {
        values[static_cast<std::size_t>(i * inputs_.V + first_ + c)] =
            scalar::get_lane(G_[static_cast<std::size_t>(i * kPacks + c / lanes)], c % lanes);
      }
      radius[static_cast<std::size_t>(first_ + c)] = backward.error(c);
    }
  }

  const Lane<S>& lane_;
  const LaneInputs& inputs_;
  std::int64_t first_;
  int columns_;
  LaneGradients<S>& to_;
  StateGradients<S>* kept_;
  std::int64_t block_;
  RecurrentTile<S> tile_;
  std::vector<Vector> G_;
  typename StepNorms<S>::Row start2_{};
  States states_{};  // of the tile's present state
};

void take_root(std::vector<double>& size2, std::int64_t elements) {
  for (double& x : size2) x = std::sqrt(x / static_cast<double>(elements));
}

}  // namespace

template <class S>
LaneGradients<S> lane_gradients(const Lane<S>& lane, const LaneInputs& inputs,
                                StateGradients<S>* states) {
  const auto n = static_cast<std::size_t>(lane.tokens);
  const auto K = static_cast<std::size_t>(lane.K);
  const auto V = static_cast<std::size_t>(inputs.V);
  LaneGradients<S> to;
  to.dq.assign(n * K, S(0));
  to.dk.assign(n * K, S(0));
  to.dv.assign(n * V, S(0));
  to.dg.assign(n * static_cast<std::size_t>(lane.gates), S(0));
  to.dbeta.assign(n, S(0));
  to.dstart.assign(K * V, S(0));
  for (auto* all : {&to.dq_radius, &to.dk_radius, &to.dg_radius, &to.dbeta_radius}) {
    all->assign(n, 0.0);
  }
  to.dv_radius.assign(n * V, 0.0);
  to.dstart_radius.assign(V, 0.0);
  to.dv_size.assign(n * V, 0.0);
  for (auto* all : {&to.dq_size, &to.dk_size, &to.dg_size}) all->assign(n, 0.0);
  to.dbeta_size.assign(n, 0.0);
  if (states != nullptr) {
    const auto chunks = static_cast<std::size_t>((lane.tokens + states->chunk - 1) / states->chunk);
    states->values.assign(chunks, to.dstart);
    states->radius.assign(chunks, to.dstart_radius);
  }
  for (std::int64_t first = 0; first < inputs.V; first += kTileColumns<S>) {
    Tile<S>(lane, inputs, first, to, states).run();
  }
  take_root(to.dq_size, 1);
  take_root(to.dk_size, 1);
  take_root(to.dg_size, lane.K);
  take_root(to.dbeta_size, 1);
  return to;
}

template LaneGradients<double> lane_gradients(const Lane<double>&, const LaneInputs&,
                                              StateGradients<double>*);
template LaneGradients<scalar::Quad> lane_gradients(const Lane<scalar::Quad>&, const LaneInputs&,
                                                    StateGradients<scalar::Quad>*);
template LaneGradients<scalar::Multi> lane_gradients(const Lane<scalar::Multi>&, const LaneInputs&,
                                                     StateGradients<scalar::Multi>*);

}  // namespace goldenrule::backward
