// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/calls/outputs.hpp"
#include "reference/delta/mistakes/variant.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/tree.hpp"

namespace goldenrule::delta {
namespace {

using Values = std::map<std::string, std::vector<double>>;

Values initial_values(const call::Record& record, const call::Plan& plan) {
  Values values;
  const auto count = [&](const std::string& name) {
    return static_cast<std::size_t>(
        call::element_count(call::output_shape(record, plan.dims, name)));
  };
  values["o"].assign(count("o"), 0.0);  // rows of padded requests stay zero
  values["final_state"].assign(count("final_state"), 0.0);
  if (const call::Tensor* states = record.find_input("initial_state")) {
    values["final_state"] = states->to_doubles();
  }
  if (plan.kept_states) {
    const std::string kept(call::name_of(*plan.kept_states));
    const call::Tensor* buffer = record.find_input("initial_intermediate_states");
    values[kept] = buffer != nullptr ? buffer->to_doubles()
                                     : std::vector<double>(count(kept), calls::kUnwritten);
  }
  return values;
}

}  // namespace

call::TensorMap run_lanes(const call::Record& record, const Advance& advance) {
  if (call::has_tree(record)) {
    const Paths paths(record);
    call::TensorMap outputs = run_lanes(paths.without_tree(), advance);
    paths.fold(run_lanes(paths.unfolded(), advance), outputs);
    return outputs;
  }
  const call::Plan plan = call::make_plan(record, true);
  const call::Dims& d = plan.dims;
  const CallInputs inputs(record);
  const OutputIndex index(record, d);
  Values values = initial_values(record, plan);
  std::vector<double>& output = values["o"];

  const auto run = [&](const call::Sequence& sequence, std::int64_t head) {
    const auto lane =
        prepare_lane<double>(record, d, inputs, sequence.first_token, sequence.token_count, head);
    const Matrix<double> v = lane_values(inputs, d, index, sequence, head);
    Matrix<double> state = lane_start(inputs, d, index, sequence, head);
    Matrix<double> o = Matrix<double>::Zero(sequence.token_count, d.V);
    std::int64_t t = 0;
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.after > t) advance(lane, v, t, snapshot.after, state, o);
      t = snapshot.after;
      std::vector<double>& to = values.at(std::string(call::name_of(snapshot.target)));
      for (std::int64_t i = 0; i < d.K; ++i) {
        for (std::int64_t x = 0; x < d.V; ++x) to[index(snapshot.block, head, i, x)] = state(i, x);
      }
    }
    if (sequence.token_count > t) advance(lane, v, t, sequence.token_count, state, o);
    for (std::int64_t row = 0; row < sequence.token_count; ++row) {
      for (std::int64_t x = 0; x < d.V; ++x) {
        output[index.o(sequence.first_token + row, head, x)] = o(row, x);
      }
    }
  };
  const std::vector<LaneJob> lanes = lanes_of(plan, kAlsoEmpty);
  parallel::for_each_index(std::ssize(lanes), [&](std::int64_t i) {
    const LaneJob& lane = lanes[static_cast<std::size_t>(i)];
    run(*lane.sequence, lane.head);
  });

  call::TensorMap outputs;
  for (const auto& [name, numbers] : values) {
    outputs.emplace(name,
                    call::Tensor(call::DType::kF64, call::output_shape(record, d, name), numbers));
  }
  return outputs;
}

}  // namespace goldenrule::delta
