// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/comparison.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "fixtures/call/dtype.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/scalar/infinity.hpp"
#include "reference/verdict/channels.hpp"

namespace goldenrule::verdict {
namespace {

int ulp_bucket(double ulps) {
  if (ulps <= 0.5) return 0;
  if (!(ulps < kInfinity)) return kUlpBuckets - 1;
  // ceil(log2) from the bits: every element comes through here.
  int exponent = 0;
  const double fraction = std::frexp(ulps, &exponent);  // in [1/2, 1)
  const int bucket = 1 + std::max(0, fraction == 0.5 ? exponent - 1 : exponent);
  return std::min(bucket, kUlpBuckets - 1);
}

// From the bits as well: the exponent, and one more unless the ratio is a power of two.
std::size_t ratio_bucket(float ratio) {
  if (ratio == 0.0F) return 0;
  constexpr std::uint32_t kFraction = 0x7fffff;
  constexpr int kExponentBits = 23;
  constexpr int kBias = 127;
  const auto above =
      static_cast<int>((std::bit_cast<std::uint32_t>(ratio) + kFraction) >> kExponentBits);
  return static_cast<std::size_t>(std::clamp(above - kBias + kRatioOne, 1, kRatioBuckets - 1));
}

// Elements [first, last): whole slices, the elements of one index of the leading axis.
class Part {
 public:
  /// `report` is the part's own, with the type and shape of the tensor; ratio i goes to ratios[i].
  Part(TensorReport report, const call::Tensor& output, const Expected& expected,
       const Budget& budget, std::int64_t slice, float* ratios)
      : report_(std::move(report)),
        output_(output),
        expected_(expected),
        budget_(budget),
        slice_(slice),
        ratios_(ratios),
        channels_(expected, budget) {}

  void run(std::int64_t first, std::int64_t last) {
    const std::int64_t row =
        report_.shape.empty() ? 1 : std::max<std::int64_t>(report_.shape.back(), 1);
    const auto block = static_cast<std::int64_t>(expected_.exact.block);
    std::int64_t nan_in_row = 0;
    for (std::int64_t i = first; i < last; ++i) {
      if (i % row == 0) nan_in_row = 0;
      if (i % block == 0) channels_.clear();
      const double y = output_[i];
      if (visit(i, y) && std::isnan(y) && ++nan_in_row == row) report_.unwritten += row;
      if ((i + 1) % block == 0) finish_block(i);
    }
  }

  [[nodiscard]] const TensorReport& report() const { return report_; }
  [[nodiscard]] const Sums& sums() const { return sums_; }
  /// How many ratios were written.
  [[nodiscard]] std::int64_t ratio_count() const { return ratio_count_; }

 private:
  // Whether the element has a finite expectation to be compared with.
  bool visit(std::int64_t i, double y) {
    const auto at = static_cast<std::size_t>(i);
    const std::vector<Touch>& touched = expected_.exact.touched;
    const bool by_rule = touched.empty() || touched[at / expected_.exact.block] == Touch::kComputed;
    sums_.has_rule = sums_.has_rule || by_rule;
    const bool judged = expected_.exact.is_defined(at) && !expected_.is_overflow(at, y);
    sums_.rule_judged = sums_.rule_judged || (by_rule && judged);
    if (!judged) {
      ++report_.undefined;
      return false;
    }
    const double golden = expected_.exact.golden[at];
    const double budget = std::isfinite(golden) ? budget_(at) : 0.0;
    if (!is_bounded(expected_, at, budget)) {
      ++report_.unbounded;
      note_unjudged(i);
      return false;
    }
    if (!std::isfinite(golden)) {
      ++(expected_.exact.is_right_infinity(at) ? report_.compared : report_.nonfinite);
      if (!expected_.exact.admits_nonfinite(at, y)) fail(i, y, golden, budget);
      return false;
    }
    ++report_.compared;
    channels_.add(at, golden, budget);
    if (std::isfinite(y)) {
      compare(i, y, golden, budget);
      return true;
    }
    if (expected_.is_rounded_up(at, y)) {
      sums_.all_exact = false;
      sums_.all_zero = false;
      return true;
    }
    if (std::isnan(y)) {
      ++report_.nan;
      ++findings(i).nan;
    } else {
      ++report_.inf;
    }
    fail(i, y, golden, budget);
    return true;
  }

  void note_unjudged(std::int64_t i) {
    if (report_.first_unjudged.empty()) report_.first_unjudged = call::unravel(report_.shape, i);
  }

  // A finite value where none may be, or the reverse: an infinite ratio.
  void fail(std::int64_t i, double y, double golden, double budget) {
    ++report_.out_of_budget;
    ++findings(i).out_of_budget;
    sums_.all_exact = false;
    sums_.all_zero = false;
    if (report_.max_ratio < kInfinity) {
      report_.max_ratio = kInfinity;
      report_.worst = Worst{.index = call::unravel(report_.shape, i),
                            .value = y,
                            .golden = golden,
                            .error = std::fabs(y - golden),
                            .budget = budget,
                            .ulps = kInfinity};
    }
  }

