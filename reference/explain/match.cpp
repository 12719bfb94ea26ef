// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/match.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/calls/unwritten.hpp"
#include "reference/explain/shares.hpp"
#include "reference/scalar/infinity.hpp"

namespace goldenrule::explain {
namespace {

using Element = ComparedOutput::Element;
using Nonfinite = ComparedOutput::Nonfinite;

// Errors beyond this many budgets count as this many in the mean: one NaN is no reason to call all
// hypotheses equal.
constexpr double kFarOff = 1e6;
// Elements that one job compares: enough to be worth a thread.
constexpr std::size_t kPerJob = 1 << 14;

// What is believed of finite elements that are predicted as unwritten.
enum class Leftovers { kNothing, kConstant, kJunk };

// What adds up over the elements of a capture.
struct Sums {
  double ratio = 0.0;
  double square = 0.0;
  std::int64_t compared = 0, failing = 0, guessed = 0, excused = 0, unbounded = 0;
  double accounted = 0.0;  // over the blocks that fail
  std::int64_t blocks = 0;

  void add(const Sums& other) {
    ratio = std::max(ratio, other.ratio);
    square += other.square;
    compared += other.compared;
    failing += other.failing;
    guessed += other.guessed;
    excused += other.excused;
    unbounded += other.unbounded;
    accounted += other.accounted;
    blocks += other.blocks;
  }
};

class Comparison {
 public:
  Comparison(const ComparedOutput& output, const PredictedOutput& predicted)
      : output_(output), predicted_(predicted), leftovers_(leftovers()) {}

  void add_to(Sums& sums) const {
    const std::size_t blocks = output_.captured.size() / output_.block;
    const std::size_t per_job = std::max<std::size_t>(kPerJob / output_.block, 1);
    std::vector<Sums> parts((blocks + per_job - 1) / per_job);
    parallel::for_each_index(std::ssize(parts), [&](std::int64_t job) {
      const std::size_t first = static_cast<std::size_t>(job) * per_job;
      for (std::size_t b = first; b < std::min(first + per_job, blocks); ++b) {
        add_block(b * output_.block, parts[static_cast<std::size_t>(job)]);
      }
    });
    for (const Sums& part : parts) sums.add(part);
  }

 private:
  void add_block(std::size_t first, Sums& sums) const {
    ErrorShare share;
    for (std::size_t i = first; i < first + output_.block; ++i) {
      if (output_.elements[i] != Element::kUndefined) add_element(i, sums, share);
    }
    if (share.count() == 0) return;
    sums.accounted += share.accounted();
    ++sums.blocks;
  }

  void add_element(std::size_t i, Sums& sums, ErrorShare& share) const {
    const double y = output_.captured[i];
    const double p = predicted_.value[i];
    const bool both_finite = std::isfinite(y) && std::isfinite(p);
    const bool reproduced =
        both_finite ? add_ratio(i, std::fabs(y - p), p, sums) : reproduces_nonfinite(i, y, p, sums);
    sums.failing += reproduced ? 0 : 1;
    // A guess or a NaN that is predicted leaves nothing.
    const double distance = !both_finite && reproduced ? 0.0 : std::fabs(y - p);
    const double in_budgets = distance / static_cast<double>(output_.in_budgets[i]);
    const double counted = std::isfinite(in_budgets) ? std::min(in_budgets, kFarOff) : kFarOff;
    sums.square += counted * counted;
    ++sums.compared;
    if (output_.elements[i] != Element::kFails) return;
    if (both_finite && !std::isfinite(predicted_.spread[i])) {
      ++sums.unbounded;
      share.add_unaccounted();
      return;
    }
    share.add(y - output_.expected->exact.golden[i], distance, reproduced);
  }

  // The budget is at least the spread: most ratios need not be known to know the largest.
  bool add_ratio(std::size_t i, double distance, double p, Sums& sums) const {
    const auto spread = static_cast<double>(predicted_.spread[i]);
    if (!std::isfinite(spread)) return true;
    if (distance <= std::min(sums.ratio, 1.0) * spread) return true;
    const double ratio = distance / output_.budget.around(i, p, spread);
    sums.ratio = std::max(sums.ratio, ratio);
    return ratio <= 1.0;
  }

  bool reproduces_nonfinite(std::size_t i, double y, double p, Sums& sums) const {
    bool reproduced = false;
    switch (output_.nonfinite(i, y, p, predicted_)) {
      case Nonfinite::kOther:
        break;
      case Nonfinite::kSame:
        reproduced = true;
        break;
      case Nonfinite::kExcused:
        reproduced = true;
        ++sums.excused;
        break;
      case Nonfinite::kLeft:
        reproduced = leftovers_ == Leftovers::kConstant ||
                     (leftovers_ == Leftovers::kJunk && output_.elements[i] == Element::kFails);
        sums.guessed += reproduced ? 1 : 0;
        break;
    }
    if (!reproduced) sums.ratio = kInfinity;
    return reproduced;
  }

  [[nodiscard]] Leftovers leftovers() const {
    Leftover unwritten;
    for (std::size_t i = 0; i < predicted_.value.size(); ++i) {
      if (is_left(i)) unwritten.add(output_.captured[i], output_.expected->exact.golden[i]);
    }
    if (unwritten.count == 0) return Leftovers::kNothing;
    if (unwritten.is_constant()) return Leftovers::kConstant;
    return !unwritten.resembles_results() && reproduces_the_rest() ? Leftovers::kJunk
                                                                   : Leftovers::kNothing;
  }

  // Finite, where nothing is predicted to be written.
  [[nodiscard]] bool is_left(std::size_t i) const {
    return output_.elements[i] != Element::kUndefined && calls::is_unwritten(predicted_.value[i]) &&
           std::isfinite(output_.captured[i]);
  }

