// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/mistakes/variant.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/backward/rule/stages.hpp"

namespace goldenrule::backward {
namespace {

using call::Dims;
using call::Record;
using call::Tensor;
using call::TensorMap;
using Rows = Matrix<double>;

Rows rows_from(const std::vector<double>& x, std::int64_t rows, std::int64_t columns) {
  if (x.empty()) return Rows::Zero(rows, columns);
  return Eigen::Map<const Rows>(x.data(), rows, columns);
}

VariantLane lane_of(const Record& plain, const Dims& d, const delta::CallInputs& inputs,
                    std::int64_t sequence, const Sequence& tokens, std::int64_t head) {
  const std::int64_t T = tokens.count;
  const auto lane = delta::prepare_lane<double>(plain, d, inputs, tokens.first, T, head);
  const LaneInputs given = lane_inputs(plain, d, sequence, tokens, head);
  VariantLane to;
  to.q = rows_from(lane.q, T, d.K);
  to.k = rows_from(lane.k, T, d.K);
  to.alpha = Rows::Zero(T, d.K);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t i = 0; i < d.K; ++i) to.alpha(t, i) = lane.alpha_at(t, i);
  }
  to.v = rows_from(given.v, T, d.V);
  to.output_gradient = rows_from(given.output_gradient, T, d.V);
  to.start = rows_from(given.start, d.K, d.V);
  to.state_gradient = rows_from(given.state_gradient, d.K, d.V);
  to.beta = lane.beta;
  return to;
}

void copy_rows(const Rows& from, std::int64_t first, std::int64_t head, std::int64_t HV,
               Tensor& to) {
  for (std::int64_t t = 0; t < from.rows(); ++t) {
    for (std::int64_t i = 0; i < from.cols(); ++i) {
      to.set(((first + t) * HV + head) * from.cols() + i, from(t, i));
    }
  }
}

TensorMap blank_gradients(const Record& plain, const Dims& d) {
  TensorMap to;
  for (const char* name : {"dq", "dk", "dv", "dg", "dbeta", "dinitial_state"}) {
    if (plain.convention.gate == call::Gate::kNone && name == std::string_view("dg")) continue;
    to[name] = Tensor(call::DType::kF64, call::output_shape(plain, d, name));
  }
  return to;
}

// dg by log alpha to that by alpha, where that was given.
void set_by_alpha(const Record& plain, TensorMap& to) {
  if (plain.convention.gate != call::Gate::kLinear) return;
  const Tensor& alpha = plain.inputs.at("g");
  Tensor& dg = to.at("dg");
  for (std::int64_t i = 0; i < dg.size(); ++i) dg.set(i, dg[i] / alpha[i]);
}

// Every lane of the call by `adjoint`.
TensorMap run_variant(const Record& plain,
                      const std::function<VariantGradients(const VariantLane&)>& adjoint) {
  const Dims d = call::validate(plain);
  const delta::CallInputs inputs(plain);
  const std::vector<Sequence> sequences = sequences_of(plain, d);
  const call::Strides state = call::output_strides(plain, d, "dinitial_state");
  TensorMap to = blank_gradients(plain, d);
  parallel::for_each_index(std::ssize(sequences) * d.HV, [&](std::int64_t job) {
    const std::int64_t n = job / d.HV;
    const std::int64_t head = job % d.HV;
    const Sequence& tokens = sequences[static_cast<std::size_t>(n)];
    const VariantLane lane = lane_of(plain, d, inputs, n, tokens, head);
    const VariantGradients part = adjoint(lane);
    copy_rows(part.dq, tokens.first, head, d.HV, to.at("dq"));
    copy_rows(part.dk, tokens.first, head, d.HV, to.at("dk"));
    copy_rows(part.dv, tokens.first, head, d.HV, to.at("dv"));
    copy_rows(rows_from(part.dbeta, tokens.count, 1), tokens.first, head, d.HV, to.at("dbeta"));
    if (to.contains("dg")) {
      const bool per_channel = to.at("dg").shape().size() == 3;
      copy_rows(per_channel ? part.dg : Rows(part.dg.rowwise().sum()), tokens.first, head, d.HV,
                to.at("dg"));
    }
    for (std::int64_t i = 0; i < d.K; ++i) {
      for (std::int64_t c = 0; c < d.V; ++c) {
        to.at("dinitial_state")
            .set(static_cast<std::int64_t>(state(n, head, i, c)), part.dstart(i, c));
      }
    }
  });
  return to;
}

