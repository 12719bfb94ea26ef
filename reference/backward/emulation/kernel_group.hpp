// SPDX-License-Identifier: Apache-2.0
//
// What an emulated kernel makes of the lanes of one sequence that share a query/key head: the
// chunked adjoint of each, and the way from there to the tensors of the call. Sums over the value
// heads, the adjoint of the norm (by the y that the kernel has rounded), the slopes of gate and
// sigmoid and the sums for the parameters are in fp32.
//
// Functions. A kernel's functions err as its contract says, always the same way: alpha, beta and
// the norm of a run have signs of their own (delta/emulation/perturbed_lane.hpp). So have slopes
// (GateChain). A saturated gate: sigma (1 - sigma) in fp32 loses all of 1 - sigma
// below 2^-24, an absolute error of 2^-24 of the factor before it, and is 0 once sigma is 1.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/backward/emulation/chunked_adjoint.hpp"
#include "reference/backward/rule/evaluate.hpp"
#include "reference/backward/rule/slopes.hpp"

namespace goldenrule::backward {

/// How the gradient by log alpha (by alpha) of a channel goes on: its slopes, by the gate's input
/// and by A_log, and by how much a kernel's may be off.
struct GateChain {
  double input = 1.0, input_error = 0.0, amplitude = 0.0, amplitude_error = 0.0;
};

/// The lanes of a sequence and query/key head, prepared.
struct Group {
  std::int64_t sequence = 0, qk_head = 0;
  Sequence tokens;
  std::vector<std::int64_t> heads;  ///< value heads, rising
  std::vector<delta::Lane<double>> lanes;
  std::vector<LaneInputs> inputs;
  std::vector<std::vector<GateChain>> gates;  ///< per lane [tokens, gates]; empty without a gate
};

/// By how much a kernel's derivative of beta by `b` may be off, absolutely.
[[nodiscard]] double beta_slope_error(call::BetaForm form, const contract::FunctionErrors& f,
                                      double b);

[[nodiscard]] Group make_group(const call::Record& record, const call::Dims& dims,
                               const contract::Contract& contract, std::int64_t sequence,
                               const Sequence& tokens, std::int64_t qk_head);

/// Those of every sequence that has tokens and every query/key head.
[[nodiscard]] std::vector<Group> groups_of(const call::Record& record, const call::Dims& dims,
                                           const contract::Contract& contract);

/// One of the runs that an emulation makes of a call.
struct RunOf {
  bool random = false;  ///< else to nearest, value channels in other units
  std::uint64_t seed = 0;
  bool stages = false;  ///< keeps them
};

/// The gradients of a lane in f64, before they are stored.
struct LaneOutputs {
  std::vector<double> dv, dgate, dbeta, dstart;  ///< [tokens,V], [tokens,gates], [tokens], [K,V]
  double amplitude = 0.0;                        ///< what it adds to dA_log
  std::vector<double> bias;                      ///< [gates], to ddt_bias
  AdjointStages stages;                          ///< where the run keeps them
};

struct GroupOutputs {
  std::vector<double> dq, dk;  ///< [tokens,K]
  std::vector<LaneOutputs> lanes;
};

[[nodiscard]] GroupOutputs run_group(const call::Record& record, const Group& group,
                                     const contract::Contract& contract, const RunOf& run);

}  // namespace goldenrule::backward
