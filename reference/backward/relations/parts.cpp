// SPDX-License-Identifier: Apache-2.0
#include "reference/backward/relations/parts.hpp"

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/error.hpp"
#include "fixtures/call/integer_inputs.hpp"
#include "reference/delta/calls/inputs.hpp"

namespace goldenrule::backward {

call::Record call_of_parts(const call::Record& record, const call::Dims& dims,
                           std::span<const calls::Stretch> parts) {
  const std::vector<Sequence> sequences = sequences_of(record, dims);
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> bounds{0};
  for (const calls::Stretch& part : parts) {
    const std::int64_t first =
        sequences[static_cast<std::size_t>(part.sequence)].first + part.begin;
    for (std::int64_t t = 0; t < part.count; ++t) tokens.push_back(first + t);
    rows.push_back(part.sequence);
    bounds.push_back(std::ssize(tokens));
  }
  call::Record changed = calls::without_outputs(record);
  call::for_each_input(changed, dims, [&](const auto&, const auto& axes, call::Tensor& tensor) {
    const call::Axis& axis = axes.front();
    if (axis == call::axis::kSequence) {
      tensor = call::take(tensor, 0, rows);
    } else if (axis == call::axis::kPackedToken) {
      tensor = call::take(tensor, 0, tokens);
    } else if (axis == call::axis::kBound) {
      tensor = call::integer_tensor(bounds, {std::ssize(bounds)}, tensor.dtype());
    }
  });
  return changed;
}

RowOf row_of(const std::string& output) {
  if (output == "dinitial_state") return RowOf::kSequence;
  return output == "dA_log" || output == "ddt_bias" ? RowOf::kParameter : RowOf::kToken;
}

PartPlaces::PartPlaces(const call::Record& record, const call::Dims& dims,
                       std::span<const calls::Stretch> parts)
    : dims_(dims) {
  const std::vector<Sequence> sequences = sequences_of(record, dims);
  for (const calls::Stretch& part : parts) {
    const std::int64_t first =
        sequences[static_cast<std::size_t>(part.sequence)].first + part.begin;
    for (std::int64_t t = 0; t < part.count; ++t) tokens_.push_back(first + t);
    rows_.push_back(part.sequence);
  }
}

void PartPlaces::for_each(const std::string& output, const call::Tensor& original,
                          const std::function<void(std::size_t, std::size_t)>& f) const {
  const bool of_tokens = row_of(output) == RowOf::kToken;
  const std::int64_t width = original.size() / (of_tokens ? dims_.tokens : dims_.rows);
  std::size_t part = 0;
  for (const std::int64_t row : of_tokens ? tokens_ : rows_) {
    for (std::int64_t i = 0; i < width; ++i) f(static_cast<std::size_t>(row * width + i), part++);
  }
}

OutputSums zeros_like(const call::TensorMap& outputs) {
  OutputSums sums;
  for (const auto& [name, tensor] : outputs) {
    sums[name].assign(static_cast<std::size_t>(tensor.size()), 0.0);
  }
  return sums;
}

}  // namespace goldenrule::backward
