// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "fixtures/call/plan.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/variant.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/ring.hpp"
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
  for (const char* ring : {"ring_d", "ring_k", "ring_g"}) {
    const call::Tensor* before = record.find_input("initial_" + std::string(ring));
    if (before != nullptr) values[ring] = before->to_doubles();
  }
  return values;
}

// What the lane adds to its ring.
void store_ring(const call::Record& record, const call::Dims& dims, const OutputIndex& index,
                const LaneJob& job, const Lane<double>& lane, const Matrix<double>& d,
                Values& values) {
  const call::Replay& replay = job.sequence->replay;
  const std::int64_t qk_head = dims.qk_head(record.convention.head_map, job.head);
  const auto copy = [](const double* from, std::int64_t count, std::int64_t at,
                       std::vector<double>& to) {
    std::copy_n(from, count, to.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const bool has_keys = stores_keys(record, dims, job.head);
  for (std::int64_t t = replay.count; t < lane.tokens; ++t) {
    const std::int64_t place = replay.place(t);
    copy(d.row(t).data(), dims.V, index.ring.d(replay.ring, job.head, place), values.at("ring_d"));
    copy(lane.log_alpha.data() + t * lane.gates, lane.gates,
         index.ring.g(replay.ring, job.head, place), values.at("ring_g"));
    if (!has_keys) continue;
    copy(lane.k_row(t), lane.K, index.ring.k(replay.ring, qk_head, place), values.at("ring_k"));
  }
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
    const auto lane = prepare_lane<double>(record, d, inputs, sequence, head);
    const Matrix<double> v = lane_values(inputs, d, index, sequence, head);
    Matrix<double> state = lane_start(inputs, d, index, sequence, head);
    Matrix<double> o = Matrix<double>::Zero(lane.tokens, d.V);
    Matrix<double> corrections = o;
    std::int64_t t = 0;
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.after > t) advance(lane, v, t, snapshot.after, state, o, corrections);
      t = snapshot.after;
      std::vector<double>& to = values.at(std::string(call::name_of(snapshot.target)));
      for (std::int64_t i = 0; i < d.K; ++i) {
        for (std::int64_t x = 0; x < d.V; ++x) to[index(snapshot.block, head, i, x)] = state(i, x);
      }
    }
    if (lane.tokens > t) advance(lane, v, t, lane.tokens, state, o, corrections);
    for (std::int64_t row = 0; row < sequence.token_count; ++row) {
      for (std::int64_t x = 0; x < d.V; ++x) {
        output[index.o(sequence.first_token + row, head, x)] = o(lane.given + row, x);
      }
    }
    if (sequence.replay.ring >= 0) {
      store_ring(record, d, index, {&sequence, head}, lane, corrections, values);
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
