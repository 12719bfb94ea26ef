// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/norm_search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <utility>

#include "reference/explain/capture.hpp"
#include "reference/explain/match.hpp"
#include "reference/explain/screening.hpp"
#include "reference/explain/search.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/kernels.hpp"

namespace goldenrule::delta {
namespace {

using call::QkNorm;
using Element = explain::ComparedOutput::Element;

constexpr std::int64_t kMostSteps = std::int64_t{1} << 26;
constexpr double kLowest = 1e-14, kHighest = 1e4;
constexpr int kDecades = 18, kSections = 20, kBisections = 16, kDigits = 4;
constexpr int kShown = 5;
constexpr double kTold = 2.0;  // a wider interval has no one number
constexpr double kChance = 1e-6;
constexpr std::array kForms{QkNorm::kRsqrtSumEps, QkNorm::kMaxNormEps, QkNorm::kNormPlusEps};

struct Norm {
  QkNorm form{};
  double eps = 0.0;
};

// The eps that pass, and the one among them that is said.
struct Passing {
  double low = 0.0, high = 0.0;
  std::string said;

  [[nodiscard]] bool is_told() const { return high <= kTold * low; }
};

std::string number(double x, int digits = 3) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, x);
  return text.data();
}

class NormSearch {
 public:
  explicit NormSearch(const explain::Capture& capture)
      : capture_(capture), declared_(capture.call.convention), matcher_(capture) {}

  [[nodiscard]] bool fails() const {
    return std::ranges::any_of(matcher_.outputs(), [](const explain::ComparedOutput& output) {
      return std::ranges::find(output.elements, Element::kFails) != output.elements.end();
    });
  }

