// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/rule/lane_stages.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace goldenrule::backward {
namespace {

using delta::ChunkFactors;
using delta::kHigherOrder;
using delta::Lane;
using delta::Matrix;
using Sizes = Matrix<double>;

template <class S>
Bounded<S> nothing(std::int64_t rows, std::int64_t columns) {
  return {Matrix<S>::Constant(rows, columns, S(0)), Sizes::Zero(rows, columns)};
}

Sizes matrix_of(const std::vector<double>& x, std::int64_t rows, std::int64_t columns) {
  if (x.empty()) return Sizes::Zero(rows, columns);
  return Sizes::Map(x.data(), rows, columns);
}

template <class M>
Sizes sizes_of(const M& m) {
  Sizes to(m.rows(), m.cols());
  for (std::int64_t i = 0; i < m.rows(); ++i) {
    for (std::int64_t x = 0; x < m.cols(); ++x) to(i, x) = std::fabs(scalar::to_double(m(i, x)));
  }
  return to;
}

template <class S>
class StagesOfLane {
 public:
  StagesOfLane(const Lane<S>& lane, const LaneInputs& inputs, std::int64_t C)
      : lane_(lane),
        C_(C),
        K_(lane.K),
        V_(inputs.V),
        d_o_(matrix_of(inputs.output_gradient, lane.tokens, inputs.V)) {
    const Sizes v = matrix_of(inputs.v, lane.tokens, V_);
    const Sizes start = matrix_of(inputs.start, K_, V_);
    const auto result = delta::chunk_form<S>(lane, v, start, C, &to_.forward);
    to_.errors = delta::chunk_errors<S>(lane, v, start, C, result, to_.forward);
    tiny_ = delta::underflow_term(lane, v, start) +
            delta::underflow_term(lane, d_o_, matrix_of(inputs.state_gradient, K_, V_));
    to_.o = {result.o, Sizes::Zero(lane.tokens, V_)};
    to_.P = to_.dP = to_.dM = nothing<S>(lane.tokens, C);
    to_.du = nothing<S>(lane.tokens, V_);
    to_.dw = nothing<S>(lane.tokens, K_);
    to_.o_reach = to_.du_reach = Matrix<float>::Zero(lane.tokens, V_);
    take_tokens(inputs);
  }

  LaneStages<S> run() {
    for (std::int64_t first = 0; first < lane_.tokens; first += C_) {
      take_chunk(first, std::min(C_, lane_.tokens - first));
    }
    return std::move(to_);
  }

 private:
  static double growth(std::int64_t m) { return delta::rounding_growth<S>(m); }

  // What the adjoint leaves token by token.
  void take_tokens(LaneInputs inputs) {
    inputs.by_alpha = false;
    StateGradients<S> states{.chunk = C_, .values = {}, .radius = {}};
    const LaneGradients<S> by = lane_gradients(lane_, inputs, &states);
    to_.dq = of_keys(by.dq, by.dq_radius);
    to_.dk = of_keys(by.dk, by.dk_radius);
    to_.raw = nothing<S>(lane_.tokens, lane_.gates);
    to_.raw_size = by.dg_size;
    to_.dq_size = by.dq_size;
    to_.dk_size = by.dk_size;
    for (std::int64_t t = 0; t < lane_.tokens; ++t) {
      const auto at = static_cast<std::size_t>(t);
      const bool last = (t + 1) % C_ == 0 || t + 1 == lane_.tokens;
      if (!last) to_.raw_size[at] = std::hypot(by.dg_size[at], by.dg_size[at + 1]);
      for (std::int64_t g = 0; g < lane_.gates; ++g) {
        const S own = by.dg[at * static_cast<std::size_t>(lane_.gates) + to_size(g)];
        const S next =
            last ? S(0) : by.dg[(at + 1) * static_cast<std::size_t>(lane_.gates) + to_size(g)];
        const S raw = own - next;
        to_.raw.value(t, g) = raw;
        to_.raw.error(t, g) =
            by.dg_radius[at] + (last ? 0.0 : by.dg_radius[at + 1]) + growth(1) * size(raw);
      }
    }
    for (std::size_t c = 0; c < states.values.size(); ++c) {
      Bounded<S> dh{Matrix<S>::Map(states.values[c].data(), K_, V_), Sizes(K_, V_)};
      for (std::int64_t x = 0; x < V_; ++x)
        dh.error.col(x).setConstant(states.radius[c][to_size(x)]);
      to_.dh.push_back(std::move(dh));
    }
  }

  static std::size_t to_size(std::int64_t i) { return static_cast<std::size_t>(i); }
  static double size(const S& x) { return std::fabs(scalar::to_double(x)); }

