// SPDX-License-Identifier: Apache-2.0
//
// Where the budget of one element comes from, term by term:
//
//   budget = multiple sigma + bias + half an ulp of storage + flushed
//
// for those who want to check a verdict by hand, or to see which error of a kernel is granted most.
#pragma once

#include <string>

#include "reference/verdict/verdict.hpp"

namespace goldenrule::verdict {

/// One element of one output.
struct Element {
  std::string output;
  call::Shape index;
};

/// "o[1,3,0,7]". Throws Error(kArgument) for other texts.
[[nodiscard]] Element parse_element(const std::string& text);

struct Terms {
  Element element;
  Coordinates coordinates;
  double value = 0.0, golden = 0.0, radius = 0.0;
  bool kept = false;  ///< no sequence writes it: it must be exactly what it was
  double multiple = 0.0, sigma = 0.0, bias = 0.0;
  double half_ulp = 0.0;  ///< of the storage type, at |golden| + multiple sigma + bias
  double flushed = 0.0;
  double budget = 0.0;  ///< the sum, which the verdict used: sigma and bias are rounded to f32 here
  bool passes = false;
};

/// Throws Error(kArgument) for an output that was not judged or has no budget, and for an index
/// that it does not have or that no kernel writes.
[[nodiscard]] Terms terms_of(const Judgement& judgement, const Element& element);

}  // namespace goldenrule::verdict
