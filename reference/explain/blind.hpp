// SPDX-License-Identifier: Apache-2.0
//
// What a capture cannot see. A pass says that the outputs are those of the declared call; it does
// not say that this call would have shown a mistake. A capture without padding shows nothing of
// padding, one with H = HV nothing of the head map, one with long keys nothing of the norm's eps.
//
// A known mistake is unseen when the exact kernel that makes it stays within the budget of the
// right call in every element of every output that the capture holds. A value of a convention is
// unseen when the exact result of the call with that value does. Outputs are compared as they are
// stored, so what vanishes in the storage type is unseen as well.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reference/verdict/verdict.hpp"

namespace goldenrule::explain {

struct UnseenConvention {
  std::string attribute;
  std::vector<std::string> values;
};

struct Blindness {
  std::int64_t mistakes_tried = 0;    ///< that can be made in this call
  std::vector<std::string> mistakes;  ///< of them, those that the capture cannot see
  std::int64_t values_tried = 0;      ///< values of conventions other than the declared ones
  std::vector<UnseenConvention> conventions;  ///< of them, those that it cannot tell apart
};

/// Of a judged record. Costs a computation of the call for every mistake and value.
[[nodiscard]] Blindness find_blindness(const verdict::Judgement& judgement);

}  // namespace goldenrule::explain
