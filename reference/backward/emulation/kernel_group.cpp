// SPDX-License-Identifier: Apache-2.0
//
// Length: one run of a group, from its inputs to its outputs.
#include "reference/backward/emulation/kernel_group.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/random/philox.hpp"
#include "reference/delta/emulation/chunk_emulator.hpp"
#include "reference/delta/emulation/kernel_lane.hpp"
#include "reference/delta/emulation/perturbed_lane.hpp"

namespace goldenrule::backward {
namespace {

using call::Convention;
using contract::AdjointPoint;
using Eigen::Index;

constexpr std::int64_t kPartial = 32;  // tokens that are added up before others

Floats floats(const double* from, Index rows, Index columns) {
  Floats to(rows, columns);
  for (Index i = 0; i < to.size(); ++i) to.data()[i] = static_cast<float>(from[i]);
  return to;
}

Floats floats_or_zero(const std::vector<double>& from, Index rows, Index columns) {
  return from.empty() ? Floats::Zero(rows, columns) : floats(from.data(), rows, columns);
}

std::vector<double> doubles(const Floats& from) { return {from.data(), from.data() + from.size()}; }

// What the kernel of a run makes of the quantities of a lane.
void take_quantities(const delta::Lane<double>& lane, const contract::Contract& contract,
                     const RunOf& run, KernelCall& to) {
  const random::Stream signs(run.seed, "functions");
  const auto sign = [&](std::int64_t i) { return signs.uniform(i) < 0.5 ? -1.0 : 1.0; };
  const Index T = lane.tokens;
  if (run.random) {
    delta::Perturbation errors;
    errors.alpha = sign(0);
    errors.beta = sign(1);
    errors.key = sign(2);
    const delta::Lane<double> moved = delta::perturbed_lane(lane, contract, errors);
    to.q = floats(moved.q.data(), T, lane.K);
    to.k = floats(moved.k.data(), T, lane.K);
    to.alpha = floats(moved.alpha.data(), T, lane.gates);
    to.log_alpha = Floats(T, lane.gates);
    to.beta = floats(moved.beta.data(), T, 1);
    for (Index i = 0; i < to.log_alpha.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      // Where alpha is below the range of double its error is no part of its logarithm.
      const double moved_by = std::log(moved.alpha[at] / lane.alpha[at]);
      to.log_alpha.data()[i] =
          static_cast<float>(lane.log_alpha[at] + (std::isfinite(moved_by) ? moved_by : 0.0));
    }
  } else {
    const delta::KernelLane kernel =
        delta::kernel_lane(lane, contract, delta::KernelChoices(run.seed));
    to.q = kernel.q;
    to.k = kernel.k;
    to.alpha = kernel.alpha;
    to.log_alpha = kernel.log_alpha;
    to.beta = Eigen::Map<const Floats>(kernel.beta.data(), T, 1);
  }
  // A kernel has the logarithm of the smallest normal number for that of 0.
  for (Index i = 0; i < to.log_alpha.size(); ++i) {
    if (!(to.log_alpha.data()[i] > -3e38F)) to.log_alpha.data()[i] = delta::kFlooredGate;
  }
}

// A factor for each value channel, (v, S_0) multiplied and (do, dS_T) divided by it: the same
// gradients by q, k and the gates from numbers with other last bits.
std::vector<double> channel_units(const RunOf& run, std::int64_t head, std::int64_t V) {
  std::vector<double> units(static_cast<std::size_t>(V), 1.0);
  if (run.random) return units;
  const random::Stream stream(run.seed, "units");
  for (std::int64_t c = 0; c < V; ++c) {
    units[static_cast<std::size_t>(c)] = std::exp2(-stream.uniform(head * V + c));
  }
  return units;
}

KernelCall kernel_call(const delta::Lane<double>& lane, const LaneInputs& inputs,
                       const contract::Contract& contract, const RunOf& run,
                       const std::vector<double>& units) {
  KernelCall call;
  const Index T = lane.tokens;
  take_quantities(lane, contract, run, call);
  call.v = floats(inputs.v.data(), T, inputs.V);
  call.output_gradient = floats(inputs.output_gradient.data(), T, inputs.V);
  call.start = floats_or_zero(inputs.start, lane.K, inputs.V);
  call.state_gradient = floats_or_zero(inputs.state_gradient, lane.K, inputs.V);
  for (Index c = 0; c < inputs.V; ++c) {
    const auto unit = static_cast<float>(units[static_cast<std::size_t>(c)]);
    call.v.col(c) *= unit;
    call.start.col(c) *= unit;
    call.output_gradient.col(c) /= unit;
    call.state_gradient.col(c) /= unit;
  }
  const std::int64_t chunk = contract.adjoint()->chunk;
  const delta::Matrix<double> v = delta::Matrix<double>::Map(inputs.v.data(), T, inputs.V);
  for (std::int64_t first = 0; first < lane.tokens; first += chunk) {
    const std::int64_t end = std::min(first + chunk, lane.tokens);
    std::uint64_t content = delta::content_of(lane, v, first, end);
    for (std::int64_t i = first * inputs.V; i < end * inputs.V; ++i) {
      content = delta::mixed(content, inputs.output_gradient[static_cast<std::size_t>(i)]);
    }
    call.content.push_back(content);
  }
  return call;
}

class GroupRun {
 public:
  GroupRun(const call::Record& record, const Group& group, const contract::Contract& contract,
           const RunOf& run)
      : record_(record),
        c_(record.convention),
        group_(group),
        contract_(contract),
        run_(run),
        inputs_(record),
        rounder_(*contract.adjoint(), record.inputs.at("q").dtype(), run.random, run.seed),
        K_(group.lanes.front().K),
        T_(group.tokens.count),
        scale_(call::resolved_scale(c_, K_)) {}

