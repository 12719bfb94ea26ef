// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/case_judge.hpp"

#include <algorithm>
#include <cmath>

#include "reference/suites/slices.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/kernels.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::suites {
namespace {

constexpr std::uint64_t kEmulationSeed = 1;

}  // namespace

CaseJudge::CaseJudge(const call::Record& record, const contract::Contract& contract)
    : record_(record),
      contract_(contract),
      slice_(slice_of(record.op)),
      exact_(verdict::exact_kernel(slice_)),
      expected_(verdict::expect(slice_, record, contract, scalar::Precision::kDouble)) {}

call::TensorMap CaseJudge::exact_outputs() const {
  return calls::stored(record_, contract_, exact_(record_));
}

call::TensorMap CaseJudge::emulated_outputs() const {
  return calls::stored(record_, contract_, slice_.emulate(record_, contract_, kEmulationSeed));
}

Finding CaseJudge::judge(const call::TensorMap& outputs) const {
  Finding found;
  verdict::Expectations settled;
  if (slice_.settle != nullptr) {
    settled = expected_;
    slice_.settle(record_, outputs, settled);
  }
  const verdict::Expectations& expected = slice_.settle == nullptr ? expected_ : settled;
  for (const auto& [name, tensor] : outputs) {
    const auto report = verdict::judge(name, tensor, expected.outputs.at(name), contract_);
    found.out_of_budget += report.out_of_budget;
    found.compared += report.compared;
    if (report.max_ratio > found.max_ratio) {
      found.max_ratio = report.max_ratio;
      found.worst_tensor = name;
    }
  }
  return found;
}

Finding CaseJudge::commit(const calls::Mistake& mistake) const {
  const call::TensorMap wrong = mistake.commit(record_, exact_);
  const call::TensorMap outputs = calls::stored(record_, contract_, wrong);
  Finding found = judge(outputs);
  if (found.out_of_budget == 0) found.max_ratio = deviation(wrong, outputs);
  return found;
}

// What the mistake alone takes of the budget: before storage, whose rounding may fill it up.
double CaseJudge::deviation(const call::TensorMap& wrong, const call::TensorMap& outputs) const {
  double largest = 0.0;
  for (const auto& [name, tensor] : wrong) {
    const verdict::Expected& expected = expected_.outputs.at(name);
    const verdict::Budget budget(name, outputs.at(name).dtype(), expected, contract_);
    if (!budget.given()) continue;
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!expected.exact.is_defined(at)) continue;
      const double error = std::fabs(tensor[i] - expected.exact.golden[at]);
      if (std::isfinite(error)) {
        largest = std::max(largest, verdict::ratio_of(error, budget(at)));
      }
    }
  }
  return largest;
}

}  // namespace goldenrule::suites
