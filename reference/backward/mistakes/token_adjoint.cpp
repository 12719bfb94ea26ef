// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/mistakes/variant.hpp"

namespace goldenrule::backward {
namespace {

using Column = Eigen::VectorXd;

struct TokenStep {
  Matrix<double> decayed, after;  // the state with the token's decay, and behind it
  Column residual;
};

TokenStep step_forward(const VariantLane& lane, std::int64_t t, const Matrix<double>& before) {
  TokenStep step;
  step.decayed = lane.alpha.row(t).transpose().asDiagonal() * before;
  step.residual = lane.v.row(t).transpose() - step.decayed.transpose() * lane.k.row(t).transpose();
  const double beta = lane.beta[static_cast<std::size_t>(t)];
  step.after = step.decayed + lane.k.row(t).transpose() * (beta * step.residual).transpose();
  return step;
}

void step_back(const TokenVariant& variant, const VariantLane& lane, std::int64_t t,
               const TokenStep& step, Matrix<double>& G, VariantGradients& to) {
  const Column d_o = lane.output_gradient.row(t).transpose();
  const Column k = lane.k.row(t).transpose();
  const double beta = lane.beta[static_cast<std::size_t>(t)];
  G += lane.q.row(t).transpose() * d_o.transpose();
  to.dq.row(t) = (step.after * d_o).transpose();
  const Column dd = G.transpose() * k;
  Column dk = G * step.residual;
  if (variant.state_in_dk) dk -= step.decayed * dd;
  to.dk.row(t) = beta * dk.transpose();
  to.dv.row(t) = beta * dd.transpose();
  to.dbeta[static_cast<std::size_t>(t)] =
      variant.by_residual ? dd.dot(step.residual) : dd.dot(lane.v.row(t).transpose());
  if (variant.erases) G -= beta * k * dd.transpose();
  to.dg.row(t) = (G.array() * step.decayed.array()).rowwise().sum().transpose();
  G = (lane.alpha.row(t).transpose().asDiagonal() * G).eval();
}

}  // namespace

VariantGradients token_adjoint(const TokenVariant& variant, const VariantLane& lane) {
  VariantGradients to(lane);
  std::vector<Matrix<double>> starts;  // of every chunk
  Matrix<double> state = lane.start;
  for (std::int64_t t = 0; t < lane.tokens(); ++t) {
    if (t % kChunk == 0) starts.push_back(state);
    state = step_forward(lane, t, state).after;
  }
  for (std::int64_t end = lane.tokens(); !starts.empty(); starts.pop_back()) {
    const std::int64_t first = (std::ssize(starts) - 1) * kChunk;
    std::vector<TokenStep> steps;
    for (std::int64_t t = first; t < end; ++t) {
      steps.push_back(step_forward(lane, t, steps.empty() ? starts.back() : steps.back().after));
    }
    for (std::int64_t t = end - 1; t >= first; --t) {
      step_back(variant, lane, t, steps[static_cast<std::size_t>(t - first)], to.dstart, to);
    }
    end = first;
  }
  return to;
}

}  // namespace goldenrule::backward
