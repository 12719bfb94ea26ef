// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/lane_sizes.hpp"

namespace goldenrule::delta {
namespace {

// `chunk` 0: the state goes on from token to token; else it starts from 0 every so many tokens.
LaneSizes walk(const Lane<double>& lane, const Matrix<double>& v, const Matrix<double>& start,
               std::int64_t chunk) {
  using Row = Eigen::Array<double, 1, Eigen::Dynamic>;
  const Eigen::Index V = v.cols();
  LaneSizes sizes{
      .o = Matrix<double>(lane.tokens, V), .d = Matrix<double>(lane.tokens, V), .u = {}};
  Matrix<double> S = start;
  Matrix<double> W2 = start.cwiseAbs2();
  Row p(V), d(V), o(V), read2(V), added2(V);
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    if (chunk > 0 && t % chunk == 0) {
      S.setZero();
      W2.setZero();
    }
    const double* const k = lane.k_row(t);
    const double* const q = lane.q_row(t);
    const double beta = lane.beta[static_cast<std::size_t>(t)];
    p.setZero();
    read2.setZero();
    for (std::int64_t i = 0; i < lane.K; ++i) {
      const double a = lane.alpha_at(t, i);
      S.row(i) *= a;
      W2.row(i) *= a * a;
      p += k[i] * S.row(i).array();
      read2 += k[i] * k[i] * W2.row(i).array();
    }
    const auto values = v.row(t).array();
    if (t < lane.given) {
      d = values;
      added2 = values.square();
      sizes.d.row(t) = added2;
    } else {
      d = beta * (values - p);
      added2 = beta * beta * (values.square() + p.square()) + d.square();
      sizes.d.row(t) = beta * beta * (values.square() + read2) + d.square();
    }
    o.setZero();
    read2.setZero();
    for (std::int64_t i = 0; i < lane.K; ++i) {
      S.row(i).array() += k[i] * d;
      W2.row(i).array() += k[i] * k[i] * added2;
      o += q[i] * S.row(i).array();
      read2 += q[i] * q[i] * W2.row(i).array();
    }
    sizes.o.row(t) = read2 + o.square();
  }
  return sizes;
}

}  // namespace

LaneSizes lane_sizes(const Lane<double>& lane, const Matrix<double>& v, const Matrix<double>& start,
                     std::int64_t chunk) {
  LaneSizes sizes = walk(lane, v, start, 0);
  if (chunk > 0) sizes.u = walk(lane, v, start, chunk).d;
  return sizes;
}

}  // namespace goldenrule::delta
