// SPDX-License-Identifier: Apache-2.0
//
// A tensor that is judged by some of its heads (axis 1) at a time, so that what is expected of the
// others need not be held. What is counted, the worst element and the verdict are those of the
// whole tensor; sums are added up head by head. The median of kFewRatios ratios or less is exact,
// that of more one of 2^11 numbers in each octave.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/verdict/comparison.hpp"

namespace goldenrule::verdict {

/// The ratio in the middle of many, which need not be held.
class Median {
 public:
  void add(std::vector<float> ratios);
  [[nodiscard]] double value() const;

 private:
  void count(std::span<const float> ratios);

  std::vector<float> few_;             // while there are no counts
  std::vector<std::uint32_t> counts_;  // by the leading bits of a ratio
  std::int64_t counted_ = 0;
};

inline constexpr std::int64_t kFewRatios = std::int64_t{1} << 21;

class Tally {
 public:
  Tally(const std::string& name, const call::Tensor& whole);

  /// Compares heads `heads` of the tensor, which are those of `part`; none: all.
  void add(const call::Tensor& part, std::span<const std::int64_t> heads, const Expected& expected,
           const contract::Contract& contract);

  /// Of what was added so far.
  [[nodiscard]] std::int64_t out_of_budget() const { return report_.out_of_budget; }
  [[nodiscard]] TensorReport finished(const contract::Contract& contract) const;

 private:
  void place(std::span<const std::int64_t> heads, TensorReport& part) const;

  TensorReport report_;
  Sums sums_;
  Median median_;
  std::int64_t row_elements_;
  bool given_ = true;
};

/// Heads `heads` of a tensor, rising.
[[nodiscard]] call::Tensor heads_of(const call::Tensor& whole, std::span<const std::int64_t> heads);

}  // namespace goldenrule::verdict
