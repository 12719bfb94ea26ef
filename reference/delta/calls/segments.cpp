// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/calls/segments.hpp"

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"

namespace goldenrule::calls {
namespace {

// Rows of `checkpoints` that a segment leaves.
std::vector<std::int64_t> rows_of(const call::Record& record, const Segment& segment) {
  std::vector<std::int64_t> rows;
  const call::Tensor* offsets = record.find_input("checkpoint_offsets");
  if (offsets == nullptr || segment.sequence < 0) return rows;
  const call::Tensor& bounds = record.inputs.at("cu_checkpoints");
  const auto end = static_cast<std::int64_t>(bounds[segment.sequence + 1]);
  for (auto r = static_cast<std::int64_t>(bounds[segment.sequence]); r < end; ++r) {
    const auto offset = static_cast<std::int64_t>((*offsets)[r]) - segment.begin;
    const bool behind = offset > 0 || (offset == 0 && segment.begin == 0);
    if (behind && offset <= segment.count) rows.push_back(r);
  }
  return rows;
}

// The inputs that ask for them.
void ask_for_checkpoints(const call::Record& record, std::span<const Segment> segments,
                         call::Record& part) {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> bounds{0};
  for (const Segment& s : segments) {
    for (const std::int64_t row : rows_of(record, s)) {
      offsets.push_back(static_cast<std::int64_t>(record.inputs.at("checkpoint_offsets")[row]) -
                        s.begin);
    }
    bounds.push_back(std::ssize(offsets));
  }
  if (offsets.empty()) return;
  part.inputs["checkpoint_offsets"] = call::integer_tensor(offsets);
  part.inputs["cu_checkpoints"] = call::integer_tensor(bounds);
}

}  // namespace

call::TensorMap run_segments(const call::Record& record, const Kernel& kernel,
                             std::span<const Segment> segments, const call::Tensor* states) {
  const call::Dims d = call::validate(record);
  call::Record part{.op = record.op,
                    .mode = call::Mode::kPrefill,
                    .convention = record.convention,
                    .source = {},
                    .contract = {},
                    .case_line = {},
                    .inputs = {},
                    .outputs = {}};
  part.convention.disable_state_update = 0;
  std::vector<double> bounds{0.0};
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> tokens;
  bool from_state = false;
  for (const Segment& s : segments) {
    for (std::int64_t t = 0; t < s.count; ++t) tokens.push_back(s.first + t);
    bounds.push_back(static_cast<double>(tokens.size()));
    starts.push_back(s.start);
    from_state = from_state || s.start >= 0;
  }
  const std::size_t rank = call::token_rank(record);
  call::for_each_input(record, d, [&](const auto& row, const auto&, const call::Tensor& given) {
    if (!row.is_per_token()) return;
    part.inputs[std::string(row.name)] =
        call::take(call::with_leading(given, rank, {d.tokens}), 0, tokens);
  });
  for (const char* name : {"A_log", "dt_bias"}) {
    const call::Tensor* given = record.find_input(name);
    if (given != nullptr) part.inputs[name] = *given;
  }
  part.inputs["cu_seqlens"] = call::Tensor(call::DType::kI64, {std::ssize(bounds)}, bounds);
  if (from_state) {
    const call::Tensor& given = states != nullptr ? *states : record.inputs.at("initial_state");
    call::Shape shape = given.shape();
    shape[0] = std::ssize(segments);
    call::Tensor initial(given.dtype(), shape);
    copy_blocks(given, d.HV * d.state_size(), starts, initial);
    part.inputs["initial_state"] = std::move(initial);
  }
  ask_for_checkpoints(record, segments, part);
  return kernel(part);
}

call::TensorMap nothing_written(const call::Record& record, const call::Plan& plan) {
  call::TensorMap outputs;
  for (const char* name : {"o", "final_state"}) {
    outputs[name] = unwritten_tensor(call::output_shape(record, plan.dims, name));
  }
  if (plan.kept_states) {
    const std::string kept(call::name_of(*plan.kept_states));
    outputs[kept] = unwritten_tensor(call::output_shape(record, plan.dims, kept));
  }
  if (call::has_pool(record)) outputs["final_state"] = widened(record.inputs.at("initial_state"));
  const std::int64_t width = plan.dims.HV * plan.dims.V;
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t i = 0; s.padded && i < s.token_count * width; ++i) {
      outputs.at("o").set(s.first_token * width + i, 0.0);
    }
  }
  return outputs;
}

void store_segments(const call::Record& record, const call::Plan& plan,
                    std::span<const Segment> segments, const call::TensorMap& parts,
                    call::TensorMap& outputs) {
  const std::int64_t width = plan.dims.HV * plan.dims.V;
  const auto block_into = [&](const char* from, std::int64_t part, const char* to,
                              std::int64_t block) {
    const std::int64_t size = plan.dims.HV * plan.dims.state_size();
    for (std::int64_t i = 0; i < size; ++i) {
      outputs.at(to).set(block * size + i, parts.at(from)[part * size + i]);
    }
  };
  std::int64_t token = 0;
  std::int64_t row = 0;
  for (std::int64_t n = 0; n < std::ssize(segments); ++n) {
    const Segment& s = segments[static_cast<std::size_t>(n)];
    for (std::int64_t i = 0; i < s.count * width; ++i) {
      outputs.at("o").set(s.first * width + i, parts.at("o")[token * width + i]);
    }
    token += s.count;
    const call::Sequence& sequence = plan.sequences[static_cast<std::size_t>(s.sequence)];
    for (const call::Snapshot& snapshot : sequence.snapshots) {
      if (snapshot.target != call::Target::kFinalState) continue;
      block_into("final_state", n, "final_state", snapshot.block);
    }
    for (const std::int64_t kept : rows_of(record, s)) {
      block_into("checkpoints", row++, "checkpoints", kept);
    }
  }
}

}  // namespace goldenrule::calls
