// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "reference/attention/mistakes/mistake.hpp"
#include "reference/attention/mistakes/plain_call.hpp"

namespace goldenrule::attention {
namespace {

bool same_inputs(const call::Record& a, const call::Record& b) {
  if (a.inputs.size() != b.inputs.size()) return false;
  return std::ranges::equal(a.inputs, b.inputs, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.dtype() == y.second.dtype() &&
           x.second.shape() == y.second.shape() &&
           std::ranges::equal(x.second.bytes(), y.second.bytes());
  });
}

// An output of the right type and shape for `after` to change.
call::TensorMap blank_outputs(const Plan& plan) {
  const Dims& d = plan.dims;
  call::TensorMap outputs;
  outputs["o"] = call::Tensor(call::DType::kF64, {d.tokens, d.HV, d.V});
  outputs["lse"] = call::Tensor(call::DType::kF64, lse_shape(plan));
  for (std::int64_t i = 0; i < outputs["lse"].size(); ++i) outputs["lse"].set(i, 1.0);
  return outputs;
}

}  // namespace

std::span<const calls::Mistake> mistakes() {
  static const std::vector<calls::Mistake> kAll = [] {
    std::vector<calls::Mistake> all;
    for (const auto part :
         {mask_mistakes(), key_mistakes(), number_mistakes(), position_mistakes()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return kAll;
}

bool changes(Change change, const call::Record& record) {
  const Plan plan = make_plan(record);
  Work work{record, record, plan};
  change(work);
  return work.plan != plan || !same_inputs(work.record, record);
}

bool changes(After after, const call::Record& record) {
  const Plan plan = make_plan(record);
  call::TensorMap outputs = blank_outputs(plan);
  return after(record, plan, outputs);
}

call::TensorMap commit(Change change, const call::Record& record, const calls::Kernel& kernel) {
  Work work{record, record, make_plan(record)};
  change(work);
  return kernel(call_of(work.record, work.plan));
}

call::TensorMap commit(After after, const call::Record& record, const calls::Kernel& kernel) {
  call::TensorMap outputs = kernel(record);
  after(record, make_plan(record), outputs);
  return outputs;
}

}  // namespace goldenrule::attention
