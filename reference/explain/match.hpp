// SPDX-License-Identifier: Apache-2.0
//
// How well a prediction reproduces a capture.
//
// An element is reproduced when |captured - predicted| <= spread + half an ulp of storage where the
// predicted value lies. Where nothing finite is predicted by arithmetic (an overflow), nothing
// finite may be captured.
//
// Unwritten elements are predicted as NaN; what a kernel left alone holds whatever the buffer held.
// Such an element is reproduced by NaN or Inf, and by one number if it stands in all such elements
// of the tensor (buffers are cleared, or filled with a mark). Other finite content is believed to
// be junk only where the element fails, since junk is not right by chance, and only if the
// prediction says that other elements of the tensor are written: without that, "nothing was
// written" would explain every wrong tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reference/explain/prediction.hpp"

namespace goldenrule::explain {

struct Match {
  double ratio = 0.0;     ///< max |captured - predicted| / budget; infinite for NaN
  double residual = 0.0;  ///< rms of |captured - predicted| over the budget of the right call
  /// Share of the error that is gone: 1 - mean (|captured - predicted| / |captured - exact|)^2 over
  /// the failing elements of a row and head, never below 0; the mean over rows and heads that fail.
  double accounted = 0.0;
  std::int64_t failing = 0;  ///< elements that are not reproduced
  std::int64_t guessed = 0;  ///< elements predicted as unwritten that hold a finite number
  std::map<std::string, std::int64_t> failing_in;  ///< per output
};

[[nodiscard]] Match match(const Capture& capture, const Prediction& prediction);

/// The right call as a prediction: what there is to explain.
[[nodiscard]] Match match_right_call(const Capture& capture);

/// Whether no element tells the two apart: they differ by less than a thousandth of the budget.
[[nodiscard]] bool same_outputs(const Capture& capture, const Prediction& a, const Prediction& b);

}  // namespace goldenrule::explain