  // Something finite is predicted, and all that is predicted beside the leftovers is reproduced.
  [[nodiscard]] bool reproduces_the_rest() const {
    bool any = false;
    Sums sums;
    for (std::size_t i = 0; i < predicted_.value.size(); ++i) {
      if (output_.elements[i] == Element::kUndefined || is_left(i)) continue;
      const double y = output_.captured[i];
      const double p = predicted_.value[i];
      const bool reproduced = std::isfinite(y) && std::isfinite(p)
                                  ? add_ratio(i, std::fabs(y - p), p, sums)
                                  : reproduces_nonfinite(i, y, p, sums);
      if (!reproduced) return false;
      any = any || std::isfinite(p);
    }
    return any;
  }

  const ComparedOutput& output_;
  const PredictedOutput& predicted_;
  const Leftovers leftovers_ = Leftovers::kNothing;
};

}  // namespace

ComparedOutput::ComparedOutput(const std::string& output_name, const call::Tensor& output,
                               const verdict::Expected& of_right_call,
                               const contract::Contract& contract)
    : name(output_name),
      type(output.dtype()),
      expected(&of_right_call),
      budget(output_name, output.dtype(), of_right_call, contract),
      block(block_size(of_right_call.exact.shape, output_name)),
      captured(output.to_doubles()),
      in_budgets(captured.size()),
      elements(captured.size(), Element::kUndefined) {
  for (std::size_t i = 0; i < captured.size(); ++i) {
    if (!expected->exact.is_defined(i)) continue;
    const double right = budget(i);
    in_budgets[i] = std::isfinite(right) ? static_cast<float>(right) : 1.0F;
    if (!verdict::is_bounded(*expected, i, right)) continue;
    elements[i] =
        verdict::passes(captured[i], *expected, i, right) ? Element::kPasses : Element::kFails;
  }
}

ComparedOutput::Nonfinite ComparedOutput::nonfinite(std::size_t i, double y, double p,
                                                    const PredictedOutput& predicted) const {
  if (std::isfinite(p)) {
    // The prediction is made in double: what the capture's type cannot hold overflowed there.
    const double largest = std::fabs(p) + static_cast<double>(predicted.spread[i]);
    const bool may = (!predicted.may_overflow.empty() && predicted.may_overflow[i]) ||
                     !std::isfinite(call::round_to(type, largest));
    return may ? Nonfinite::kExcused : Nonfinite::kOther;
  }
  if (calls::is_unwritten(p)) return std::isfinite(y) ? Nonfinite::kLeft : Nonfinite::kSame;
  const bool computed_nan = std::isnan(p) && elements[i] != Element::kPasses;
  return (computed_nan ? std::isnan(y) : !std::isfinite(y)) ? Nonfinite::kSame : Nonfinite::kOther;
}

Matcher::Matcher(const Capture& capture) {
  for (const auto& [name, output] : capture.outputs) {
    outputs_.emplace_back(name, output, capture.expected.outputs.at(name), *capture.contract);
  }
}

Match Matcher::match(const Prediction& prediction) const {
  Sums sums;
  bool breaks_right = false;
  for (const ComparedOutput& output : outputs_) {
    const std::int64_t before = sums.failing;
    Comparison(output, prediction.outputs.at(output.name)).add_to(sums);
    breaks_right = breaks_right || (sums.failing > before && output.is_right());
  }
  Match match{.ratio = sums.ratio,
              .failing = sums.failing,
              .guessed = sums.guessed,
              .excused = sums.excused,
              .unbounded = sums.unbounded,
              .breaks_right = breaks_right};
  if (sums.compared > 0) {
    match.residual = std::sqrt(sums.square / static_cast<double>(sums.compared));
  }
  if (sums.blocks > 0) match.accounted = sums.accounted / static_cast<double>(sums.blocks);
  return match;
}

bool Matcher::reproduces(const std::string& name, std::size_t i, const PredictedOutput& predicted,
                         std::size_t from) const {
  const ComparedOutput& output = *std::ranges::find(outputs_, name, &ComparedOutput::name);
  if (output.elements[i] == Element::kUndefined) return true;
  if (output.elements[from] == Element::kUndefined) return false;
  const double y = output.captured[i];
  const double p = predicted.value[from];
  if (!std::isfinite(y) || !std::isfinite(p)) return !std::isfinite(y) && !std::isfinite(p);
  const auto spread = static_cast<double>(predicted.spread[from]);
  return !std::isfinite(spread) || std::fabs(y - p) <= output.budget.around(i, p, spread);
}

Prediction Matcher::right_call() const {
  Prediction right;
  for (const ComparedOutput& output : outputs_) {
    PredictedOutput& predicted = right.outputs[output.name];
    predicted.value = output.expected->exact.golden;
    predicted.spread.resize(predicted.value.size());
    for (std::size_t i = 0; i < predicted.value.size(); ++i) {
      predicted.spread[i] =
          static_cast<float>(output.budget.spread(i)) + output.expected->exact.radius[i];
    }
  }
  return right;
}

bool Matcher::same_outputs(const Prediction& a, const Prediction& b, double budgets) const {
  for (const ComparedOutput& output : outputs_) {
    const std::vector<double>& x = a.outputs.at(output.name).value;
    const std::vector<double>& y = b.outputs.at(output.name).value;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (output.elements[i] == Element::kUndefined) continue;
      if (std::isfinite(x[i]) != std::isfinite(y[i])) return false;
      const double allowed = budgets * static_cast<double>(output.in_budgets[i]);
      if (std::isfinite(x[i]) && !(std::fabs(x[i] - y[i]) <= allowed)) return false;
    }
  }
  return true;
}

}  // namespace goldenrule::explain
