// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/budget/ring_grant.hpp"

#include <cmath>

#include "reference/delta/budget/grant.hpp"
#include "reference/delta/emulation/perturbed_lane.hpp"
#include "reference/delta/oracle/lane_io.hpp"

namespace goldenrule::delta {
namespace {

double key_error(const contract::Contract& c, bool is_normalised) {
  return norm_error(c, is_normalised) + contract::unit_of(c.at(contract::Activation::kKey));
}

}  // namespace

double norm_error(const contract::Contract& c, bool is_normalised) {
  return is_normalised ? c.functions.norm + c.unit_roundoff() : 0.0;
}

double gate_error(const contract::Contract& c, const call::Convention& convention,
                  const TokenBounds& b, double log_alpha, double logit_slope) {
  const contract::FunctionErrors& f = c.functions;
  const double size = std::fabs(log_alpha);
  const double relative = f.log_alpha + c.unit_roundoff();
  const double rounded = contract::unit_of(c.at(contract::Activation::kGate));
  if (convention.gate == call::Gate::kLinear) return f.log + rounded + relative * size;
  return (relative + rounded) * size + softplus_error(f, b.log_by_softplus, size) +
         logit_error(c, b) * logit_slope;
}

void grant_ring_rows(const call::Record& record, const call::Plan& plan,
                     const contract::Contract& contract, verdict::GrantDetail detail,
                     verdict::Expectations& expected) {
  const call::Dims& d = plan.dims;
  const RingIndex index(record, d);
  const CallInputs inputs(record);
  verdict::Expected& keys = expected.outputs.at("ring_k");
  verdict::Expected& gates = expected.outputs.at("ring_g");
  keys.grant = empty_grant(keys.exact, 0.0, detail);
  gates.grant = empty_grant(gates.exact, 0.0, detail);
  const auto store = [](verdict::Expected& to, std::int64_t at, double bias) {
    const auto i = static_cast<std::size_t>(at);
    const bool has_value = to.exact.is_defined(i) && std::isfinite(to.exact.golden[i]);
    if (has_value) store_grant(to.grant, i, 0.0, bias);
  };
  for (const LaneJob& job : lanes_of(plan)) {
    const call::Sequence& s = *job.sequence;
    const auto lane = prepare_lane<double>(record, d, inputs, s, job.head);
    const double of_key = key_error(contract, lane.k_error > 0.0);
    const std::int64_t qk_head = d.qk_head(record.convention.head_map, job.head);
    for (std::int64_t t = lane.given; t < lane.tokens; ++t) {
      const std::int64_t place = s.replay.place(t);
      const std::int64_t k = index.k(s.replay.ring, qk_head, place);
      const std::int64_t g = index.g(s.replay.ring, job.head, place);
      for (std::int64_t i = 0; i < d.K; ++i) {
        store(keys, k + i, of_key * std::fabs(lane.k_row(t)[i]));
      }
      for (std::int64_t i = 0; i < lane.gates; ++i) {
        const auto at = static_cast<std::size_t>(t * lane.gates + i);
        store(gates, g + i,
              gate_error(contract, record.convention, lane.bounds[static_cast<std::size_t>(t)],
                         lane.log_alpha[at], lane.logit_slope[at]));
      }
    }
  }
}

}  // namespace goldenrule::delta
