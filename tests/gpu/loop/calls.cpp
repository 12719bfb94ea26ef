// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/loop/calls.hpp"

#include <limits>

#include "fixtures/call/integer_inputs.hpp"

namespace goldenrule::test::loop {

call::Tensor projected(const std::string& name, call::DType type, call::Shape shape,
                       std::span<const Hidden> tokens) {
  call::Tensor tensor(type, std::move(shape));
  if (tokens.empty()) return tensor;
  const std::int64_t width = tensor.size() / std::ssize(tokens);
  std::int64_t at = 0;
  for (const Hidden& token : tokens) {
    if (token.position < 0) {
      for (std::int64_t i = 0; i < width; ++i) {
        tensor.set(at++, std::numeric_limits<double>::quiet_NaN());
      }
      continue;
    }
    for (const double x : project(name, width, token)) tensor.set(at++, x);
  }
  return tensor;
}

call::Record delta_record(call::Mode mode, std::span<const Hidden> tokens, std::int64_t T) {
  call::Record record;
  record.op = call::Op::kGatedDeltaRule;
  record.mode = mode;
  record.convention.scale = 1.0;
  const std::int64_t count = std::ssize(tokens);
  const auto shape = [&](std::initializer_list<std::int64_t> last) {
    call::Shape s = T == 0 ? call::Shape{count} : call::Shape{count / T, T};
    s.insert(s.end(), last);
    return s;
  };
  // The first layer: nothing has been made of its tokens yet.
  std::vector<Hidden> plain(tokens.begin(), tokens.end());
  for (Hidden& token : plain) token.has_signs = false;
  using enum call::DType;
  record.inputs["q"] = projected("delta q", kBF16, shape({1, kStateKey}), plain);
  record.inputs["k"] = projected("delta k", kBF16, shape({1, kStateKey}), plain);
  record.inputs["v"] = projected("delta v", kF32, shape({kStateHeads, kStateValue}), plain);
  record.inputs["a"] = projected("delta a", kBF16, shape({kStateHeads}), plain);
  record.inputs["b"] = projected("delta b", kBF16, shape({kStateHeads}), plain);
  // alpha near .9.
  record.inputs["A_log"] = call::Tensor(kF32, {kStateHeads}, std::vector<double>{-2.0, -2.5});
  record.inputs["dt_bias"] = call::Tensor(kF32, {kStateHeads}, std::vector<double>{0.0, 0.5});
  return record;
}

call::Record attention_record(call::Mode mode, const std::string& model,
                              std::span<const Hidden> queries,
                              const std::vector<std::int64_t>& bounds) {
  call::Record record;
  record.op = call::Op::kAttention;
  record.mode = mode;
  record.inputs["q"] = projected(model + " q", call::DType::kBF16,
                                 {std::ssize(queries), kHeads * kGroup, kDim}, queries);
  record.inputs["cu_seqlens_q"] = call::integer_tensor(bounds);
  return record;
}

call::Record acceptance_record(const std::vector<std::int64_t>& starts,
                               const std::vector<std::int64_t>& drafts,
                               const std::vector<std::int64_t>& chosen) {
  const std::int64_t rows = std::ssize(starts);
  call::Record record;
  record.op = call::Op::kDraftAcceptance;
  record.mode = call::Mode::kGreedy;
  record.inputs["start"] = call::integer_tensor(starts);
  record.inputs["draft_tokens"] = call::integer_tensor(drafts, {rows, std::ssize(drafts) / rows});
  record.inputs["target_tokens"] = call::integer_tensor(chosen, {rows, std::ssize(chosen) / rows});
  record.inputs["stop_tokens"] = call::integer_tensor({kStop});
  return record;
}

std::vector<double> key_of(const std::string& model, const char* which, const Hidden& hidden) {
  return project(model + " " + which, kHeads * kDim, hidden);
}

}  // namespace goldenrule::test::loop
