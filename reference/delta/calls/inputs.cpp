// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/calls/inputs.hpp"

#include <algorithm>

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"

namespace goldenrule::calls {
call::Record without_outputs(const call::Record& record) {
  return {.op = record.op,
          .mode = record.mode,
          .convention = record.convention,
          .source = {},
          .contract = {},
          .case_line = {},
          .inputs = record.inputs,
          .outputs = {}};
}

void change_input(call::Record& record, const char* name,
                  const std::function<double(std::int64_t, double)>& f) {
  call::Tensor& tensor = record.inputs.at(name);
  std::vector<double> values = tensor.to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = f(static_cast<std::int64_t>(i), values[i]);
  }
  tensor = call::Tensor(call::DType::kF64, tensor.shape(), values);
}

call::Record with_qk_heads(const call::Record& record,
                           const std::function<std::int64_t(std::int64_t)>& map) {
  const call::Dims d = call::validate(record);
  call::Record changed = without_outputs(record);
  // With a q/k head for every value head, gate heads must be spread alike.
  const bool gates_of_qk = record.convention.gate_head == call::GateHead::kQK;
  std::vector<std::int64_t> heads;
  std::vector<std::int64_t> gate_heads;
  for (std::int64_t j = 0; j < d.HV; ++j) {
    heads.push_back(map(j));
    gate_heads.push_back(d.qk_head(record.convention.head_map, j));
  }
  call::for_each_input(changed, d, [&](const auto& row, const auto& axes, call::Tensor& tensor) {
    const auto axis = call::find_axis(axes, call::axis::kQkHead);
    if (!axis) return;
    tensor = call::take(tensor, *axis, row.has(call::extent::kGateHeads) ? gate_heads : heads);
  });
  if (gates_of_qk) changed.convention.gate_head = call::GateHead::kV;
  changed.convention.head_map = call::HeadMap::kGrouped;
  return changed;
}

call::Record with_tokens(const call::Record& record, const std::vector<std::int64_t>& source) {
  const call::Dims d = call::validate(record);
  call::Record changed = without_outputs(record);
  const std::size_t rank = call::token_rank(record);
  call::for_each_input(changed, d, [&](const auto& row, const auto&, call::Tensor& tensor) {
    if (!row.is_per_token()) return;
    const call::Shape leading(tensor.shape().begin(),
                              tensor.shape().begin() + static_cast<std::ptrdiff_t>(rank));
    const call::Tensor rows = call::with_leading(std::move(tensor), rank, {d.tokens});
    tensor = call::with_leading(call::take(rows, 0, source), 1, leading);
  });
  return changed;
}

std::int64_t longest_sequence(const call::Record& record) {
  if (!call::is_packed(record)) return call::validate(record).T;
  const std::vector<std::int64_t> bounds = record.inputs.at("cu_seqlens").to_integers();
  std::int64_t longest = 0;
  for (std::size_t n = 1; n < bounds.size(); ++n) {
    longest = std::max(longest, bounds[n] - bounds[n - 1]);
  }
  return longest;
}

}  // namespace goldenrule::calls
