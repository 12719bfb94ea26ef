// SPDX-License-Identifier: Apache-2.0
//
// Pairs of mistakes, refuted on few value channels. Value channels of a call do not influence each
// other. Most mistakes leave it at that: they change what all channels share (gates, keys, order),
// or each channel by itself. Such a mistake, made in the call that is cut to few channels, does
// there what it does in the whole call, so that two of them may be judged on the cut. That a
// mistake is one of these is not declared but seen: made alone, on the cut and on the whole, it
// leaves the same bits in the channels of the cut. A pair with a mistake that does not is admitted,
// as is what the cut cannot show.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "reference/explain/failures.hpp"
#include "reference/explain/search.hpp"

namespace goldenrule::explain {

class FewLanes {
 public:
  /// Of a capture, or a part of one, that hypotheses are screened on. Refers to it.
  FewLanes(const Trial& whole, std::span<const Failures> failures);

  /// False where few channels show that `hypothesis` explains no half of the error.
  [[nodiscard]] bool admits(const Hypothesis& hypothesis);

  /// Core-seconds since it was asked last, as they are estimated.
  [[nodiscard]] double take_seconds();

 private:
  [[nodiscard]] bool acts_by_channel(const calls::Mistake& mistake);

  const Trial& whole_;
  std::vector<std::int64_t> channels_;
  std::optional<Trial> few_;  // absent: a cut would not be smaller
  std::map<const calls::Mistake*, bool> by_channel_;
  double seconds_ = 0.0;
};

}  // namespace goldenrule::explain
