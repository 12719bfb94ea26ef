// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/ties.hpp"

#include <algorithm>

#include "reference/explain/oracle_kernel.hpp"
#include "reference/explain/perturbed.hpp"

namespace goldenrule::explain {
namespace {

constexpr std::uint64_t kSeed = 0x74696573U;
constexpr double kUnits = 8.0;       // of roundoff
constexpr double kFinest = 0x1p-20;  // contracts that round to more than this are not fp32
constexpr double kWider = 2.0;
constexpr std::int64_t kOneIn = 2;  // elements that only the rounding reproduces may be left

call::Record arithmetic_errs(const Capture& capture, int run) {
  const double u = kUnits * first_rounding(*capture.contract);
  const std::uint64_t seed = kSeed + static_cast<std::uint64_t>(run);
  call::Record changed = perturbed(capture.call, {"v", "a", "g", "b", "beta"}, u, seed);
  if (capture.call.convention.qk_l2norm == call::QkNorm::kNone) return changed;
  return perturbed(changed, {"q", "k"}, u, seed);
}

// The capture as run `run` of the mistake would have made it.
std::optional<Capture> recaptured(const Capture& capture, const Hypothesis& hypothesis, int run) {
  OracleKernel kernel(*capture.slice, nullptr);
  const auto outputs = commit_all(capture, hypothesis, arithmetic_errs(capture, run),
                                  [&](const call::Record& changed) { return kernel(changed, {}); });
  if (!outputs) return std::nullopt;
  Capture made = capture;
  for (auto& [name, output] : made.outputs) {
    const call::Tensor& computed = outputs->at(name);
    output = call::Tensor(output.dtype(), computed.shape(), computed.to_doubles());
  }
  return made;
}

// Elements that are not reproduced without the roundings of the hypothesis.
std::int64_t left_without_roundings(const Predictor& predictor, const Matcher& matcher,
                                    Hypothesis hypothesis) {
  std::erase_if(hypothesis, [](const auto* m) { return m->rounds; });
  if (hypothesis.empty()) return matcher.match_right_call().failing;
  const auto other = predictor.predict(hypothesis, SpreadBy::kKernel);
  return other ? matcher.match(*other).failing : 0;
}

}  // namespace

bool only_ties_left(const Capture& capture, const Predictor& predictor, const Matcher& matcher,
                    const Hypothesis& hypothesis, const Prediction& prediction,
                    const Match& match) {
  const double u = first_rounding(*capture.contract);
  const bool rounds = std::ranges::any_of(hypothesis, [](const auto* m) { return m->rounds; });
  if (!rounds || u == 0.0 || u > kFinest) return false;
  const std::int64_t without = left_without_roundings(predictor, matcher, hypothesis);
  if (match.failing > without / kOneIn) return false;
  Match most;
  double left = 0.0;
  for (int run = 0; run < kTieRuns; ++run) {
    const auto made = recaptured(capture, hypothesis, run);
    if (!made) return false;
    const Match m = Matcher(*made).match(prediction);
    most.failing = std::max(most.failing, m.failing);
    most.ratio = std::max(most.ratio, m.ratio);
    left = std::max(left, 1.0 - m.accounted);
  }
  return static_cast<double>(match.failing) <= kWider * static_cast<double>(most.failing) &&
         match.ratio <= kWider * most.ratio && 1.0 - match.accounted <= kWider * kWider * left;
}

}  // namespace goldenrule::explain
