// SPDX-License-Identifier: Apache-2.0
//
// How large u and v_new of a channel are held to be where their terms cancel (Exact::reach): what
// these come to with random signs,
//
//   u^2 = sum_j (T_ij beta_j v_j)^2,    v_new^2 = u^2 + sum_k (w_ik h_k)^2.
//
// Each is one number of its value channel. Without a reach the channels of a row are judged as one,
// so the largest speaks for the others; and where it is small by chance, a contract that is tight
// for each of them would seem to say nothing.
#pragma once

#include <cstdint>

#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Of token `t`, by value channel: of v_new where it reads the state, else of u.
template <class S>
Eigen::RowVectorXf correction_reach(const Lane<S>& lane, const Matrix<double>& v,
                                    const ChunkStages<S>& stages, std::int64_t C, std::int64_t t,
                                    bool reads_state) {
  const auto square = [](const S& x) {
    const double y = scalar::to_double(x);
    return y * y;
  };
  const std::int64_t first = t / C * C;
  Eigen::RowVectorXd sum = Eigen::RowVectorXd::Zero(v.cols());
  for (std::int64_t j = first; j <= t; ++j) {
    const double weight =
        square(stages.T(t, j - first)) * square(lane.beta[static_cast<std::size_t>(j)]);
    sum += weight * v.row(j).cwiseAbs2();
  }
  const Matrix<S>& h = stages.h[static_cast<std::size_t>(t / C)];
  for (std::int64_t i = 0; reads_state && i < lane.K; ++i) {
    const double weight = square(stages.w(t, i));
    for (Eigen::Index x = 0; x < v.cols(); ++x) sum(x) += weight * square(h(i, x));
  }
  return sum.cwiseSqrt().cast<float>();
}

}  // namespace goldenrule::delta
