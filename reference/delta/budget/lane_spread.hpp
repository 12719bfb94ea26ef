// SPDX-License-Identifier: Apache-2.0
//
// What the roundings and functions of a contract do to one lane: sigma, the root mean square of
// (run - exact) over runs with random roundings, and bias, what systematic errors add up to
// (spread.hpp has the mathematics).
//
// Checkpoints inside of chunks. A kernel may end a chunk where a state is asked for, or not
// (emulation/pieces.hpp). A record does not say which, and both are honest, so sigma and bias are
// the larger ones of the two, of every element. The same holds of segments, where a contract allows
// them (emulation/segments.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "reference/contract/contract.hpp"
#include "reference/delta/emulation/pieces.hpp"

namespace goldenrule::delta {

/// About how large the errors of T [tokens,C] and w [tokens,K] are beside each other, squared.
/// Elements of one row of T differ by orders of magnitude, and so do the channels of w where each
/// has its gate: so the errors of a chunk are averaged in these units, as those of the tensors with
/// value channels are in units of a channel's own size (lane_sizes.hpp).
struct StageScales {
  Matrix<double> T, w;
};

struct LaneCall {
  Lane<double> lane;
  Matrix<double> v, start;
  std::vector<std::int64_t> positions;  ///< of states, ascending in (0, tokens]
  /// States that nobody asks for may hold anything. Stages are run where they are here, G and A,
  /// which are granted without runs (stage_grant.hpp), left out.
  KeptForm<double> exact;
  StageScales scales = {};  ///< with stages
};

struct LaneErrors {
  KeptForm<double> sigma, bias;
};

/// How often a lane is run with either kind of roundings (spread.hpp).
struct Runs {
  int random, nearest;

  [[nodiscard]] int all() const { return random + nearest; }
};

/// `lane_index` names the lane: its random roundings are a function of it.
[[nodiscard]] LaneErrors lane_errors(const LaneCall& call, const contract::Contract& contract,
                                     const Runs& runs, std::int64_t lane_index);

}  // namespace goldenrule::delta
