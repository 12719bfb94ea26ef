// SPDX-License-Identifier: Apache-2.0
#include "reference/calls/segments.hpp"

#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "reference/calls/inputs.hpp"
#include "reference/calls/outputs.hpp"

namespace goldenrule::calls {
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
  return kernel(part);
}

}  // namespace goldenrule::calls
