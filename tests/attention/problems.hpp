// SPDX-License-Identifier: Apache-2.0
//
// Small random attention calls, each recreated by its pattern, type and seed: tables of both forms
// with shared, permuted and missing pages, both layouts, fresh keys, masks, windows, padded tails,
// empty requests. Whatever no query may see is NaN.
#pragma once

#include <cstdint>
#include <string>

#include "reference/attention/plan/plan.hpp"

namespace goldenrule::attention {

/// What the numbers of a problem are like; the letters of the specification of suites.
enum class Pattern {
  kRandom,   ///< A
  kPeaked,   ///< B: q is 4 times as long
  kNearOne,  ///< C: v = 1 + 0.02 normal
  kSparse,   ///< K, L: v is an indicator of few positions; q = 0 in every second problem
  kRising,   ///< S: scores rise along the keys, by up to 30
  kFalling,  ///< D
  kTies,     ///< T: keys are equal to one of three
  kHuge,     ///< Y: scores are +-1e4
  kLow,      ///< X: all scores are about -25
  kCentred,  ///< long sums whose partial sums cancel: v alternates in runs
};
inline constexpr int kPatterns = 10;
[[nodiscard]] const char* name_of(Pattern pattern);

struct Size {
  std::int64_t context = 40;  ///< the largest
  std::int64_t queries = 6;
  std::int64_t requests = 3;
  std::int64_t key_dim = 24;
  bool plain = false;  ///< one request, fresh keys, no mask, no window
};

/// Inputs of type `type`.
[[nodiscard]] call::Record random_problem(Pattern pattern, call::DType type, std::uint64_t seed,
                                          const Size& size = {});

/// "pattern=rising type=bf16 seed=17"
[[nodiscard]] std::string line_of(Pattern pattern, call::DType type, std::uint64_t seed);

}  // namespace goldenrule::attention
