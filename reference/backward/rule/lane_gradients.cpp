// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/rule/lane_gradients.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/oracle/certificate.hpp"

namespace goldenrule::backward {
namespace {

using delta::Certificate;
using delta::Lane;
using delta::RecurrentTile;
using delta::TokenBounds;

constexpr double kSafety = 1.0 + 0x1p-6;            // of local terms, not of what is carried
constexpr double kBoundArithmetic = 1.0 + 0x1p-44;  // at every token
constexpr int kPacks = kTileVectors;

// 0 times a bound that is infinite is 0: what is erased carries no error.
double times(double x, double bound) { return x == 0.0 ? 0.0 : x * bound; }

// The gradient of a tile's states and the bound on its error.
template <class S>
class TileCertificate {
 public:
  using Row = typename StepNorms<S>::Row;

  // The states before and behind a token: norms of their columns, and bounds of their errors.
  struct States {
    Row norm{}, error{};
  };

  TileCertificate(const Lane<S>& lane, int columns, std::int64_t V, bool by_alpha)
      : lane_(&lane),
        columns_(columns),
        by_alpha_(by_alpha),
        gamma_key_(gamma(lane.K + 1)),
        gamma_sum_(gamma(V + 8)),
        gamma_gate_(gamma(lane.gates == 1 ? lane.K + V + 8 : V + 8)) {}

  // What token t adds to the radii of `to`, columns from `first` on.
  void advance(std::int64_t t, const States& before, const States& behind,
               const StepNorms<S>& norms, const double* output_gradient, std::int64_t first,
               LaneGradients<S>& to) {
    const TokenBounds& b = lane_->bounds[static_cast<std::size_t>(t)];
    const auto at = static_cast<std::size_t>(t);
    double of_q = 0.0;
    double of_k = 0.0;
    double of_g = 0.0;
    double of_beta = 0.0;
    for (int c = 0; c < columns_; ++c) {
      const auto column = static_cast<std::size_t>(c);
      const Column e = column_errors(b, before, behind, norms, output_gradient[c], column);
      of_q += e.q;
      of_k += e.k;
      of_g += e.g;
      of_beta += e.beta;
      to.dv_radius[static_cast<std::size_t>(first) + column] = e.v;
      // dd of a key in a random direction, or of this one if that is more.
      const double dd = std::max(b.k_norm * e.gradient / std::sqrt(static_cast<double>(lane_->K)),
                                 std::fabs(norms.dd[column]));
      to.dv_size[static_cast<std::size_t>(first) + column] = b.beta * dd;
      to.dbeta_size[at] += squared(dd * norms.residual[column]);
      to.dq_size[at] += squared(behind.norm[column] * output_gradient[c]);
      to.dk_size[at] += squared(b.beta * e.gradient * norms.residual[column]) +
                        squared(b.beta * e.decayed * dd);
      to.dg_size[at] += squared(e.gradient * e.decayed);
    }
    to.dq_radius[at] += of_q * kSafety;
    to.dk_radius[at] += times(b.beta, of_k) * kSafety;
    to.dg_radius[at] += of_g * kSafety;
    to.dbeta_radius[at] += of_beta * kSafety;
  }

  [[nodiscard]] double error(int column) const { return error_[static_cast<std::size_t>(column)]; }

 private:
  static constexpr double u = scalar::Tier<S>::kUnitRoundoff;

  static double gamma(std::int64_t n) {
    const double nu = static_cast<double>(n) * u;
    return nu / (1.0 - nu);
  }

  static double squared(double x) { return x * x; }

  struct Column {
    double q = 0.0, k = 0.0, v = 0.0, g = 0.0, beta = 0.0;
    double gradient = 0.0, decayed = 0.0;  // |G| and |S'|
  };

