// SPDX-License-Identifier: Apache-2.0
#include "reference/mistakes/segments.hpp"

#include <cstring>

#include "reference/mistakes/inputs.hpp"
#include "reference/mistakes/outputs.hpp"

namespace goldenrule::mistakes {
namespace {

// Rows [first, first + count) of each segment; `rank` leading axes of `tensor` are tokens.
call::Tensor packed(const call::Tensor& tensor, std::size_t rank, std::int64_t tokens,
                    std::int64_t total, std::span<const Segment> segments) {
  call::Shape shape{total};
  shape.insert(shape.end(), tensor.shape().begin() + static_cast<std::ptrdiff_t>(rank),
               tensor.shape().end());
  call::Tensor rows(tensor.dtype(), shape);
  if (total == 0) return rows;
  const std::size_t size = tensor.bytes().size() / static_cast<std::size_t>(tokens);
  std::byte* to = rows.bytes().data();
  for (const Segment& s : segments) {
    const std::size_t bytes = static_cast<std::size_t>(s.count) * size;
    if (bytes == 0) continue;
    std::memcpy(to, tensor.bytes().data() + static_cast<std::size_t>(s.first) * size, bytes);
    to += bytes;
  }
  return rows;
}

}  // namespace

call::TensorMap run_segments(const call::Record& record, const Kernel& kernel,
                             std::span<const Segment> segments, const call::Tensor* states) {
  const call::Dims d = call::validate(record);
  const std::size_t rank = is_prefill(record) ? 1 : 2;
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
  std::int64_t total = 0;
  bool from_state = false;
  for (const Segment& s : segments) {
    total += s.count;
    bounds.push_back(static_cast<double>(total));
    starts.push_back(s.start);
    from_state = from_state || s.start >= 0;
  }
  for (const char* name : {"q", "k", "v", "a", "g", "b", "beta"}) {
    const call::Tensor* given = record.find_input(name);
    if (given != nullptr) part.inputs[name] = packed(*given, rank, d.tokens, total, segments);
  }
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
  return kernel(part);
}

}  // namespace goldenrule::mistakes
