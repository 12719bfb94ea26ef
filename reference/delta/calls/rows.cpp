// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/calls/rows.hpp"

#include <algorithm>

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::calls {
namespace {

call::Tensor bounds_of(call::DType type, const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> bounds{0};
  for (const std::int64_t count : counts) bounds.push_back(bounds.back() + count);
  return call::integer_tensor(bounds, {std::ssize(bounds)}, type);
}

// The first row of the checkpoints of sequence `n`: they are packed as the sequences are.
std::int64_t first_checkpoint(const call::Plan& plan, std::int64_t n) {
  std::int64_t first = 0;
  for (std::int64_t m = 0; m < n; ++m) {
    first += std::ssize(plan.sequences[static_cast<std::size_t>(m)].checkpoints);
  }
  return first;
}

}  // namespace

void change(call::Tensor& tensor, const std::function<double(std::int64_t, double)>& f) {
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, f(i, tensor[i]));
}

call::Record with_explicit_slots(const call::Record& record) {
  call::Record changed = calls::without_outputs(record);
  const bool given = record.find_input("state_indices") != nullptr ||
                     record.find_input("ssm_state_indices") != nullptr;
  if (given || calls::is_prefill(record)) return changed;
  const std::int64_t rows = call::validate(record).rows;
  changed.inputs["state_indices"] = call::integer_tensor(call::all_indices(rows));
  // A slot that is used because no tensor says otherwise is never a pad.
  if (record.find_input("output_state_indices") == nullptr) changed.convention.pad_slot = -1;
  return changed;
}

call::Record select_rows(const call::Record& record, const call::Plan& plan,
                         std::span<const std::int64_t> rows) {
  call::Record changed = with_explicit_slots(record);
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> checkpoints;
  std::vector<std::int64_t> checkpoint_counts;
  for (const std::int64_t row : rows) {
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(row)];
    for (std::int64_t t = 0; t < s.token_count; ++t) tokens.push_back(s.first_token + t);
    counts.push_back(s.token_count);
    checkpoint_counts.push_back(std::ssize(s.checkpoints));
    const std::int64_t first = first_checkpoint(plan, row);
    for (std::int64_t r = 0; r < std::ssize(s.checkpoints); ++r) checkpoints.push_back(first + r);
  }
  const auto select = [&](const auto& input, const auto& axes, call::Tensor& tensor) {
    const call::Axis& axis = axes.front();  // of others: the pool, and what every row shares
    if (axis == call::axis::kRow || axis == call::axis::kSequence) {
      tensor = call::take(tensor, 0, rows);
    } else if (axis == call::axis::kPackedToken) {
      tensor = call::take(tensor, 0, tokens);
    } else if (axis == call::axis::kBound) {
      tensor = bounds_of(tensor.dtype(), input.name == "cu_seqlens" ? counts : checkpoint_counts);
    } else if (axis == call::axis::kCheckpoint) {
      tensor = call::take(tensor, 0, checkpoints);
    }
  };
  call::for_each_input(changed, plan.dims, select);
  return changed;
}

call::Record stretch_call(const call::Record& record, const call::Plan& plan, call::Mode mode,
                          std::span<const Stretch> stretches, const call::Tensor& states) {
  call::Record part = calls::without_outputs(record);
  part.mode = mode;
  part.convention.disable_state_update = 0;
  part.convention.pad_slot = -1;
  part.inputs.clear();
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> blocks;
  for (const Stretch& s : stretches) {
    const std::int64_t first =
        plan.sequences[static_cast<std::size_t>(s.sequence)].first_token + s.begin;
    for (std::int64_t t = 0; t < s.count; ++t) tokens.push_back(first + t);
    counts.push_back(s.count);
    blocks.push_back(s.sequence);
  }
  const std::size_t rank = call::token_rank(record);
  call::for_each_input(record, plan.dims, [&](const auto& input, const auto&, const auto& given) {
    if (!input.is_per_token()) return;
    call::Tensor& rows = part.inputs[std::string(input.name)];
    rows = call::take(call::with_leading(given, rank, {plan.dims.tokens}), 0, tokens);
    if (mode != call::Mode::kPrefill) {
      rows =
          call::with_leading(std::move(rows), 1, {std::ssize(stretches), stretches.front().count});
    }
  });
  for (const char* name : {"A_log", "dt_bias"}) {
    const call::Tensor* given = record.find_input(name);
    if (given != nullptr) part.inputs[name] = *given;
  }
  if (mode == call::Mode::kPrefill) {
    part.inputs["cu_seqlens"] = bounds_of(call::DType::kI64, counts);
  }
  part.inputs["initial_state"] = call::take(states, 0, blocks);
  return part;
}

}  // namespace goldenrule::calls
