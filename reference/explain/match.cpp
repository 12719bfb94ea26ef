// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/match.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/verdict/budget.hpp"

namespace goldenrule::explain {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Errors beyond this many budgets count as this many in the mean: one NaN is no reason to call all
// hypotheses equal.
constexpr double kFarOff = 1e6;

// What the elements that are predicted as unwritten hold.
struct Leftovers {
  bool constant = true;  // one number in all of them
  bool any_written = false;
};

Leftovers leftovers(const call::Tensor& output, const oracle::Expected& expected,
                    const PredictedOutput& predicted) {
  Leftovers found;
  std::optional<double> first;
  for (std::size_t i = 0; i < predicted.value.size(); ++i) {
    if (!expected.undefined.empty() && expected.undefined[i]) continue;
    if (!std::isnan(predicted.value[i])) {
      found.any_written = true;
      continue;
    }
    const double y = output[static_cast<std::int64_t>(i)];
    if (!std::isfinite(y)) continue;
    if (!first) first = y;
    found.constant = found.constant && y == *first;
  }
  return found;
}

struct Sums {
  double square = 0.0;
  std::int64_t compared = 0;
  double accounted = 0.0;  // over the blocks that fail
  std::int64_t blocks = 0;
};

// The failing elements of one row and head.
struct Block {
  double left = 0.0, before = 0.0;  // squared errors of the finite ones
  std::int64_t finite = 0, not_finite = 0, reproduced = 0;

  // Counts NaN and Inf as found or not, since they have no error.
  [[nodiscard]] double accounted() const {
    const double gone = before > 0.0 ? std::max(0.0, 1.0 - left / before) : 0.0;
    return (gone * static_cast<double>(finite) + static_cast<double>(reproduced)) /
           static_cast<double>(finite + not_finite);
  }
};

class TensorMatch {
 public:
  TensorMatch(const call::Tensor& output, const oracle::Expected& expected,
              const verdict::Budget& budget, const PredictedOutput& predicted)
      : output_(output),
        expected_(expected),
        budget_(budget),
        predicted_(predicted),
        leftovers_(leftovers(output, expected, predicted)) {}

  void add_to(Match& match, Sums& sums, std::size_t block_size) const {
    for (std::size_t first = 0; first < predicted_.value.size(); first += block_size) {
      Block block;
      for (std::size_t i = first; i < first + block_size; ++i) add_element(i, match, sums, block);
      if (block.finite + block.not_finite == 0) continue;
      sums.accounted += block.accounted();
      ++sums.blocks;
    }
  }

 private:
  void add_element(std::size_t i, Match& match, Sums& sums, Block& block) const {
    if (!expected_.undefined.empty() && expected_.undefined[i]) return;
    const double y = output_[static_cast<std::int64_t>(i)];
    const double golden = expected_.golden[i];
    const double right = budget_(i);
    const bool fails = !verdict::passes(y, expected_, i, right);
    const double ratio = ratio_of(i, y, fails, match);
    match.failing += ratio > 1.0 ? 1 : 0;
    match.ratio = std::max(match.ratio, ratio);
    // A guess or a NaN that is predicted leaves nothing.
    const double distance = ratio == 0.0 ? 0.0 : std::fabs(y - predicted_.value[i]);
    const double in_budgets = distance / (std::isfinite(right) ? right : 1.0);
    const double counted = std::isfinite(in_budgets) ? std::min(in_budgets, kFarOff) : kFarOff;
    sums.square += counted * counted;
    ++sums.compared;
    if (!fails) return;
    const double error = y - golden;
    if (std::isfinite(error) && std::isfinite(distance)) {
      // Scaled by the error, so that no power overflows where the values do.
      block.before += 1.0;
      block.left += distance / std::fabs(error) * (distance / std::fabs(error));
      ++block.finite;
    } else {
      ++block.not_finite;
      block.reproduced += ratio <= 1.0 ? 1 : 0;
    }
  }

  double ratio_of(std::size_t i, double y, bool fails, Match& match) const {
    const double p = predicted_.value[i];
    if (!std::isfinite(p)) {
      if (!std::isfinite(y)) return 0.0;
      if (std::isinf(p)) return kInfinity;
      ++match.guessed;
      return leftovers_.constant || (fails && leftovers_.any_written) ? 0.0 : kInfinity;
    }
    if (!std::isfinite(y)) return kInfinity;
    return std::fabs(y - p) / budget_.around(p, static_cast<double>(predicted_.spread[i]));
  }

  const call::Tensor& output_;
  const oracle::Expected& expected_;
  const verdict::Budget& budget_;
  const PredictedOutput& predicted_;
  const Leftovers leftovers_;
};

}  // namespace

Match match(const Capture& capture, const Prediction& prediction) {
  Match match;
  Sums sums;
  for (const auto& [name, output] : capture.outputs) {
    const oracle::Expected& expected = capture.expected.outputs.at(name);
    const verdict::Budget budget(name, output.dtype(), expected, *capture.contract);
    const std::int64_t before = match.failing;
    TensorMatch(output, expected, budget, prediction.outputs.at(name))
        .add_to(match, sums, block_size(expected.shape, name));
    match.failing_in[name] = match.failing - before;
  }
  if (sums.compared > 0) {
    match.residual = std::sqrt(sums.square / static_cast<double>(sums.compared));
  }
  if (sums.blocks > 0) match.accounted = sums.accounted / static_cast<double>(sums.blocks);
  return match;
}

Match match_right_call(const Capture& capture) {
  Prediction right;
  for (const auto& [name, e] : capture.expected.outputs) {
    PredictedOutput& output = right.outputs[name];
    const verdict::Budget budget(name, capture.outputs.at(name).dtype(), e, *capture.contract);
    output.value = e.golden;
    output.spread.resize(e.golden.size());
    for (std::size_t i = 0; i < e.golden.size(); ++i) {
      output.spread[i] = static_cast<float>(budget.spread(i)) + e.radius[i];
    }
  }
  return match(capture, right);
}

bool same_outputs(const Capture& capture, const Prediction& a, const Prediction& b) {
  constexpr double kSame = 1e-3;
  for (const auto& [name, output] : capture.outputs) {
    const oracle::Expected& e = capture.expected.outputs.at(name);
    const verdict::Budget budget(name, output.dtype(), e, *capture.contract);
    const std::vector<double>& x = a.outputs.at(name).value;
    const std::vector<double>& y = b.outputs.at(name).value;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!e.undefined.empty() && e.undefined[i]) continue;
      if (std::isfinite(x[i]) != std::isfinite(y[i])) return false;
      if (std::isfinite(x[i]) && !(std::fabs(x[i] - y[i]) <= kSame * budget(i))) return false;
    }
  }
  return true;
}

}  // namespace goldenrule::explain
