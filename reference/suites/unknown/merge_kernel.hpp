// SPDX-License-Identifier: Apache-2.0
//
// Attention that runs through the keys of each part with the online softmax and merges the states
// (m_p, l_p, acc_p) of the parts, rightly,
//
//   o = sum_p e^(m_p - m) acc_p / sum_p e^(m_p - m) l_p,   lse = m + log sum_p e^(m_p - m) l_p,
//
// or in one of the wrong ways below. Written out apart from the generator that explanations ask
// (attention/mistakes/merge.hpp), which merges what a kernel returns: in fp32 as a kernel computes,
// in double as what it means.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "reference/attention/plan/plan.hpp"

namespace goldenrule::suites {

/// In which part key `i` of a request is.
using PartOfKey = std::function<std::int64_t(const attention::Request& request, std::int64_t i)>;

enum class WrongMerge : std::uint8_t {
  kNone,
  kBaseEOf2,    ///< weights e^x of an lse in base 2
  kBase2OfE,    ///< weights 2^x of an lse in base e
  kMean,        ///< the mean over the parts that the longest request has
  kSum,         ///< the sum of the outputs, and of the lse
  kOwnMaximum,  ///< acc and l of parts are added as they are
  kEmptyIsOne,  ///< a part without a visible key counts as lse 0
  kLost,        ///< one part is left out
  kTwice,       ///< one part is counted twice
  kLastWriter,  ///< the last part with a visible key overwrites the others
  kTransposed,  ///< weights by the lse of another row: [heads, tokens] read as [tokens, heads]
  kLseOfLast,   ///< lse of the last part with a visible key
  kLseMaximum,  ///< the largest lse of the parts
};
[[nodiscard]] std::string_view words_for(WrongMerge way);

struct MergeInParts {
  PartOfKey part_of;
  WrongMerge way = WrongMerge::kNone;
  std::int64_t part = 0;   ///< that is lost or counted twice
  bool right_lse = false;  ///< while o is wrong
};

/// Outputs in double of a kernel in `Real`, float or double.
template <class Real>
[[nodiscard]] call::TensorMap merge_in_parts(const call::Record& call, const MergeInParts& merge);

}  // namespace goldenrule::suites
