// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/stage_tensors.hpp"

#include <map>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/ring.hpp"
#include "reference/delta/oracle/stages.hpp"

namespace goldenrule::delta {
namespace {

using Lanes = std::vector<std::pair<LaneJob, LaneStages>>;

struct Numbers {
  std::int64_t heads = 1, width = 1;
  std::vector<double> values;

  void put(std::int64_t outer, std::int64_t head, const double* row) {
    std::copy_n(row, width, values.begin() + (outer * heads + head) * width);
  }
};

void put_rows(const Matrix<double>& rows, const call::Sequence& sequence, std::int64_t head,
              Numbers& to) {
  for (std::int64_t t = 0; t < rows.rows(); ++t) {
    to.put(sequence.first_token + t, head, rows.row(t).data());
  }
}

// Everything of a lane that has rows of tokens.
void put_lane(const call::Record& record, const call::Dims& d, const LaneJob& job,
              const LaneStages& stages, std::map<std::string, Numbers>& tensors) {
  const auto put = [&](const char* name, const Matrix<double>& rows, std::int64_t head) {
    if (rows.size() > 0) put_rows(rows, *job.sequence, head, tensors.at(name));
  };
  put("G", stages.chunk.G, job.head);
  put("beta", stages.beta, job.head);
  if (stores_keys(record, d, job.head)) {
    const std::int64_t qk_head = d.qk_head(record.convention.head_map, job.head);
    put("q", stages.q, qk_head);
    put("k", stages.k, qk_head);
  }
  put("A", stages.chunk.A, job.head);
  put("T", stages.chunk.T, job.head);
  put("w", stages.chunk.w, job.head);
  put("u", stages.chunk.u, job.head);
  put("v_new", stages.chunk.v_new, job.head);
}

void put_states(const std::vector<Matrix<double>>& states, const call::Dims& d,
                const OutputIndex& index, std::int64_t first_chunk, std::int64_t head,
                Numbers& to) {
  for (std::size_t c = 0; c < states.size(); ++c) {
    const std::int64_t chunk = first_chunk + static_cast<std::int64_t>(c);
    const auto block = static_cast<std::size_t>((chunk * d.HV + head) * to.width);
    for (std::int64_t i = 0; i < d.K; ++i) {
      for (std::int64_t x = 0; x < d.V; ++x) {
        to.values[block + index(0, 0, i, x)] = states[c](i, x);
      }
    }
  }
}

}  // namespace

call::TensorMap stage_tensors(
    const call::Record& record, std::int64_t C,
    const std::function<LaneStages(const call::Sequence&, std::int64_t head)>& run) {
  const call::Plan plan = call::make_plan(record, false);
  const call::Dims& d = plan.dims;
  Lanes lanes;
  for (const LaneJob& job : lanes_of(plan)) lanes.emplace_back(job, LaneStages());
  parallel::for_each_index(std::ssize(lanes), [&](std::int64_t i) {
    auto& [job, stages] = lanes[static_cast<std::size_t>(i)];
    stages = run(*job.sequence, job.head);
  });
  std::vector<std::string> names;
  for (const verdict::StageRow& row : stage_table()) names.emplace_back(row.name);
  // Their shapes; the values are replaced.
  verdict::ExpectedStages exact = evaluate_stages(record, C, names, scalar::Precision::kDouble);
  if (lanes.empty() || lanes.front().second.chunk.w.size() == 0) {
    exact.erase("w");
    exact.erase("u");
  }
  std::map<std::string, Numbers> tensors;
  for (const auto& [name, stage] : exact) {
    const call::Shape& shape = stage.expected.exact.shape;
    tensors[name] = {.heads = shape[1],
                     .width = static_cast<std::int64_t>(stage.expected.exact.block),
                     .values = std::vector<double>(stage.expected.exact.golden.size(), 0.0)};
  }
  std::map<const call::Sequence*, std::int64_t> first_chunk;
  std::int64_t chunks = 0;
  for (const call::Sequence& s : plan.sequences) {
    first_chunk[&s] = chunks;
    chunks += chunks_of(s, C);
  }
  const OutputIndex index(record, d);
  for (const auto& [job, stages] : lanes) {
    put_lane(record, d, job, stages, tensors);
    put_states(stages.chunk.h, d, index, first_chunk.at(job.sequence), job.head, tensors.at("h"));
  }
  call::TensorMap result;
  for (auto& [name, numbers] : tensors) {
    result.emplace(
        name, call::Tensor(call::DType::kF64, exact.at(name).expected.exact.shape, numbers.values));
  }
  return result;
}

}  // namespace goldenrule::delta
