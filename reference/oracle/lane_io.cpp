// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/lane_io.hpp"

namespace goldenrule::oracle {

rule::Matrix<double> lane_values(const rule::CallInputs& inputs, const call::Dims& dims,
                                 const call::Sequence& sequence, std::int64_t head) {
  rule::Matrix<double> v(sequence.token_count, dims.V);
  for (std::int64_t t = 0; t < sequence.token_count; ++t) {
    const std::int64_t base = ((sequence.first_token + t) * dims.HV + head) * dims.V;
    inputs.v.read(base, dims.V, v.row(t).data());
  }
  return v;
}

rule::Matrix<double> lane_start(const rule::CallInputs& inputs, const call::Dims& dims,
                                const StateIndex& index, const call::Sequence& sequence,
                                std::int64_t head) {
  rule::Matrix<double> state = rule::Matrix<double>::Zero(dims.K, dims.V);
  if (sequence.start_block < 0 || inputs.initial_state.empty()) return state;
  for (std::int64_t i = 0; i < dims.K; ++i) {
    for (std::int64_t x = 0; x < dims.V; ++x) {
      state(i, x) = inputs.initial_state[index(sequence.start_block, head, i, x)];
    }
  }
  return state;
}

}  // namespace goldenrule::oracle
