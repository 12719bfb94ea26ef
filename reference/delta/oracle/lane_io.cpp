// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/lane_io.hpp"

#include <algorithm>

namespace goldenrule::delta {

std::vector<LaneJob> lanes_of(const call::Plan& plan, bool also_empty) {
  std::vector<LaneJob> jobs;
  for (const call::Sequence& sequence : plan.sequences) {
    if (sequence.padded || (sequence.lane_tokens() == 0 && !also_empty)) continue;
    for (std::int64_t head = 0; head < plan.dims.HV; ++head) jobs.push_back({&sequence, head});
  }
  return jobs;
}

std::vector<double> start_columns(const CallInputs& inputs, const call::Dims& dims,
                                  const OutputIndex& index, const call::Sequence& sequence,
                                  std::int64_t head, std::int64_t first, std::int64_t columns) {
  std::vector<double> state(static_cast<std::size_t>(dims.K * columns));
  const auto place = [&](std::int64_t i, std::int64_t v) {
    return static_cast<std::int64_t>(index(sequence.start_block, head, i, v));
  };
  if (index.state.value == 1) {
    for (std::int64_t i = 0; i < dims.K; ++i) {
      inputs.initial_state.read(place(i, first), columns, state.data() + i * columns);
    }
    return state;
  }
  std::vector<double> column;
  for (std::int64_t c = 0; c < columns; ++c) {
    const double* from = inputs.initial_state.read(place(0, first + c), dims.K, column);
    for (std::int64_t i = 0; i < dims.K; ++i) {
      state[static_cast<std::size_t>(i * columns + c)] = from[i];
    }
  }
  return state;
}

void read_values(const CallInputs& inputs, const OutputIndex& index, const LaneJob& job,
                 std::int64_t t, std::int64_t first, std::int64_t columns, double* to) {
  const call::Sequence& sequence = *job.sequence;
  const std::int64_t token = t - sequence.replay.count;
  if (token < 0) {
    const std::size_t at = index.d(sequence, t, job.head, first);
    return inputs.ring_d.read(static_cast<std::int64_t>(at), columns, to);
  }
  const std::size_t at = index.o(sequence.first_token + token, job.head, first);
  inputs.v.read(static_cast<std::int64_t>(at), columns, to);
}

delta::Matrix<double> lane_values(const CallInputs& inputs, const call::Dims& dims,
                                  const OutputIndex& index, const call::Sequence& sequence,
                                  std::int64_t head) {
  Matrix<double> v(sequence.lane_tokens(), dims.V);
  for (std::int64_t t = 0; t < v.rows(); ++t) {
    read_values(inputs, index, {&sequence, head}, t, 0, dims.V, v.row(t).data());
  }
  return v;
}

delta::Matrix<double> lane_start(const CallInputs& inputs, const call::Dims& dims,
                                 const OutputIndex& index, const call::Sequence& sequence,
                                 std::int64_t head) {
  Matrix<double> state = Matrix<double>::Zero(dims.K, dims.V);
  if (sequence.start_block < 0 || inputs.initial_state.empty()) return state;
  const std::vector<double> all = start_columns(inputs, dims, index, sequence, head, 0, dims.V);
  std::ranges::copy(all, state.data());
  return state;
}

}  // namespace goldenrule::delta
