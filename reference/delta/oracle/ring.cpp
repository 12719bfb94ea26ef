// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/ring.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/operation.hpp"
#include "reference/delta/oracle/lane_io.hpp"

namespace goldenrule::delta {
namespace {

using verdict::Exact;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

Exact& add(const call::Record& record, const call::Dims& dims, const std::string& name,
           std::size_t block, verdict::Expectations& expected) {
  Exact& e = expected.outputs[name].exact;
  const call::Tensor& before = record.inputs.at("initial_" + name);
  e.shape = call::output_shape(record, dims, name);
  e.golden = before.to_doubles();
  e.radius.assign(e.golden.size(), 0.0F);
  e.block = block;
  e.touched.assign(e.golden.size() / block, verdict::Touch::kKept);
  return e;
}

// f(token of the row, its place) for the tokens of the call.
template <class F>
void for_each_place(const call::Sequence& s, F&& f) {
  for (std::int64_t t = s.replay.count; t < s.lane_tokens(); ++t) f(t, s.replay.place(t));
}

// A number whose exact value is within `error` of `value`. One that is not finite is so exactly
// where an input is not, or where log alpha leaves the range of double.
void store(Exact& to, std::size_t at, double value, double error, bool may_be_infinite) {
  to.golden[at] = value;
  const bool known = std::isfinite(value) || may_be_infinite || std::isinf(value);
  const double radius = !std::isfinite(value) ? 0.0 : error + std::fabs(value) * 0x1p-52;
  to.radius[at] = call::f32_not_below(known && !std::isnan(radius) ? radius : kUnbounded);
}

}  // namespace

bool stores_keys(const call::Record& record, const call::Dims& d, std::int64_t head) {
  const auto of = [&](std::int64_t j) { return d.qk_head(record.convention.head_map, j); };
  for (std::int64_t j = 0; j < head; ++j) {
    if (of(j) == of(head)) return false;
  }
  return true;
}

Exact* add_rings(const call::Record& record, const call::Plan& plan, bool certify,
                 verdict::Expectations& expected) {
  const call::Dims& d = plan.dims;
  const RingIndex index(record, d);
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  Exact& corrections = add(record, d, "ring_d", size(d.V), expected);
  Exact& keys = add(record, d, "ring_k", size(d.K), expected);
  Exact& gates = add(record, d, "ring_g", size(index.gates), expected);
  corrections.channels = size(d.V);
  if (certify) corrections.reach.assign(corrections.golden.size(), 0.0F);
  gates.logarithms = true;
  const auto mark = [](Exact& e, std::int64_t at) {
    e.touched[static_cast<std::size_t>(at) / e.block] = verdict::Touch::kComputed;
  };
  for (const call::Sequence& s : plan.sequences) {
    if (s.padded) continue;
    for_each_place(s, [&](std::int64_t, std::int64_t place) {
      for (std::int64_t h = 0; h < d.H; ++h) mark(keys, index.k(s.replay.ring, h, place));
      for (std::int64_t j = 0; j < d.HV; ++j) {
        mark(corrections, index.d(s.replay.ring, j, place));
        mark(gates, index.g(s.replay.ring, j, place));
      }
    });
  }
  return &corrections;
}

template <class S>
void evaluate_rings(const call::Record& record, const call::Plan& plan, const CallInputs& inputs,
                    bool certify, verdict::Expectations& expected) {
  const call::Dims& d = plan.dims;
  const RingIndex index(record, d);
  Exact& keys = expected.outputs.at("ring_k").exact;
  Exact& gates = expected.outputs.at("ring_g").exact;
  const auto bound = [&](double error) { return certify ? error : kUnbounded; };
  for (const LaneJob& job : lanes_of(plan)) {
    const call::Sequence& s = *job.sequence;
    const auto lane = prepare_lane<S>(record, d, inputs, s, job.head);
    const std::int64_t qk_head = d.qk_head(record.convention.head_map, job.head);
    const bool has_keys = stores_keys(record, d, job.head);
    for_each_place(s, [&](std::int64_t t, std::int64_t place) {
      const bool met_nonfinite = t >= lane.first_nonfinite.any();
      const TokenBounds& b = lane.bounds[static_cast<std::size_t>(t)];
      auto at = static_cast<std::size_t>(index.g(s.replay.ring, job.head, place));
      for (std::int64_t i = 0; i < index.gates; ++i, ++at) {
        const auto gate = static_cast<std::size_t>(t * index.gates + i);
        if (has_logarithm(record.convention, lane.alpha[gate])) {
          store(gates, at, lane.log_alpha[gate], bound(b.log_alpha_error), met_nonfinite);
        } else {
          gates.undefined.resize(gates.golden.size());
          gates.undefined[at] = true;
        }
      }
      at = static_cast<std::size_t>(index.k(s.replay.ring, qk_head, place));
      for (std::int64_t i = 0; has_keys && i < d.K; ++i, ++at) {
        const double k = scalar::to_double(lane.k_row(t)[i]);
        store(keys, at, k, bound(lane.k_error * std::fabs(k) + 0x1p-1074), met_nonfinite);
      }
    });
  }
}

template void evaluate_rings<double>(const call::Record&, const call::Plan&, const CallInputs&,
                                     bool, verdict::Expectations&);
template void evaluate_rings<scalar::Quad>(const call::Record&, const call::Plan&,
                                           const CallInputs&, bool, verdict::Expectations&);
template void evaluate_rings<scalar::Multi>(const call::Record&, const call::Plan&,
                                            const CallInputs&, bool, verdict::Expectations&);

}  // namespace goldenrule::delta
