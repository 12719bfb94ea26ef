// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/scatter.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "reference/explain/oracle_kernel.hpp"
#include "reference/explain/perturbed.hpp"
#include "reference/explain/reach.hpp"
#include "reference/scalar/infinity.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::explain {
namespace {

constexpr std::uint64_t kScatterSeed = 0x7363617474657200U;

using Squares = std::map<std::string, std::vector<double>>;

// Of a number of runs, per element.
struct Errors {
  Squares squares, sums;
};

// Visits the outputs of each run.
class Runs {
 public:
  Runs(const Capture& capture, const Hypothesis& hypothesis)
      : capture_(capture), hypothesis_(hypothesis), u_(first_rounding(*capture.contract)) {}

  [[nodiscard]] std::optional<call::TensorMap> run(int index) const {
    OracleKernel kernel(*capture_.slice, nullptr);
    return commit_all(capture_, hypothesis_,
                      perturbed(capture_.call, {"q", "k", "v"}, u_,
                                kScatterSeed + static_cast<std::uint64_t>(index)),
                      [&](const call::Record& changed) { return kernel(changed, {}); });
  }

 private:
  const Capture& capture_;
  const Hypothesis& hypothesis_;
  const double u_;
};

double error_of(const call::Tensor& run, const verdict::Expected& e, std::size_t i) {
  const double error = run[static_cast<std::int64_t>(i)] - e.exact.golden[i];
  return std::isfinite(error) ? error : kInfinity;  // a run that is not finite errs without bound
}

Errors no_errors(const Capture& capture) {
  Errors errors;
  for (const auto& [name, e] : capture.expected.outputs) {
    errors.squares[name].resize(e.exact.golden.size());
    errors.sums[name].resize(e.exact.golden.size());
  }
  return errors;
}

// Those of the runs from `first` on; false where there are none.
bool add_errors(const Capture& capture, const Runs& runs, int first, int last, Errors& errors) {
  for (int index = first; index < last; ++index) {
    const auto outputs = runs.run(index);
    if (!outputs) return false;
    for (auto& [name, square] : errors.squares) {
      const verdict::Expected& e = capture.expected.outputs.at(name);
      std::vector<double>& sum = errors.sums.at(name);
      for (std::size_t i = 0; i < square.size(); ++i) {
        const double error = error_of(outputs->at(name), e, i);
        square[i] += error * error;
        sum[i] += error;
      }
    }
  }
  return true;
}

// Pearson's correlation.
double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() < 4) return 0.0;
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0.0;
  double xx = 0.0;
  double yy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xx > 0.0 && yy > 0.0 ? xy / std::sqrt(xx * yy) : 0.0;
}

// sigma of the elements of one row and head of an output, from the squared errors of `runs` runs
// less those of one of them.
class BlockSigma {
 public:
  BlockSigma(const std::vector<double>& square, std::size_t first, std::size_t size, int runs)
      : square_(square), runs_(runs) {
    for (std::size_t i = first; i < first + size; ++i) mean_ += square[i];
    mean_ /= static_cast<double>(size);
  }

  [[nodiscard]] double operator()(std::size_t i) const {
    return std::sqrt(0.5 * (square_[i] + mean_) / runs_);
  }
  [[nodiscard]] double rms() const { return std::sqrt(mean_ / runs_); }

 private:
  const std::vector<double>& square_;
  const int runs_;
  double mean_ = 0.0;
};

class ScatterMatcher {
 public:
  ScatterMatcher(const Capture& capture, const Errors& errors, int runs)
      : capture_(capture),
        squares_(errors.squares),
        sums_(errors.sums),
        runs_(runs),
        growth_(static_cast<std::size_t>(call::validate(capture.call).HV), 1.0),
        reach_(capture.call, capture.outputs) {
    for (const auto& [name, square] : squares_) grow(name, square);
  }

  ScatterMatch match() {
    for (const auto& [name, square] : squares_) {
      const call::Tensor& output = capture_.outputs.at(name);
      match_.ratio = std::max(match_.ratio, ratio(name, output, square, runs_));
      compare_profile(name, output, square);
    }
    match_.profile = correlation(log_errors_, log_sigmas_);
    match_.blocks = std::ssize(log_errors_);
    match_.number = expected_ > 0.0 ? failing_ / expected_ : kInfinity;
    match_.reach = reach_.share();
    if (!log_errors_.empty()) match_.common = common_ / static_cast<double>(log_errors_.size());
    return match_;
  }

  // The ratio of each run against the others.
  double largest_of(const Runs& runs) const {
    double largest = 1.0;
    for (int index = 0; index < runs_; ++index) {
      const auto outputs = runs.run(index);
      if (!outputs) break;
      for (const auto& [name, square] : squares_) {
        const verdict::Expected& e = capture_.expected.outputs.at(name);
        std::vector<double> others = square;
        for (std::size_t i = 0; i < others.size(); ++i) {
          const double own = error_of(outputs->at(name), e, i);
          others[i] = std::isfinite(others[i]) ? std::max(others[i] - own * own, 0.0) : others[i];
        }
        const double r = ratio(name, outputs->at(name), others, runs_ - 1);
        if (std::isfinite(r)) largest = std::max(largest, r);
      }
    }
    return largest;
  }