  // Whether the outputs pass with some norm that is nearer than the declared one.
  [[nodiscard]] bool passes_any() const {
    const double right = distance({declared_.qk_l2norm, declared_.l2_eps});
    for (const QkNorm form : forms()) {
      const std::optional<Norm> best = nearest(form, right);
      if (!best && form == declared_.qk_l2norm) return false;
      // Budgets of another call may cost many runs of it.
      if (best && distance(*best) <= (1.0 - explain::kAccounted) * right && passing(*best)) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] std::vector<std::string> find() const {
    const double right = distance({declared_.qk_l2norm, declared_.l2_eps});
    if (!std::isfinite(right)) return {};
    std::vector<std::string> found;
    for (const QkNorm form : forms()) {
      const std::optional<Norm> best = nearest(form, right);
      if (!best && form == declared_.qk_l2norm) return {};
      if (!best || distance(*best) > (1.0 - explain::kAccounted) * right) continue;
      const std::optional<Passing> eps = passing(*best);
      if (!eps || (eps->low <= declared_.l2_eps && declared_.l2_eps <= eps->high)) continue;
      if (form != declared_.qk_l2norm && eps->low == 0.0) continue;  // with 0 all forms are one
      found.push_back(words(form, *eps));
      if (form == declared_.qk_l2norm && eps->is_told()) break;
    }
    return found;
  }

 private:
  // The declared one first.
  [[nodiscard]] std::vector<QkNorm> forms() const {
    std::vector<QkNorm> all{declared_.qk_l2norm};
    std::ranges::remove_copy(kForms, std::back_inserter(all), declared_.qk_l2norm);
    return all;
  }

  [[nodiscard]] call::Record with(const Norm& norm) const {
    call::Record changed = capture_.call;
    changed.convention.qk_l2norm = norm.form;
    changed.convention.l2_eps = norm.eps;
    return changed;
  }

  [[nodiscard]] call::TensorMap outputs_of(const Norm& norm) const {
    return verdict::exact_outputs(*capture_.slice, with(norm));
  }

  // The squared distance of the captured outputs, in budgets of the right call.
  [[nodiscard]] double distance(const Norm& norm) const {
    double sum = 0.0;
    const call::TensorMap predicted = outputs_of(norm);
    for (const explain::ComparedOutput& output : matcher_.outputs()) {
      const std::vector<double> p = predicted.at(output.name).to_doubles();
      for (std::size_t i = 0; i < output.captured.size(); ++i) {
        if (output.elements[i] == Element::kUndefined) continue;
        const double budget = static_cast<double>(output.in_budgets[i]);
        const double off = output.captured[i] - p[i];
        if (budget > 0.0) sum += off * off / (budget * budget);
      }
    }
    return sum;
  }

  // The eps with the least distance, by decades and then by golden section on its logarithm;
  // nothing where no decade, and neither half nor twice the declared eps, is nearer than `right`.
  [[nodiscard]] std::optional<Norm> nearest(QkNorm form, double right) const {
    const double decade = std::log(10.0);
    double best = 0.0, least = right;
    const auto probe = [&](double eps) {
      if (const double there = distance({form, eps}); there < least) {
        least = there;
        best = eps;
      }
    };
    for (int i = 0; i <= kDecades; ++i) probe(kLowest * std::pow(10.0, i));
    for (const double factor : {0.5, 1.0, 2.0}) probe(factor * declared_.l2_eps);
    if (best == 0.0) return std::nullopt;
    constexpr double kGolden = 0.6180339887498949;
    double low = std::log(best) - decade, high = std::log(best) + decade;
    double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
    double at_a = distance({form, std::exp(a)}), at_b = distance({form, std::exp(b)});
    for (int i = 0; i < kSections; ++i) {
      if (at_a < at_b) {
        high = std::exchange(b, a);
        at_b = at_a;
        at_a = distance({form, std::exp(a = high - kGolden * (high - low))});
      } else {
        low = std::exchange(a, b);
        at_a = at_b;
        at_b = distance({form, std::exp(b = low + kGolden * (high - low))});
      }
    }
    return Norm{form, std::exp(at_a < at_b ? a : b)};
  }

  // The eps around this one with which the outputs pass; nothing where it does not itself.
  [[nodiscard]] std::optional<Passing> passing(const Norm& norm) const {
    const call::Record changed = with(norm);
    const verdict::Expectations expected =
        verdict::expect(*capture_.slice, changed, *capture_.contract, scalar::Precision::kDouble);
    const auto passes = [&](double eps) {
      const call::TensorMap predicted = outputs_of({norm.form, eps});
      bool all = true;
      for (const auto& [name, captured] : capture_.outputs) {
        const verdict::Expected& own = expected.outputs.at(name);
        const verdict::Budget budget(name, captured.dtype(), own, *capture_.contract);
        for (std::int64_t i = 0; all && i < captured.size(); ++i) {
          const auto at = static_cast<std::size_t>(i);
          if (!own.exact.is_defined(at)) continue;
          const double p = predicted.at(name)[i], y = captured[i];
          all = std::isfinite(p)
                    ? std::fabs(y - p) <= budget(at) + static_cast<double>(own.exact.radius[at])
                    : !std::isfinite(y);
        }
      }
      return all;
    };
    double eps = norm.eps;
    std::string said;
    for (int digits = 1; digits <= kDigits && said.empty(); ++digits) {
      const std::string decimal = number(norm.eps, digits);
      eps = std::strtod(decimal.c_str(), nullptr);
      if (passes(eps)) said = decimal;
    }
    if (said.empty()) return std::nullopt;
    const auto end = [&](double beyond) {
      double inside = std::log(eps), outside = std::log(beyond);
      if (passes(beyond)) return beyond;
      for (int i = 0; i < kBisections; ++i) {
        const double middle = (inside + outside) / 2;
        (passes(std::exp(middle)) ? inside : outside) = middle;
      }
      return std::exp(inside);
    };
    return Passing{.low = passes(0.0) ? 0.0 : end(kLowest), .high = end(kHighest), .said = said};
  }

  [[nodiscard]] std::string words(QkNorm form, const Passing& eps) const {
    const bool other = form != declared_.qk_l2norm;
    std::string text = other
                           ? "the norm of q and k is " + std::string(call::name_of(form)) + ", eps "
                           : "eps of the norm of q and k is ";
    text += eps.low == 0.0  ? "at most " + number(eps.high)
            : eps.is_told() ? eps.said
                            : "from " + number(eps.low) + " to " + number(eps.high);
    text += ", declared ";
    if (other) text += std::string(call::name_of(declared_.qk_l2norm)) + ", eps ";
    text += number(declared_.l2_eps);
    return text + (eps.is_told() ? " (every element passes from " + number(eps.low, kShown) +
                                       " to " + number(eps.high, kShown) + ")"
                                 : " (every element passes)");
  }

  const explain::Capture& capture_;
  const call::Convention& declared_;
  explain::Matcher matcher_;
};

bool is_no_chance(const explain::Capture& capture) {
  double sum = 0.0, largest = 0.0;
  for (const auto& [name, captured] : capture.outputs) {
    const verdict::Expected& expected = capture.expected.outputs.at(name);
    const verdict::Budget budget(name, captured.dtype(), expected, *capture.contract);
    const std::vector<double> values = captured.to_doubles();
    std::vector<double> log_chance;  // of channels, up to the last that fails
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = std::fabs(values[i] - expected.exact.golden[i]);
      if (!expected.exact.is_defined(i) || !(error > 0.0)) continue;
      const double granted = budget(i);
      if (!(granted > 0.0) || !(error > granted)) continue;
      const std::size_t channel = expected.exact.channel(i);
      if (channel >= log_chance.size()) log_chance.resize(channel + 1);
      log_chance[channel] = std::min(log_chance[channel], std::log(granted / error));
    }
    for (const double chance : log_chance) {
      sum += chance;
      largest = std::min(largest, chance);
    }
  }
  return sum - largest <= std::log(kChance);
}

// Where the norm is another one, the outputs of a few value channels pass with it as well.
bool may_pass(const verdict::Judgement& judgement, const explain::Capture& capture) {
  const std::vector<explain::Failures> failures =
      explain::find_failures(judgement.record, judgement.contract, judgement.expected);
  const explain::Capture part = explain::few_lanes(capture, failures, calls::CutBy::kValues, 1);
  const NormSearch search(part);
  return !search.fails() || search.passes_any();  // what fails may be no value channel
}

}  // namespace

verdict::Searched find_norm(const verdict::Judgement& judgement) {
  const call::Record& record = judgement.record;
  if (record.convention.qk_l2norm == QkNorm::kNone) return {};
  const explain::Capture capture = explain::make_capture(judgement);
  if (explain::steps_of(capture) > kMostSteps) return {};
  if (!is_no_chance(capture) || !may_pass(judgement, capture)) return {};
  return {.texts = NormSearch(capture).find()};
}

}  // namespace goldenrule::delta
