// SPDX-License-Identifier: Apache-2.0
#include "fixtures/call/operation.hpp"
#include "reference/delta/emulation/emulate.hpp"
#include "reference/delta/emulation/honest_chunks.hpp"
#include "reference/delta/emulation/kernel_lane.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/delta/oracle/stage_tensors.hpp"

namespace goldenrule::delta {

call::TensorMap emulate_stages(const call::Record& record, const contract::Contract& contract,
                               std::uint64_t seed) {
  const call::Dims dims = call::validate(record);
  const CallInputs inputs(record);
  const OutputIndex index(record, dims);
  const KernelChoices choices(seed);
  return stage_tensors(
      record, contract.chunked()->chunk,
      [&](const call::Sequence& sequence, std::int64_t head) -> LaneStages {
        const auto lane = prepare_lane<double>(record, dims, inputs, sequence, head);
        const Matrix<double> v = lane_values(inputs, dims, index, sequence, head);
        const Matrix<double> start = lane_start(inputs, dims, index, sequence, head);
        const auto stream = static_cast<std::uint64_t>(sequence.first_token * dims.HV + head);
        const KernelLane rows = kernel_lane(lane, contract, choices);
        LaneStages stages{
            .chunk =
                honest_chunks(lane, v, start, {}, contract, seed, stream, Keep::kStages).stages,
            .q = rows.q.cast<double>(),
            .k = rows.k.cast<double>(),
            .beta = Matrix<double>(lane.tokens, 1)};
        for (std::int64_t t = 0; t < lane.tokens; ++t) {
          stages.beta(t, 0) = static_cast<double>(rows.beta[static_cast<std::size_t>(t)]);
        }
        return stages;
      });
}

}  // namespace goldenrule::delta
