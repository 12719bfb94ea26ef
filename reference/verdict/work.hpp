// SPDX-License-Identifier: Apache-2.0
//
// How much an evaluation may compute. A small file can describe a call whose verdict takes days,
// and nothing is begun that would take longer than its caller wants to wait for: a caller lends a
// limit to its thread for a scope, and an operation whose work does not follow from the size of its
// tensors says before each evaluation how much it is. Without a limit everything is evaluated.
#pragma once

#include <functional>

#include "reference/scalar/precision.hpp"

namespace goldenrule::verdict {

struct WorkLimit {
  double core_seconds = 0.0;                        ///< beyond which nothing is begun
  void (*announce)(double core_seconds) = nullptr;  ///< is told of what is begun
};

/// Lends a limit to the evaluations that this thread begins.
class WorkLimited {
 public:
  explicit WorkLimited(const WorkLimit& limit);
  ~WorkLimited();
  WorkLimited(const WorkLimited&) = delete;
  WorkLimited& operator=(const WorkLimited&) = delete;

 private:
  friend void admit_work(scalar::Precision tier, const std::function<double()>& core_seconds);

  const WorkLimit limit_;
  double begun_ = 0.0;
  WorkLimited* const before_;
};

/// Throws Error(kUnsafe) with both numbers where all that was begun in this scope and an evaluation
/// in `tier` take more than the limit of this thread. Without a limit nobody asks how much it is.
void admit_work(scalar::Precision tier, const std::function<double()>& core_seconds);

}  // namespace goldenrule::verdict