  Column column_errors(const TokenBounds& b, const States& before, const States& behind,
                       const StepNorms<S>& norms, double output_gradient, std::size_t c) {
    const double h = lane_->k_error;
    const double grow = 1.0 + static_cast<double>(lane_->K + 8) * 0x1p-53;
    const double underflow = 4.0 * static_cast<double>(lane_->K) * scalar::Tier<S>::kUnderflow *
                             (1.0 + b.k_norm) * (1.0 + b.beta);
    const double d_o = std::fabs(output_gradient);
    const double G = std::sqrt(norms.gradient2[c]) * grow;
    const double dd = std::fabs(norms.dd[c]) * grow;
    const double r = std::fabs(norms.residual[c]) * grow;
    const double z = before.norm[c];
    const double decayed = times(b.alpha_max, z) * grow;
    const double e1 = error_[c] + ((lane_->q_error + 2 * u) * b.q_norm * d_o + u * G) * kSafety +
                      underflow;
    const double e_decayed = times(b.alpha_max, before.error[c]) +
                             times(b.alpha_error + u * b.alpha_max, z) * kSafety + underflow;
    const double e_r = times(b.k_norm, e_decayed) + (gamma_key_ + h) * decayed * b.k_norm + u * r +
                       underflow;
    const double e_d = times(b.k_norm, e1) + (gamma_key_ + h) * G * b.k_norm + underflow;
    const double after = b.spectral * G;  // |G'|
    const double local = b.beta * b.k_norm *
                             ((h + b.beta_error + 2 * u) * dd +
                              (gamma_key_ + h) * G * b.k_norm) +
                         u * after;
    const double e2 = times(b.spectral, e1) + local * kSafety + underflow;
    Column e{.gradient = G, .decayed = decayed};
    e.q = times(d_o, behind.error[c]) + gamma_sum_ * behind.norm[c] * d_o + underflow;
    e.beta = times(r, e_d) + times(dd, e_r) + e_d * e_r + gamma_sum_ * dd * r + underflow;
    e.k = times(r, e1) + times(G, e_r) + times(dd, e_decayed) + times(decayed, e_d) + e1 * e_r +
          e_decayed * e_d +
          (2 * gamma_sum_ + b.beta_error + u) * (G * r + decayed * dd) + underflow;
    e.v = (times(b.beta, e_d) + (b.beta_error + u) * b.beta * dd + underflow) * kSafety;
    const double x = by_alpha_ ? z : decayed;
    const double e_x = by_alpha_ ? before.error[c] : e_decayed;
    e.g = times(x, e2) + times(after, e_x) + e2 * e_x + gamma_gate_ * after * x + underflow;
    error_[c] = (times(b.alpha_max, e2) +
                 times(b.alpha_error + u * b.alpha_max, after) * kSafety + underflow) *
                kBoundArithmetic;
    return e;
  }

  const Lane<S>* lane_;
  int columns_;
  bool by_alpha_;
  double gamma_key_, gamma_sum_, gamma_gate_;
  Row error_{};
};

// One tile of columns of a lane, on the way back.
template <class S>
class Tile {
 public:
  using Vector = typename scalar::Tier<S>::Vector;

  Tile(const Lane<S>& lane, const LaneInputs& inputs, std::int64_t first, bool certify,
       LaneGradients<S>& to)
      : lane_(lane),
        inputs_(inputs),
        first_(first),
        columns_(static_cast<int>(std::min<std::int64_t>(kTileColumns<S>, inputs.V - first))),
        certify_(certify),
        to_(to),
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
    TileCertificate<S> backward(lane_, columns_, inputs_.V, inputs_.by_alpha);
    for (std::int64_t begin = last; begin >= 0; begin -= block_) {
      parallel::stop_if_asked();
      take_block(begin, std::move(kept.back()), backward);
      kept.pop_back();
    }
    store_start(backward);
  }

 private:
  using States = typename TileCertificate<S>::States;

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
    tile_.advance(t, t + 1, certify_ ? delta::Detail::kNorms : delta::Detail::kValues);
    if (!certify_) return;
    const auto& norms = tile_.norms()[0];
    certificate.advance(t, norms);
    for (int c = 0; c < columns_; ++c) {
      const auto column = static_cast<std::size_t>(c);
      states_.norm[column] = std::sqrt(norms.state2[column]) * norm_factor();
      states_.error[column] = certificate.state_radius(c);
    }
  }

