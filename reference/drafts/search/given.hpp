// SPDX-License-Identifier: Apache-2.0
//
// What a kernel gave the rows of a call, and how much it says that something predicts it.
//
// A prediction is evidence as far as a kernel with some other mistake would not agree by chance.
// That is counted in bits, -log2 of the probability in a model of such a kernel. Of counts there
// are two models, and what is less counts:
//
//   broken in places   a row is right in as many cases as rows of the call are; in the others it
//                      has a count as often as the failing rows have it
//   broken everywhere  a row has a count as often as the rows of the call have it, so that a kernel
//                      that accepts nothing says nothing about why
//
// All drafts of a row are one count, whatever their number. Counts that are added by one to each
// frequency are no certainty: m of n rows have (m + 1) / (n + 2). Of tokens, a failing row has
// its token with its probability in the target, or, in a greedy call, as one of the tokens that the
// row is offered.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "reference/drafts/mistakes/mistake.hpp"

namespace goldenrule::drafts {

inline constexpr std::size_t kModels = 2;

struct Given {
  std::int64_t n = 0;
  std::int64_t accepted = 0;  ///< as the kernel says; -1: no count
  std::int64_t value = 0;     ///< the count again, or the token behind it
  bool fails = false;         ///< a right kernel does not give it
  std::array<double, kModels> bits{};
  double constant_bits = 0.0;  ///< where one count is said of all rows: any is as likely
};

/// The numbers that a kernel returned. Refers to both.
class Kernel {
 public:
  Kernel(const Work& work, const call::TensorMap& outputs) : work_(work), outputs_(outputs) {}

  /// Of the rows that are no padding, failing ones first.
  [[nodiscard]] std::vector<Given> counts() const;
  /// Of those whose token is emitted.
  [[nodiscard]] std::vector<Given> tokens(const std::vector<Given>& counts) const;
  /// Whether every number of the call is what follows from the counts and the tokens behind them.
  [[nodiscard]] bool follows(const std::vector<Given>& counts) const;

 private:
  [[nodiscard]] bool is_possible(const Given& row) const;
  [[nodiscard]] std::optional<std::int64_t> token(const Given& row) const;
  [[nodiscard]] double token_bits(const Given& row) const;

  const Work& work_;
  const call::TensorMap& outputs_;
};

}  // namespace goldenrule::drafts