  Bounded<S> of_keys(const std::vector<S>& values, const std::vector<double>& radius) const {
    Bounded<S> to{Matrix<S>::Map(values.data(), lane_.tokens, K_), Sizes(lane_.tokens, K_)};
    for (std::int64_t t = 0; t < lane_.tokens; ++t) to.error.row(t).setConstant(radius[to_size(t)]);
    return to;
  }

  void take_chunk(std::int64_t first, std::int64_t c) {
    const auto tokens =
        std::span<const delta::TokenBounds>(lane_.bounds).subspan(to_size(first), to_size(c));
    const ChunkFactors f(tokens);
    const Matrix<S> k_out = set_pairs(first, c, f);
    const auto n = static_cast<std::size_t>(first / C_);
    const Sizes h = sizes_of(to_.forward.h[n]);
    bound_output(first, c, f, h, to_.errors.h[n]);
    set_correction(first, c, f, k_out, to_.dh[n]);
    set_pair_gradients(first, c);
    set_inverse_gradients(first, c);
    set_dw(first, c, to_.forward.h[n], to_.errors.h[n]);
  }

  // P; k^ L.
  Matrix<S> set_pairs(std::int64_t first, std::int64_t c, const ChunkFactors& f) {
    Matrix<S> k_out(c, K_);
    std::vector<S> decay(to_size(K_));
    const double relative = growth(K_ + c + 3) + lane_.q_error + lane_.k_error;
    for (std::int64_t j = 0; j < c; ++j) {
      std::ranges::fill(decay, S(1));
      const S* k = lane_.k_row(first + j);
      for (std::int64_t i = j; i < c; ++i) {
        const S* q = lane_.q_row(first + i);
        S sum(0);
        for (std::int64_t x = 0; x < K_; ++x) {
          S& d = decay[to_size(x)];
          if (i > j) d *= lane_.alpha_at(first + i, x);
          sum += q[x] * d * k[x];
        }
        to_.P.value(first + i, j) = sum;
        to_.P.error(first + i, j) =
            f.q(i) * f.k(j) * (relative * f.P(i, j) + f.dP(i, j)) * kHigherOrder + tiny_;
      }
      for (std::int64_t x = 0; x < K_; ++x) k_out(j, x) = k[x] * decay[to_size(x)];
    }
    return k_out;
  }

  void bound_output(std::int64_t first, std::int64_t c, const ChunkFactors& f, const Sizes& h,
                    const Eigen::RowVectorXd& h_error) {
    const Sizes P = sizes_of(to_.P.value.block(first, 0, c, c));
    const Sizes e_P = to_.P.error.block(first, 0, c, c);
    const Sizes v_new = sizes_of(to_.forward.v_new.middleRows(first, c));
    const Sizes e_v = to_.errors.v_new.middleRows(first, c);
    const Eigen::RowVectorXd h_norm = h.colwise().norm();
    Sizes error = e_P * v_new + P * e_v + growth(c + 2) * (P * v_new);
    Sizes size2 = P.cwiseAbs2() * v_new.cwiseAbs2();
    for (std::int64_t i = 0; i < c; ++i) {
      error.row(i) += f.q(i) * (f.E(i) * h_error +
                                ((growth(K_ + c + 3) + lane_.q_error) * f.E(i) + f.dE(i)) * h_norm);
      size2.row(i) += (f.q(i) * f.E(i) / std::sqrt(static_cast<double>(K_)) * h_norm).cwiseAbs2();
    }
    to_.o.error.middleRows(first, c) = (error.array() * kHigherOrder + tiny_).matrix();
    to_.o_reach.middleRows(first, c) = size2.cwiseSqrt().cast<float>();
  }

  // du.
  void set_correction(std::int64_t first, std::int64_t c, const ChunkFactors& f,
                      const Matrix<S>& k_out, const Bounded<S>& dh) {
    const Sizes P = sizes_of(to_.P.value.block(first, 0, c, c));
    const Sizes e_P = to_.P.error.block(first, 0, c, c);
    const Sizes d_o = d_o_.middleRows(first, c).cwiseAbs();
    const Sizes dh_size = sizes_of(dh.value);
    const Eigen::RowVectorXd dh_norm = dh_size.colwise().norm();
    for (std::int64_t j = 0; j < c; ++j) {
      for (std::int64_t x = 0; x < V_; ++x) {
        S sum(0);
        for (std::int64_t i = j; i < c; ++i) {
          sum += to_.P.value(first + i, j) * S(d_o_(first + i, x));
        }
        for (std::int64_t y = 0; y < K_; ++y) sum += k_out(j, y) * dh.value(y, x);
        to_.du.value(first + j, x) = sum;
      }
    }
    Sizes error = e_P.transpose() * d_o + growth(c + 2) * (P.transpose() * d_o);
    Sizes size2 = P.cwiseAbs2().transpose() * d_o.cwiseAbs2();
    for (std::int64_t j = 0; j < c; ++j) {
      const double F = f.P(c - 1, j);
      error.row(j) +=
          f.k(j) * (F * dh.error.row(0) +
                    ((growth(K_ + c + 3) + lane_.k_error) * F + f.dP(c - 1, j)) * dh_norm);
      size2.row(j) += (f.k(j) * F / std::sqrt(static_cast<double>(K_)) * dh_norm).cwiseAbs2();
    }
    to_.du.error.middleRows(first, c) = (error.array() * kHigherOrder + tiny_).matrix();
    to_.du_reach.middleRows(first, c) = size2.cwiseSqrt().cast<float>();
  }

