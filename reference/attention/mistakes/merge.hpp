// SPDX-License-Identifier: Apache-2.0
//
// Attention in parts. The keys of a request are parted, the rule gives each part p its o_p and
// lse_p = t_p (in base e here), and the parts are merged:
//
//   o = sum_p w_p o_p / sum_p w_p,   w_p = exp(a_p),   lse = log sum_p w_p,   a_p = t_p.
//
// A part without a visible key has t_p = -inf and w_p = 0. Every mistake of a merge is another a_p,
// another divisor or another lse (merge.cpp has one row of numbers for each).
#pragma once

#include <cstdint>

#include "reference/attention/mistakes/partition.hpp"
#include "reference/calls/kernel.hpp"

namespace goldenrule::attention {

enum class MergeO : std::uint8_t {
  kRight,
  kBaseEOf2,     ///< a_p = t_p log2(e): e^x of an lse in base 2
  kBase2OfE,     ///< a_p = t_p ln(2): 2^x of an lse in base e
  kMean,         ///< the mean over all parts; lse likewise
  kMeanOfSeen,   ///< over those with a visible key
  kSum,          ///< the sum; lse likewise
  kLost,         ///< without one part
  kTwice,        ///< one part has twice its weight
  kOwnMaximum,   ///< a_p = t_p - m_p, m_p the largest score of the part
  kEmptyIsOne,   ///< t_p = 0 without a visible key
  kLastWriter,   ///< the last part with a visible key alone
  kHeadsFirst,   ///< t_p of the place that [tokens, heads] has in [heads, tokens]
  kTokensFirst,  ///< and the other way round
};

enum class MergeLse : std::uint8_t {
  kAsO,  ///< of the same weights
  kRight,
  kOtherBase,  ///< log sum_p w_p as it is, where the weights have another base
  kLast,       ///< of the last part that has a visible key
  kMaximum,
  kSum,
};

inline constexpr int kLastPart = -1;

struct Merge {
  Partition partition;
  MergeO o = MergeO::kRight;
  int part = 0;  ///< that is lost or counted twice, or kLastPart
  MergeLse lse = MergeLse::kAsO;
};

/// Parts of a call at most.
inline constexpr std::int64_t kMostParts = 64;
/// Elements of the keys of all requests at most, and products of queries with keys: every merge
/// that is tried copies the keys of all parts, and every partition runs them.
inline constexpr std::int64_t kMostKeyElements = std::int64_t{1} << 17;
inline constexpr std::int64_t kMostProducts = std::int64_t{1} << 23;

/// Whether the call can be parted so and shows the mistake.
[[nodiscard]] bool shows(const Merge& merge, const call::Record& record);

/// The outputs of a kernel that merges so what `kernel` returns of each part.
[[nodiscard]] call::TensorMap commit_merge(const Merge& merge, const call::Record& record,
                                           const calls::Kernel& kernel);

}  // namespace goldenrule::attention
