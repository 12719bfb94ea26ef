// SPDX-License-Identifier: Apache-2.0
//
// A backward pass in two parts. The adjoint of the recurrence knows no conventions: it is the
// backward pass of the plain call, in which every value head has its own q^ and k^, the gate is
// log alpha (alpha itself where that was given) and beta is given. The chain leads from the
// gradients of the plain call to those of the call itself. With j the value heads of head h,
//
//   dq = N_q(scale sum_j dq^_j),   dk = N_k(sum_j dk^_j),   N the adjoint of the norm
//   da = (d log alpha / da) dg,    dA_log = sum (d log alpha / dA_log) dg,    ddt_bias = sum da
//   db = (d beta / db) dbeta.
//
// So a kernel that errs in the chain is the chain with a wrong step behind any kernel for plain
// calls, and one that errs in the adjoint is the right chain behind a wrong adjoint (variant.hpp).
// With no step changed the chain behind a right kernel is that kernel (tests/backward).
#pragma once

#include "reference/backward/rule/slopes.hpp"
#include "reference/calls/kernel.hpp"

namespace goldenrule::backward {

/// Which of the gradients of the value heads of a group are summed up.
enum class GroupSum {
  kAll,
  kLast,      ///< the last one overwrites the others
  kMean,      ///< their mean
  kRounded,   ///< all, rounded to bf16 after each
  kOtherMap,  ///< those that the other head_map gives the head
};

/// What dg is multiplied by.
enum class GateFactor { kOne, kLn2, kLog2E };

/// What the gradient of a parameter is summed over.
enum class ParameterSum {
  kAll,
  kLastSequence,  ///< the tokens of the last sequence that has some
  kLastTile,      ///< the last 64 tokens of each sequence that has some, the rest of a division
  kLastChannel,   ///< dA_log: the last key channel alone
  kLastHead,      ///< with a parameter per query/key head: the last of its value heads
};

/// The chain and its steps, each of which may be a wrong one.
struct Chain {
  using NormAdjoint = void (*)(const call::Convention& c, const double* x, const double* dy,
                               std::int64_t K, double* dx);
  using Slopes = GateSlopes<double> (*)(const call::Convention& c, double x, double A_log,
                                        double dt_bias);
  using BetaSlope = double (*)(call::BetaForm form, double b);

  NormAdjoint q_norm, k_norm;
  Slopes gate;
  BetaSlope beta;
  int scales = 1;  ///< how often dq has the scale
  GroupSum group = GroupSum::kAll;
  ParameterSum parameters = ParameterSum::kAll;
  GateFactor dg = GateFactor::kOne;
  bool dg_over_alpha = false;     ///< dg is divided by alpha
  bool dbeta_over_beta = false;   ///< dbeta is multiplied by beta and divided by it again
  bool dbeta_rounded = false;     ///< dbeta is rounded to bf16
  bool bias_from_stored = false;  ///< ddt_bias sums da as it is stored, in the type of a
  bool silences = true;           ///< false: a slope that is infinite or NaN makes NaN of dg = 0
};

void right_norm(const call::Convention& c, const double* x, const double* dy, std::int64_t K,
                double* dx);
[[nodiscard]] double right_beta(call::BetaForm form, double b);

/// Every step right.
inline constexpr Chain kRightChain{
    .q_norm = right_norm, .k_norm = right_norm, .gate = gate_slopes<double>, .beta = right_beta};

/// The plain call: q^ with its scale and k^ of each value head, gates and betas, in f64.
[[nodiscard]] call::Record plain_call(const call::Record& record);

/// The outputs of `record` from those of its plain call, in f64.
[[nodiscard]] call::TensorMap through(const Chain& chain, const call::Record& record,
                                      const call::TensorMap& plain);

}  // namespace goldenrule::backward
