// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/tally.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace goldenrule::verdict {
namespace {

constexpr int kDroppedBits = 12;                                        // of the 23 of a fraction
constexpr std::size_t kCounts = std::size_t{1} << (31 - kDroppedBits);  // no ratio is negative

std::size_t count_of(float ratio) {
  return (std::bit_cast<std::uint32_t>(ratio) & 0x7fffffffU) >> kDroppedBits;
}

}  // namespace

void Median::add(std::vector<float> ratios) {
  if (counts_.empty() && std::ssize(few_) + std::ssize(ratios) <= kFewRatios) {
    few_.insert(few_.end(), ratios.begin(), ratios.end());
    return;
  }
  if (counts_.empty()) {
    counts_.resize(kCounts);
    count(std::exchange(few_, {}));
  }
  count(ratios);
}

void Median::count(std::span<const float> ratios) {
  for (const float ratio : ratios) ++counts_[count_of(ratio)];
  counted_ += std::ssize(ratios);
}

double Median::value() const {
  if (counts_.empty()) {
    std::vector<float> few = few_;
    return median_of(few);
  }
  std::int64_t before = 0;
  std::size_t at = 0;
  while (before + counts_[at] <= counted_ / 2) before += counts_[at++];
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(at) << kDroppedBits));
}

Tally::Tally(const std::string& name, const call::Tensor& whole)
    : row_elements_(
          whole.shape().empty() ? 1 : whole.size() / std::max<std::int64_t>(whole.shape()[0], 1)) {
  report_.name = name;
  report_.dtype = whole.dtype();
  report_.shape = whole.shape();
}

void Tally::add(const call::Tensor& part, std::span<const std::int64_t> heads,
                const Expected& expected, const contract::Contract& contract) {
  TensorReport report;
  report.dtype = part.dtype();
  report.shape = part.shape();
  const Budget budget(report_.name, part.dtype(), expected, contract);
  given_ = budget.given();
  Comparison compared = compare(part, expected, budget, report);
  if (!heads.empty()) place(heads, report);
  join(sums_, compared.sums);
  join(report_, report);
  median_.add(std::move(compared.ratios));
}

// From the places of a part to those of the whole.
void Tally::place(std::span<const std::int64_t> heads, TensorReport& part) const {
  const auto to_whole = [&](call::Shape& index) {
    if (!index.empty()) index[1] = heads[static_cast<std::size_t>(index[1])];
  };
  if (part.worst) to_whole(part.worst->index);
  to_whole(part.first_unjudged);
  for (RowFindings& row : part.failing_rows) row.elements = row_elements_;
}

TensorReport Tally::finished(const contract::Contract& contract) const {
  TensorReport report = report_;
  if (report.shape.size() == 2) {  // heads are the last axis: rows of a part are none of the whole
    report.unwritten = 0;
    for (const RowFindings& row : report.failing_rows) {
      if (row.nan == row_elements_) report.unwritten += row.nan;
    }
  }
  finish(sums_, median_.value(), given_, contract, report);
  return report;
}

call::Tensor heads_of(const call::Tensor& whole, std::span<const std::int64_t> heads) {
  call::Shape shape = whole.shape();
  const std::int64_t all = shape[1];
  shape[1] = std::ssize(heads);
  call::Tensor part(whole.dtype(), shape);
  const std::int64_t rows = shape[0];
  const std::size_t bytes =
      whole.bytes().size() / static_cast<std::size_t>(std::max<std::int64_t>(rows * all, 1));
  std::byte* to = part.bytes().data();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const std::int64_t head : heads) {
      const auto from = static_cast<std::size_t>(row * all + head) * bytes;
      to = std::ranges::copy(whole.bytes().subspan(from, bytes), to).out;
    }
  }
  return part;
}

}  // namespace goldenrule::verdict