  GroupOutputs take() {
    Floats dq = Floats::Zero(T_, K_);
    Floats dk = Floats::Zero(T_, K_);
    const bool repeated = rounder_.rounds(AdjointPoint::kRepeated) && group_.lanes.size() > 1;
    Floats q;
    Floats k;
    for (std::size_t i = 0; i < group_.lanes.size(); ++i) {
      const std::vector<double> units = channel_units(run_, group_.heads[i], group_.inputs[i].V);
      KernelCall call = kernel_call(group_.lanes[i], group_.inputs[i], contract_, run_, units);
      call.beta_has_16_bits = c_.beta == call::BetaForm::kDirect &&
                              call::info(record_.inputs.at("beta").dtype()).bytes == 2;
      round_keys(call);
      AdjointStages stages;
      const KernelGradients part =
          chunked_adjoint(call, *contract_.adjoint(), rounder_, run_.stages ? &stages : nullptr);
      q = unscaled(call.q);
      k = std::move(call.k);
      if (repeated) {
        dq += rounder_.rounded(AdjointPoint::kRepeated,
                               through_norm(inputs_.q, q, of_query(part.dq)));
        dk += rounder_.rounded(AdjointPoint::kRepeated, through_norm(inputs_.k, k, part.dk));
      } else {
        dq += part.dq;
        dk += part.dk;
      }
      to_.lanes.push_back(lane_outputs(i, part, units));
      if (run_.stages) to_.lanes.back().stages = in_units(i, std::move(stages), units);
    }
    rounder_.begin(run_.seed);
    if (group_.lanes.size() > 1) {
      rounder_.apply(AdjointPoint::kHeads, dq);
      rounder_.apply(AdjointPoint::kHeads, dk);
    }
    to_.dq = doubles(repeated ? dq : through_norm(inputs_.q, q, of_query(dq)));
    to_.dk = doubles(repeated ? dk : through_norm(inputs_.k, k, dk));
    return std::move(to_);
  }

 private:
  // Stages of the call: value channels in its units, dq by norm(q), and its own states at the ends.
  [[nodiscard]] AdjointStages in_units(std::size_t lane, AdjointStages of,
                                       const std::vector<double>& units) const {
    for (std::size_t x = 0; x < units.size(); ++x) {
      const auto column = static_cast<Index>(x);
      const auto unit = static_cast<float>(units[x]);
      for (Floats* stage : {&of.u, &of.v_new, &of.o, &of.h}) stage->col(column) /= unit;
      for (Floats* stage : {&of.du, &of.dh}) stage->col(column) *= unit;
    }
    of.dq *= static_cast<float>(scale_);
    if (T_ == 0) return of;
    const LaneInputs& given = group_.inputs[lane];
    of.h.topRows(K_) = floats_or_zero(given.start, K_, given.V);
    of.dh.bottomRows(K_) = floats_or_zero(given.state_gradient, K_, given.V);
    return of;
  }

  // The norm's results are rounded before q is scaled.
  void round_keys(KernelCall& call) {
    rounder_.begin(call.content.empty() ? 0 : call.content.front());
    rounder_.apply(AdjointPoint::kKey, call.k);
    const auto scale = static_cast<float>(scale_);
    if (scale == 0.0F) return;
    call.q /= scale;
    rounder_.apply(AdjointPoint::kQuery, call.q);
    call.q *= scale;
  }

  [[nodiscard]] Floats unscaled(const Floats& q) const {
    return scale_ == 0.0 ? q : Floats(q / static_cast<float>(scale_));
  }
  [[nodiscard]] Floats of_query(const Floats& dq) const { return dq * static_cast<float>(scale_); }

