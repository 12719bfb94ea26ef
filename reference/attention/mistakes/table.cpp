// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "reference/attention/mistakes/mistake.hpp"

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
  outputs["o"] = call::Tensor(call::DType::kF64, {d.total_q, d.HV, d.V});
  outputs["lse"] = call::Tensor(call::DType::kF64, lse_shape(plan));
  for (std::int64_t i = 0; i < outputs["lse"].size(); ++i) outputs["lse"].set(i, 1.0);
  return outputs;
}

}  // namespace

std::span<const Mistake> mistakes() {
  static const std::vector<Mistake> kAll = [] {
    std::vector<Mistake> all;
    for (const auto part : {mask_mistakes(), key_mistakes(), number_mistakes()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return kAll;
}

bool applies(const Mistake& mistake, const Call& call) {
  const Plan plan = make_plan(call);
  if (mistake.change != nullptr) {
    Work work{call, call.record, plan};
    mistake.change(work);
    if (work.plan != plan || !same_inputs(work.record, call.record)) return true;
  }
  if (mistake.after == nullptr) return false;
  call::TensorMap outputs = blank_outputs(plan);
  return mistake.after(plan, outputs);
}

call::TensorMap commit(const Mistake& mistake, const Call& call, const PlanKernel& kernel) {
  Work work{call, call.record, make_plan(call)};
  if (mistake.change != nullptr) mistake.change(work);
  call::TensorMap outputs = kernel(work.record, work.plan);
  if (mistake.after != nullptr) mistake.after(work.plan, outputs);
  return outputs;
}

}  // namespace goldenrule::attention
