// SPDX-License-Identifier: Apache-2.0
//
// Long sequences in segments that are walked beside each other. Over the tokens of a segment the
// rule is affine in the state,
//
//     S_end = M S_start + N,      M [K,K], N [K,V],
//
// and a kernel finds M as its walk from the identity without values, N as its walk from zero. Then
// it folds M and N of one segment after the other onto the start state, and walks each segment once
// more, from its own start. Every walk rounds as the contract says, so M errs by what it errs
// itself, whatever becomes of the state that it is multiplied with: where a segment erases what is
// large in front of it, the error of M S_start remains. The fold is fp32, of operands that may be
// rounded (contract::Point::kSegmentMap).
#pragma once

#include <algorithm>
#include <cstdint>

#include "reference/delta/emulation/pieces.hpp"

namespace goldenrule::delta {

/// Adds the stages of the tokens behind those that are there.
template <class S>
void append(ChunkStages<S>& to, const ChunkStages<S>& more) {
  const auto add = [](Matrix<S>& x, const Matrix<S>& rows) {
    if (rows.size() == 0) return;
    const Eigen::Index before = x.rows();
    x.conservativeResize(before + rows.rows(), rows.cols());
    x.bottomRows(rows.rows()) = rows;
  };
  add(to.G, more.G);
  add(to.A, more.A);
  add(to.T, more.T);
  add(to.w, more.w);
  add(to.u, more.u);
  add(to.v_new, more.v_new);
  to.h.insert(to.h.end(), more.h.begin(), more.h.end());
}

/// Runs a lane with run(lane, v, start), a kernel of type S, in segments of `segment` tokens (more
/// than 0). `round` rounds an operand of the fold in place.
template <class S, class Run, class Round>
FormResult<S> run_in_segments(const Lane<double>& lane, const Matrix<double>& v,
                              const Matrix<double>& initial, std::int64_t segment, Run&& run,
                              Round&& round) {
  if (lane.tokens <= segment) return run(lane, v, initial);
  FormResult<S> result{.o = Matrix<S>(lane.tokens, v.cols()), .state = {}};
  Matrix<double> start = initial;
  for (std::int64_t begin = 0; begin < lane.tokens; begin += segment) {
    const std::int64_t count = std::min(segment, lane.tokens - begin);
    const Lane<double> piece = slice(lane, begin, begin + count);
    const Matrix<double> values = v.middleRows(begin, count);
    FormResult<S> walked = run(piece, values, start);
    result.o.middleRows(begin, count) = walked.o;
    append(result.stages, walked.stages);
    if (begin + count == lane.tokens) {
      result.state = std::move(walked.state);
    } else if (begin == 0) {  // its start is known
      start = walked.state.template cast<double>();
    } else {
      const Matrix<double> zero = Matrix<double>::Zero(initial.rows(), initial.cols());
      const Matrix<double> rows = Matrix<double>::Zero(count, lane.K);
      const Matrix<double> identity = Matrix<double>::Identity(lane.K, lane.K);
      Matrix<double> map = run(piece, rows, identity).state.template cast<double>();
      round(map);
      round(start);
      start = run(piece, values, zero).state.template cast<double>() + map * start;
      start = start.template cast<float>().template cast<double>().eval();
    }
  }
  return result;
}

}  // namespace goldenrule::delta