// Where the sums of raw begin, ascending, with the number of tokens behind the last one.
std::vector<std::int64_t> sum_bounds(GateSum sum, const Record& plain, const Dims& d) {
  std::vector<std::int64_t> bounds;
  if (sum == GateSum::kOverPackedChunk) {
    for (std::int64_t t = 0; t < d.tokens; t += kChunk) bounds.push_back(t);
  } else {
    for (const Sequence& tokens : sequences_of(plain, d)) {
      const std::int64_t step = sum == GateSum::kOverSequence ? tokens.count + 1 : kChunk;
      for (std::int64_t t = 0; t < tokens.count; t += step) bounds.push_back(tokens.first + t);
    }
  }
  bounds.push_back(d.tokens);
  return bounds;
}

// raw to dg, in place.
void sum_gates(GateSum sum, const Record& plain, Tensor& dg) {
  const Dims d = call::validate(plain);
  if (d.tokens == 0) return;
  const Tensor& g = plain.inputs.at("g");
  const std::int64_t row = dg.size() / d.tokens;
  const std::vector<std::int64_t> bounds = sum_bounds(sum, plain, d);
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const std::int64_t count = bounds[i + 1] - bounds[i];
    for (std::int64_t e = 0; e < row; ++e) {
      double running = 0.0;
      for (std::int64_t step = 0; step < count; ++step) {
        const std::int64_t t = sum == GateSum::kForward ? step : count - 1 - step;
        const std::int64_t at = (bounds[i] + t) * row + e;
        const double with_own = running + dg[at];
        const bool erased = std::exp(g[at]) == 0.0;  // what is left is rounding
        dg.set(at, erased ? 0.0 : sum == GateSum::kExclusive ? running : with_own);
        running = with_own;
      }
    }
  }
}

}  // namespace

VariantGradients::VariantGradients(const VariantLane& lane)
    : dq(Rows::Zero(lane.tokens(), lane.q.cols())),
      dk(dq),
      dv(Rows::Zero(lane.tokens(), lane.v.cols())),
      dg(dq),
      dbeta(lane.beta.size(), 0.0),
      dstart(lane.state_gradient) {}

TensorMap variant_outputs(const TokenVariant& variant, const Record& plain) {
  TensorMap to =
      run_variant(plain, [&](const VariantLane& lane) { return token_adjoint(variant, lane); });
  set_by_alpha(plain, to);
  return to;
}

TensorMap variant_outputs(const ChunkVariant& variant, const Record& plain) {
  TensorMap to =
      run_variant(plain, [&](const VariantLane& lane) { return chunk_adjoint(variant, lane); });
  if (to.contains("dg")) sum_gates(variant.sum, plain, to.at("dg"));
  set_by_alpha(plain, to);
  return to;
}

TensorMap variant_stages(const ChunkVariant& variant, const Record& plain) {
  const Dims d = call::validate(plain);
  const delta::CallInputs inputs(plain);
  const std::vector<Sequence> sequences = sequences_of(plain, d);
  const std::vector<std::int64_t> first = first_chunks(sequences, kChunk);
  const double scale = call::resolved_scale(plain.convention, d.K);
  TensorMap to;
  for (const auto& [name, shape] : stage_shapes(plain, d, kChunk, first.back())) {
    if (name != "u" && name != "o") to[name] = Tensor(call::DType::kF64, shape);
  }
  for (std::int64_t job = 0; job < std::ssize(sequences) * d.HV; ++job) {
    const auto n = static_cast<std::size_t>(job / d.HV);
    const std::int64_t head = job % d.HV;
    if (sequences[n].count == 0) continue;
    VariantStages stages;
    const VariantLane lane = lane_of(plain, d, inputs, job / d.HV, sequences[n], head);
    static_cast<void>(chunk_adjoint(variant, lane, &stages));
    stages.at("dq") *= scale;
    const bool per_channel = to.at("raw").shape().size() == 3;
    if (!per_channel) stages.at("raw") = Rows(stages.at("raw").rowwise().sum());
    const LanePlaces places(plain, d, sequences[n], first[n], head);
    for (const auto& [name, x] : stages) {
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const std::size_t at = places.of(name, i / x.cols(), i % x.cols(), x.cols());
        to.at(name).set(static_cast<std::int64_t>(at), x.data()[i]);
      }
    }
  }
  return to;
}

}  // namespace goldenrule::backward
