// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/permits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/verdict/budget.hpp"

namespace goldenrule::explain {
namespace {

using bounds::Contract;
using verdict::Verdict;

bool passes(const verdict::CaseReport& report) {
  return std::ranges::all_of(report.tensors, [](const verdict::TensorReport& t) {
    return t.verdict == Verdict::kExact || t.verdict == Verdict::kWithinBudget;
  });
}

// The sum over the outputs of log rms budget; nothing where some output is not within it.
std::optional<double> width_if_kept(const call::Record& record, const Contract& contract) {
  const verdict::Judgement judgement =
      verdict::judgement(record, contract, scalar::Precision::kDouble);
  if (!passes(judgement.report)) return std::nullopt;
  double width = 0.0;
  for (const auto& [name, output] : record.outputs) {
    const oracle::Expected& expected = judgement.evaluation.outputs.at(name);
    const verdict::Budget budget(name, output.dtype(), expected, contract);
    double square = 0.0;
    for (std::size_t i = 0; i < expected.golden.size(); ++i) {
      if (!std::isfinite(expected.golden[i])) continue;
      const double b = budget(i);
      square += b * b;
    }
    width += 0.5 * std::log(std::max(square, std::numeric_limits<double>::min()));
  }
  return width;
}

// The one point of `permitting` that `judged` lacks; of several the one that grants least.
std::string single_difference(const call::Record& record, const Contract& judged,
                              const Contract& permitting) {
  if (judged.kind == bounds::Kind::kIdeal) return "";
  const std::size_t points =
      judged.kind == bounds::Kind::kChunked ? bounds::kPoints : bounds::kActivations;
  std::string found;
  double least = 0.0;
  for (std::size_t i = 0; i < points; ++i) {
    const auto point = static_cast<bounds::Point>(i);
    if (permitting.unit_at(point) <= judged.unit_at(point)) continue;
    Contract wider = judged;
    wider.rounding[i] = permitting.rounding[i];
    const std::optional<double> width = width_if_kept(record, wider);
    if (!width || (!found.empty() && *width >= least)) continue;
    found = std::string(bounds::name_of(point)) + " in " +
            std::string(bounds::info(*permitting.rounding[i]).name);
    least = *width;
  }
  return found;
}

}  // namespace

std::optional<Permit> tightest_permit(const call::Record& record, const Contract& judged) {
  const call::Dims d = call::validate(record);
  if (d.tokens * d.HV * d.state_size() > kPermitSteps) return std::nullopt;
  const Contract* best = nullptr;
  double best_width = 0.0;
  for (const Contract& contract : bounds::contracts()) {
    if (contract.kind == bounds::Kind::kChunked && record.mode != call::Mode::kPrefill) continue;
    const std::optional<double> width = width_if_kept(record, contract);
    if (!width || (best != nullptr && *width >= best_width)) continue;
    best = &contract;
    best_width = *width;
  }
  if (best == nullptr || best->name == judged.name) return std::nullopt;
  return Permit{.contract = best->name,
                .meaning = best->meaning,
                .difference = single_difference(record, judged, *best)};
}

bool is_far_within(const verdict::CaseReport& report) {
  constexpr double kFar = 0.01;
  return passes(report) && std::ranges::all_of(report.tensors, [](const auto& t) {
           return t.verdict == Verdict::kExact || t.max_ratio < kFar;
         });
}

}  // namespace goldenrule::explain
