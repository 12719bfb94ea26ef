// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/write_set.hpp"

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"

namespace goldenrule::test {
namespace {

using call::Record;

/// Blocks of a target that the plan writes.
std::vector<bool> written_blocks(const call::Plan& plan, call::Target target, std::int64_t count) {
  std::vector<bool> written(static_cast<std::size_t>(count), false);
  for (const call::Sequence& sequence : plan.sequences) {
    for (const call::Snapshot& s : sequence.snapshots) {
      if (s.target == target) written[static_cast<std::size_t>(s.block)] = true;
    }
  }
  return written;
}

/// Places that the tokens of the call go to.
std::vector<bool> written_places(const call::Plan& plan) {
  const std::int64_t places = plan.dims.ring_places;
  std::vector<bool> written(static_cast<std::size_t>(plan.dims.rings * places), false);
  for (const call::Sequence& s : plan.sequences) {
    if (s.padded || s.replay.ring < 0) continue;
    for (std::int64_t t = s.replay.count; t < s.lane_tokens(); ++t) {
      written[static_cast<std::size_t>(s.replay.ring * places + s.replay.place(t))] = true;
    }
  }
  return written;
}

}  // namespace

std::int64_t kept_blocks(const Record& record, const call::Dims& d) {
  if (record.mode != call::Mode::kMtp) return d.checkpoints;
  return call::has_kept_buffer(record) ? d.kept_rows * d.kept_steps : d.tokens;
}

std::size_t place_of_element(const call::Shape& shape, std::size_t i) {
  const std::size_t at = i / static_cast<std::size_t>(shape.size() > 3 ? shape[3] : 1);
  const auto heads = static_cast<std::size_t>(shape[1]),
             places = static_cast<std::size_t>(shape[2]);
  return at / places / heads * places + at % places;
}

WriteSet writes_of(const Record& record) {
  if (record.op == call::Op::kAttention) return {.o = true, .final_state = {}, .kept_states = {}};
  const call::Plan plan = call::make_plan(record, true);
  const bool mtp = record.mode == call::Mode::kMtp;
  return {.o = true,
          .final_state = written_blocks(plan, call::Target::kFinalState, plan.dims.slots),
          .kept_states = written_blocks(
              plan, mtp ? call::Target::kIntermediateStates : call::Target::kCheckpoints,
              kept_blocks(record, plan.dims)),
          .rings = written_places(plan)};
}

}  // namespace goldenrule::test