  [[nodiscard]] Floats through_norm(const delta::Input& x, const Floats& y, Floats dy) const {
    if (c_.qk_l2norm == call::QkNorm::kNone) return dy;
    std::vector<double> row;
    Floats dx(T_, K_);
    for (std::int64_t t = 0; t < T_; ++t) {
      const std::int64_t first =
          ((group_.tokens.first + t) * record_.inputs.at("q").shape()[1] + group_.qk_head) * K_;
      const double* given = x.read(first, K_, row);
      double sum = 0.0;
      for (std::int64_t i = 0; i < K_; ++i) sum += given[i] * given[i];
      const double norm = std::sqrt(sum);
      const double divisor = delta::norm_divisor<double>(c_, sum);
      const bool inside = c_.qk_l2norm == call::QkNorm::kRsqrtSumEps;
      const bool constant =
          norm == 0.0 || (c_.qk_l2norm == call::QkNorm::kMaxNormEps && norm <= c_.l2_eps);
      const auto unit = static_cast<float>(inside || constant ? 1.0 : divisor / norm);
      float projection = 0.0F;
      for (Index i = 0; i < K_ && !constant; ++i) projection += y(t, i) * unit * dy(t, i);
      const auto inverse = static_cast<float>(1.0 / divisor);
      for (Index i = 0; i < K_; ++i) {
        dx(t, i) = (dy(t, i) - y(t, i) * projection) * inverse;
      }
    }
    return dx;
  }

  LaneOutputs lane_outputs(std::size_t i, const KernelGradients& part,
                           const std::vector<double>& units) {
    LaneOutputs to;
    const auto columns = [&](const Floats& from, std::vector<double>& out) {
      out.resize(static_cast<std::size_t>(from.size()));
      for (Index e = 0; e < from.size(); ++e) {
        out[static_cast<std::size_t>(e)] =
            static_cast<double>(from.data()[e]) * units[static_cast<std::size_t>(e % from.cols())];
      }
    };
    columns(part.dv, to.dv);
    columns(part.dstart, to.dstart);
    take_beta(group_.heads[i], part.dbeta, to);
    take_gate(i, part.dg, to);
    return to;
  }

  void take_beta(std::int64_t head, Floats dbeta, LaneOutputs& to) {
    const bool logits = c_.beta != call::BetaForm::kDirect;
    if (logits) rounder_.apply(AdjointPoint::kBetaGradient, dbeta);
    const double sign = signs_.uniform(1) - 0.5 < 0.0 ? -1.0 : 1.0;
    const std::int64_t HV = record_.inputs.at("v").shape()[1];
    for (std::int64_t t = 0; t < T_; ++t) {
      const double b = inputs_.b[static_cast<std::size_t>((group_.tokens.first + t) * HV + head)];
      const double slope = beta_slope<double>(c_.beta, b).value +
                           sign * beta_slope_error(c_.beta, contract_.functions, b);
      to.dbeta.push_back(slope * static_cast<double>(dbeta(t, 0)));
    }
  }

  void take_gate(std::size_t lane, const Floats& dg, LaneOutputs& to) {
    const std::int64_t gates = group_.lanes[lane].gates;
    to.bias.assign(static_cast<std::size_t>(gates), 0.0);
    if (c_.gate == call::Gate::kNone) return;
    const double sign = signs_.uniform(2) - 0.5 < 0.0 ? -1.0 : 1.0;
    to.dgate.resize(static_cast<std::size_t>(T_ * gates));
    std::vector<float> bias(static_cast<std::size_t>(gates), 0.0F);
    float amplitude = 0.0F;
    for (std::int64_t t = 0; t < T_; ++t) {
      for (std::int64_t i = 0; i < gates; ++i) {
        const GateChain& chain = group_.gates[lane][static_cast<std::size_t>(t * gates + i)];
        const auto d = static_cast<double>(dg(t, i)) * by_alpha(lane, t * gates + i);
        auto da = static_cast<float>(silenced(chain.input + sign * chain.input_error, d));
        to.dgate[static_cast<std::size_t>(t * gates + i)] = static_cast<double>(da);
        amplitude +=
            static_cast<float>(silenced(chain.amplitude + sign * chain.amplitude_error, d));
        rounder_.apply(AdjointPoint::kGateGradient, &da, 1);
        bias[static_cast<std::size_t>(i)] += da;
      }
      if ((t + 1) % kPartial == 0 || t + 1 == T_) {
        to.amplitude += static_cast<double>(amplitude);
        amplitude = 0.0F;
        for (std::size_t i = 0; i < bias.size(); ++i) {
          to.bias[i] += static_cast<double>(bias[i]);
          bias[i] = 0.0F;
        }
      }
    }
  }

  // A kernel that is given alpha itself differentiates its logarithm.
  [[nodiscard]] double by_alpha(std::size_t lane, std::int64_t at) const {
    if (c_.gate != call::Gate::kLinear) return 1.0;
    const double alpha = group_.lanes[lane].alpha[static_cast<std::size_t>(at)];
    return alpha == 0.0 ? 0.0 : 1.0 / alpha;
  }

  const call::Record& record_;
  const Convention& c_;
  const Group& group_;
  const contract::Contract& contract_;
  const RunOf& run_;
  const delta::CallInputs inputs_;
  Rounder rounder_;
  std::int64_t K_, T_;
  double scale_;
  random::Stream signs_{run_.seed, "slopes"};
  GroupOutputs to_;
};

}  // namespace

GroupOutputs run_group(const call::Record& record, const Group& group,
                       const contract::Contract& contract, const RunOf& run) {
  return GroupRun(record, group, contract, run).take();
}

}  // namespace goldenrule::backward
