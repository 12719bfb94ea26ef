// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/permits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/verdict/budget.hpp"

namespace goldenrule::explain {
namespace {

using contract::Contract;
using verdict::Verdict;

// The sum over the outputs of log rms budget; nothing where some output is not within it. Replaces
// the grants in `expected`.
std::optional<double> width_if_kept(const verdict::Judgement& judged, const Contract& contract,
                                    verdict::Expectations& expected) {
  judged.slice->grant(judged.record, contract, verdict::GrantDetail::kSpread, expected);
  double width = 0.0;
  for (const auto& [name, output] : judged.record.outputs) {
    const verdict::Expected& e = expected.outputs.at(name);
    if (!is_pass(verdict::judge(name, output, e, contract).verdict)) return std::nullopt;
    const verdict::Budget budget(name, output.dtype(), e, contract);
    double square = 0.0;
    for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
      if (!std::isfinite(e.exact.golden[i])) continue;
      const double b = budget(i);
      square += b * b;
    }
    width += 0.5 * std::log(std::max(square, std::numeric_limits<double>::min()));
  }
  return width;
}

// The one point of `permitting` that the contract of `judged` lacks; of several the one that grants
// least.
std::string single_difference(const verdict::Judgement& judged, const Contract& permitting,
                              verdict::Expectations& expected) {
  const Contract& given = judged.contract;
  const auto permitted = permitting.roundings();
  const std::size_t points = std::min(given.roundings().size(), permitted.size());
  std::string found;
  double least = 0.0;
  for (std::size_t i = 0; i < points; ++i) {
    if (contract::unit_of(permitted[i]) <= contract::unit_of(given.roundings()[i])) continue;
    Contract wider = given;
    wider.roundings()[i] = permitted[i];
    const std::optional<double> width = width_if_kept(judged, wider, expected);
    if (!width || (!found.empty() && *width >= least)) continue;
    found = std::string(contract::point_name(i)) + " in " +
            std::string(contract::info(*permitted[i]).name);
    least = *width;
  }
  return found;
}

}  // namespace

std::optional<Permit> tightest_permit(const verdict::Judgement& judged, double most_seconds) {
  const call::Record& record = judged.record;
  verdict::Expectations expected = judged.expected;
  const Contract* best = nullptr;
  double best_width = 0.0, seconds = 0.0;
  for (const Contract& contract : contract::contracts_of(call::family_of(record.op))) {
    if (contract.chunked() != nullptr && record.mode != call::Mode::kPrefill) continue;
    if (judged.slice->grant_seconds != nullptr) {
      seconds += judged.slice->grant_seconds(record, contract);
    }
    if (seconds > most_seconds) return std::nullopt;
    const std::optional<double> width = width_if_kept(judged, contract, expected);
    if (!width || (best != nullptr && *width >= best_width)) continue;
    best = &contract;
    best_width = *width;
  }
  if (best == nullptr || best->name == judged.contract.name) return std::nullopt;
  return Permit{.contract = best->name,
                .meaning = best->meaning,
                .difference = single_difference(judged, *best, expected)};
}

bool is_far_within(const verdict::CaseReport& report) {
  constexpr double kFarSum = 0.01;
  const auto is_exact = [](const verdict::TensorReport& t) { return t.verdict == Verdict::kExact; };
  return !std::ranges::all_of(report.tensors, is_exact) &&
         std::ranges::all_of(report.tensors, [&](const verdict::TensorReport& t) {
           return is_pass(t.verdict) && (is_exact(t) || t.max_ratio < kFarSum);
         });
}

}  // namespace goldenrule::explain
