// SPDX-License-Identifier: Apache-2.0
//
// Small calls of draft acceptance, written by hand.
#pragma once

#include <initializer_list>
#include <limits>
#include <vector>

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/call/record.hpp"

namespace goldenrule::drafts::test {

inline call::Tensor f32(const std::vector<double>& values, call::Shape shape) {
  return {call::DType::kF32, std::move(shape), values};
}

/// One row with 3 drafts, 5 6 7, behind 10 tokens.
inline call::Record greedy(const std::vector<std::int64_t>& targets) {
  call::Record r;
  r.op = call::Op::kDraftAcceptance;
  r.mode = call::Mode::kGreedy;
  r.convention.page_size = 4;
  r.inputs["start"] = call::integer_tensor({10});
  r.inputs["draft_tokens"] = call::integer_tensor({5, 6, 7}, {1, 3});
  r.inputs["target_tokens"] = call::integer_tensor(targets, {1, 4});
  return r;
}

/// One row with one draft, token 1 of 4, and p and q at it.
inline call::Record rejection(const std::vector<double>& p, const std::vector<double>& q, double u,
                              double recover) {
  call::Record r;
  r.op = call::Op::kDraftAcceptance;
  r.mode = call::Mode::kRejection;
  r.inputs["start"] = call::integer_tensor({10});
  r.inputs["draft_tokens"] = call::integer_tensor({1}, {1, 1});
  std::vector<double> both = p;
  for (const double bonus : {0.25, 0.25, 0.25, 0.25}) both.push_back(bonus);
  r.inputs["target_probs"] = f32(both, {1, 2, 4});
  r.inputs["draft_probs"] = f32(q, {1, 1, 4});
  r.inputs["uniforms"] = f32({u}, {1, 1});
  r.inputs["recover_uniforms"] = f32({recover}, {1});
  return r;
}

}  // namespace goldenrule::drafts::test