  RowFindings& findings(std::int64_t i) {
    const std::int64_t row = i / slice_;
    auto& rows = report_.failing_rows;  // elements come in order, so only the last can match
    if (rows.empty() || rows.back().row != row)
      rows.push_back({.row = row, .out_of_budget = 0, .nan = 0, .elements = slice_});
    return rows.back();
  }

  // `last` is the last element of the block.
  void finish_block(std::int64_t last) {
    const std::size_t block = static_cast<std::size_t>(last) / expected_.exact.block;
    // Integers are right or not: neither their size nor zeros say anything.
    if (!budget_.given() || !call::info(report_.dtype).is_float ||
        (!expected_.exact.touched.empty() && expected_.exact.touched[block] != Touch::kComputed)) {
      return;
    }
    for (const ChannelSignal& channel : channels_.signals(block)) {
      sums_.computed = true;
      sums_.computed_zero = sums_.computed_zero && channel.is_zero;
      sums_.signal2 += channel.signal2;
      sums_.budget2 += channel.budget2;
      if (!channel.is_vacuous) continue;
      ++report_.vacuous;
      note_unjudged(channel.first);
    }
  }

  void compare(std::int64_t i, double y, double golden, double budget) {
    const auto at = static_cast<std::size_t>(i);
    const double error = std::fabs(y - golden);
    const double radius = static_cast<double>(expected_.exact.radius[at]);
    const double spacing = call::ulp(report_.dtype, golden);
    sums_.error2 += error * error;
    sums_.golden2 += golden * golden;
    sums_.signed_error += y - golden;
    sums_.absolute_error += error;
    sums_.all_exact = sums_.all_exact && y == call::round_to(report_.dtype, golden);
    sums_.all_zero = sums_.all_zero && y == 0.0;
    sums_.golden_zero = sums_.golden_zero && golden == 0.0;
    ++report_.ulp_histogram[static_cast<std::size_t>(ulp_bucket(error / spacing))];
    report_.max_abs = std::max(report_.max_abs, error);
    const bool in_budget = passes(y, expected_, at, budget);
    if (!in_budget) {
      ++report_.out_of_budget;
      ++findings(i).out_of_budget;
    } else if (error > budget) {
      ++report_.undecided;
      note_unjudged(i);
    }
    // Without a budget the worst element is the one with the largest error.
    const double ratio = budget_.given() ? ratio_of(std::max(error - radius, 0.0), budget) : error;
    ratios_[ratio_count_++] = static_cast<float>(ratio);
    if (budget_.given()) {
      ++report_.ratio_histogram[ratio_bucket(shown_ratio(ratio, in_budget))];
    }
    if (!report_.worst || ratio > report_.max_ratio) {
      report_.max_ratio = ratio;
      report_.worst = Worst{.index = call::unravel(report_.shape, i),
                            .value = y,
                            .golden = golden,
                            .error = error,
                            .budget = budget,
                            .ulps = error / spacing};
    }
  }

  TensorReport report_;
  const call::Tensor& output_;
  const Expected& expected_;
  const Budget& budget_;
  Sums sums_;
  const std::int64_t slice_;
  float* const ratios_;
  std::int64_t ratio_count_ = 0;
  Channels channels_;  // of the block at hand
};

}  // namespace

Comparison compare(const call::Tensor& output, const Expected& expected, const Budget& budget,
                   TensorReport& report) {
  const std::int64_t leading = output.shape().empty() ? 1 : output.shape().front();
  const std::int64_t slice = leading == 0 ? 1 : std::max<std::int64_t>(output.size() / leading, 1);
  const std::int64_t step = std::max<std::int64_t>(parallel::kRange / slice, 1) * slice;
  const std::int64_t count = (output.size() + step - 1) / step;
  Comparison result;
  std::vector<float>& ratios = result.ratios;
  ratios.resize(static_cast<std::size_t>(output.size()));
  std::vector<Part> parts;
  parts.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    parts.emplace_back(report, output, expected, budget, slice, ratios.data() + i * step);
  }
  const parallel::Phase phase("comparison");
  parallel::for_each_index(count, [&](std::int64_t i) {
    parts[static_cast<std::size_t>(i)].run(i * step, std::min((i + 1) * step, output.size()));
  });
  auto end = ratios.begin();
  for (std::int64_t i = 0; i < count; ++i) {
    const Part& part = parts[static_cast<std::size_t>(i)];
    join(result.sums, part.sums());
    join(report, part.report());
    const auto first = ratios.begin() + i * step;
    end = std::move(first, first + part.ratio_count(), end);
  }
  ratios.erase(end, ratios.end());
  return result;
}

}  // namespace goldenrule::verdict