  // dP.
  void set_pair_gradients(std::int64_t first, std::int64_t c) {
    const Matrix<S>& v_new = to_.forward.v_new;
    for (std::int64_t i = 0; i < c; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        S sum(0);
        double error = 0.0;
        for (std::int64_t x = 0; x < V_; ++x) {
          const double d = d_o_(first + i, x);
          sum += S(d) * v_new(first + j, x);
          error += std::fabs(d) *
                   (to_.errors.v_new(first + j, x) + growth(V_) * size(v_new(first + j, x)));
        }
        to_.dP.value(first + i, j) = sum;
        to_.dP.error(first + i, j) = error * kHigherOrder + tiny_;
      }
    }
  }

  // T^T du of a chunk.
  Bounded<S> solved_back(std::int64_t first, std::int64_t c) const {
    Bounded<S> to = nothing<S>(c, V_);
    for (std::int64_t j = 0; j < c; ++j) {
      for (std::int64_t i = j; i < c; ++i) {
        const S& T = to_.forward.T(first + i, j);
        const double e = to_.errors.T(first + i, j);
        for (std::int64_t x = 0; x < V_; ++x) {
          const S& du = to_.du.value(first + i, x);
          to.value(j, x) += T * du;
          to.error(j, x) += e * size(du) + (size(T) + e) * to_.du.error(first + i, x) +
                            growth(c) * size(T) * size(du);
        }
      }
    }
    return to;
  }

  // dM.
  void set_inverse_gradients(std::int64_t first, std::int64_t c) {
    const Bounded<S> back = solved_back(first, c);
    for (std::int64_t i = 0; i < c; ++i) {
      double size2 = 0.0;
      for (std::int64_t j = 0; j < i; ++j) {
        S sum(0);
        double error = 0.0;
        for (std::int64_t x = 0; x < V_; ++x) {
          const S& v_new = to_.forward.v_new(first + j, x);
          const double e = to_.errors.v_new(first + j, x);
          sum -= back.value(i, x) * v_new;
          error += back.error(i, x) * (size(v_new) + e) + size(back.value(i, x)) * e +
                   growth(V_) * size(back.value(i, x)) * size(v_new);
          size2 += std::pow(size(back.value(i, x)) * size(v_new), 2);
        }
        to_.dM.value(first + i, j) = sum;
        to_.dM.error(first + i, j) = error * kHigherOrder + tiny_;
      }
      to_.dM_size.push_back(std::sqrt(size2));
    }
  }

  void set_dw(std::int64_t first, std::int64_t c, const Matrix<S>& h,
              const Eigen::RowVectorXd& h_error) {
    for (std::int64_t i = first; i < first + c; ++i) {
      for (std::int64_t y = 0; y < K_; ++y) {
        S sum(0);
        double error = 0.0;
        for (std::int64_t x = 0; x < V_; ++x) {
          const S& du = to_.du.value(i, x);
          const double e = to_.du.error(i, x);
          sum -= du * h(y, x);
          error += e * size(h(y, x)) + (size(du) + e) * h_error(x) +
                   growth(V_) * size(du) * size(h(y, x));
        }
        to_.dw.value(i, y) = sum;
        to_.dw.error(i, y) = error * kHigherOrder + tiny_;
      }
    }
  }

  const Lane<S>& lane_;
  std::int64_t C_, K_, V_;
  Sizes d_o_;
  double tiny_ = 0.0;
  LaneStages<S> to_;
};

}  // namespace

template <class S>
LaneStages<S> lane_stages(const Lane<S>& lane, const LaneInputs& inputs, std::int64_t C) {
  return StagesOfLane<S>(lane, inputs, C).run();
}

template LaneStages<double> lane_stages(const Lane<double>&, const LaneInputs&, std::int64_t);
template LaneStages<scalar::Quad> lane_stages(const Lane<scalar::Quad>&, const LaneInputs&,
                                              std::int64_t);
template LaneStages<scalar::Multi> lane_stages(const Lane<scalar::Multi>&, const LaneInputs&,
                                               std::int64_t);

}  // namespace goldenrule::backward