 private:
  [[nodiscard]] double ratio(const std::string& name, const call::Tensor& output,
                             const std::vector<double>& square, int runs) const {
    const verdict::Expected& e = capture_.expected.outputs.at(name);
    const verdict::Budget budget(name, capture_.outputs.at(name).dtype(), e, *capture_.contract);
    const std::size_t block = block_size(e.exact.shape, name);
    double largest = 0.0;
    for (std::size_t first = 0; first < square.size(); first += block) {
      const BlockSigma sigma(square, first, block, runs);
      const double growth = growth_[head_of(e, name, first)];
      for (std::size_t i = first; i < first + block; ++i) {
        if (!e.exact.is_defined(i)) continue;
        const double error = std::fabs(output[static_cast<std::int64_t>(i)] - e.exact.golden[i]);
        const double s = sigma(i);
        const double right = budget(i) + static_cast<double>(e.exact.radius[i]);
        // Where a run overflows, the capture may, and may hold anything else.
        const double r = std::isinf(s)          ? 0.0
                         : std::isfinite(error) ? error / (growth * right + e.grant.multiple * s)
                                                : kInfinity;
        largest = std::max(largest, r);
      }
    }
    return largest;
  }

  void compare_profile(const std::string& name, const call::Tensor& output,
                       const std::vector<double>& square) {
    const verdict::Expected& e = capture_.expected.outputs.at(name);
    const verdict::Budget budget(name, output.dtype(), e, *capture_.contract);
    const std::size_t block = block_size(e.exact.shape, name);
    const std::vector<double>& sum = sums_.at(name);
    double errors = 0.0;
    double sigmas = 0.0;
    for (std::size_t first = 0; first < square.size(); first += block) {
      const BlockSigma sigma(square, first, block, runs_);
      double block_errors = 0.0;
      double block_expected = 0.0;
      double common = 0.0, all = 0.0;
      bool fails = false;
      for (std::size_t i = first; i < first + block; ++i) {
        if (!e.exact.is_defined(i)) continue;
        const double y = output[static_cast<std::int64_t>(i)];
        const double error = std::fabs(y - e.exact.golden[i]);
        const double s = sigma(i);
        if (!std::isfinite(error) || !std::isfinite(s)) continue;
        block_errors += error * error;
        common += sum[i] / runs_ * sum[i];
        all += square[i];
        const double right = budget(i) + static_cast<double>(e.exact.radius[i]);
        const double expected = s > 0.0 ? std::erfc(right / (std::numbers::sqrt2 * s)) : 0.0;
        const bool passes = verdict::passes(y, e, i, budget(i));
        block_expected += expected;
        reach_.add(name, i, expected, !passes);
        if (passes) continue;
        fails = true;
        ++failing_;
        match_.farthest = std::max(match_.farthest, error / right);
        errors += error * error;
        sigmas += s * s;
      }
      if (fails) expected_ += block_expected;
      if (fails && sigma.rms() > 0.0 && std::isfinite(sigma.rms())) {
        log_errors_.push_back(0.5 * std::log(block_errors / static_cast<double>(block)));
        log_sigmas_.push_back(std::log(sigma.rms()));
        common_ += common / all;
      }
    }
    if (errors == 0.0) return;
    const double width = sigmas > 0.0 ? std::sqrt(errors / sigmas) : kInfinity;
    if (match_.width == 0.0 || std::fabs(std::log(width)) > std::fabs(std::log(match_.width))) {
      match_.width = width;
    }
  }

  [[nodiscard]] std::size_t head_of(const verdict::Expected& e, const std::string& name,
                                    std::size_t i) const {
    return i / block_size(e.exact.shape, name) % growth_.size();
  }

  void grow(const std::string& name, const std::vector<double>& square) {
    const verdict::Expected& e = capture_.expected.outputs.at(name);
    std::vector<double> errors(growth_.size());
    std::vector<double> values(growth_.size());
    for (std::size_t i = 0; i < square.size(); ++i) {
      if (!std::isfinite(square[i]) || !std::isfinite(e.exact.golden[i])) continue;
      const std::size_t head = head_of(e, name, i);
      errors[head] += square[i] / runs_;
      values[head] += e.exact.golden[i] * e.exact.golden[i];
    }
    for (std::size_t j = 0; j < growth_.size(); ++j) {
      if (values[j] > 0.0) {
        growth_[j] = std::max(growth_[j], std::sqrt(1.0 + errors[j] / values[j]));
      }
    }
  }

  const Capture& capture_;
  const Squares &squares_, &sums_;
  const int runs_;
  std::vector<double> growth_;  // per value head
  Reach reach_;
  ScatterMatch match_;
  std::vector<double> log_errors_, log_sigmas_;
  double common_ = 0.0;
  double failing_ = 0.0, expected_ = 0.0;  // elements
};

}  // namespace

std::optional<ScatterMatch> match_scatter(const Capture& capture, const Hypothesis& hypothesis) {
  if (first_rounding(*capture.contract) == 0.0) return std::nullopt;
  const Runs runs(capture, hypothesis);
  Errors errors = no_errors(capture);
  ScatterMatch match;
  for (const int count : {kFirstRuns, kTrialRuns, kScatterRuns}) {
    if (!add_errors(capture, runs, match.runs, count, errors)) return std::nullopt;
    ScatterMatcher matcher(capture, errors, count);
    match = matcher.match();
    match.runs = count;
    if (count == kFirstRuns && match.common > kAlike) return match;
    if (count == kTrialRuns && !match.errs_alike(2.0)) return match;
    if (count == kScatterRuns && match.errs_alike() && match.ratio > 1.0) {
      match.allowed = matcher.largest_of(runs);
    }
  }
  return match;
}

}  // namespace goldenrule::explain