  // Tokens of the block that begins at `begin`: forward again, then back.
  void take_block(std::int64_t begin, Kept kept, TileCertificate<S>& backward) {
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
      take_token(t, states[i], states[i + 1], known[i], known[i + 1], backward);
    }
  }

  void take_token(std::int64_t t, const std::vector<Vector>& before,
                  const std::vector<Vector>& behind, const States& known_before,
                  const States& known_behind, TileCertificate<S>& backward) {
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
    if (certify_) {
      backward.advance(t, known_before, known_behind, norms, inputs_.output_gradient.data() + at,
                       at, to_);
    }
  }

  void load(const double* from, Vector (&to)[kPacks]) const {
    constexpr int lanes = scalar::Tier<S>::kLanes;
    for (int w = 0; w < kPacks; ++w) to[w] = scalar::broadcast_column(S(0));
    for (int c = 0; c < columns_; ++c) scalar::set_lane(to[c / lanes], c % lanes, S(from[c]));
  }

  void store_start(const TileCertificate<S>& backward) {
    constexpr int lanes = scalar::Tier<S>::kLanes;
    for (int c = 0; c < columns_; ++c) {
      for (std::int64_t i = 0; i < lane_.K; ++i) {
        to_.dstart[static_cast<std::size_t>(i * inputs_.V + first_ + c)] =
            scalar::get_lane(G_[static_cast<std::size_t>(i * kPacks + c / lanes)], c % lanes);
      }
      if (certify_) to_.dstart_radius[static_cast<std::size_t>(first_ + c)] = backward.error(c) * kSafety;
    }
  }

  const Lane<S>& lane_;
  const LaneInputs& inputs_;
  std::int64_t first_;
  int columns_;
  bool certify_;
  LaneGradients<S>& to_;
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
LaneGradients<S> lane_gradients(const Lane<S>& lane, const LaneInputs& inputs, bool certify) {
  const auto n = static_cast<std::size_t>(lane.tokens);
  const auto K = static_cast<std::size_t>(lane.K);
  const auto V = static_cast<std::size_t>(inputs.V);
  const double radius = certify ? 0.0 : std::numeric_limits<double>::infinity();
  LaneGradients<S> to;
  to.dq.assign(n * K, S(0));
  to.dk.assign(n * K, S(0));
  to.dv.assign(n * V, S(0));
  to.dg.assign(n * static_cast<std::size_t>(lane.gates), S(0));
  to.dbeta.assign(n, S(0));
  to.dstart.assign(K * V, S(0));
  for (auto* all : {&to.dq_radius, &to.dk_radius, &to.dg_radius, &to.dbeta_radius}) {
    all->assign(n, radius);
  }
  to.dv_radius.assign(n * V, radius);
  to.dstart_radius.assign(V, radius);
  to.dv_size.assign(n * V, 0.0);
  for (auto* all : {&to.dq_size, &to.dk_size, &to.dg_size}) all->assign(n, 0.0);
  to.dbeta_size.assign(n, 0.0);
  for (std::int64_t first = 0; first < inputs.V; first += kTileColumns<S>) {
    Tile<S>(lane, inputs, first, certify, to).run();
  }
  take_root(to.dq_size, 1);
  take_root(to.dk_size, 1);
  take_root(to.dg_size, lane.K);
  take_root(to.dbeta_size, 1);
  return to;
}

template LaneGradients<double> lane_gradients(const Lane<double>&, const LaneInputs&, bool);
template LaneGradients<scalar::Quad> lane_gradients(const Lane<scalar::Quad>&, const LaneInputs&,
                                                    bool);
template LaneGradients<scalar::Multi> lane_gradients(const Lane<scalar::Multi>&, const LaneInputs&,
                                                     bool);

}  // namespace goldenrule::backward
