// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of attention kernels as data: each is a change of what a right kernel is given, the plan
// or the tensors, or of what it returns. Which keys are visible, where they are read and with which
// scale are numbers of the plan, so most mistakes are one changed number, and the oracle's rule
// runs it as it runs any plan.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "reference/attention/rule/evaluate.hpp"

namespace goldenrule::attention {

/// A kernel that computes without storage rounding, from tensors and a plan: outputs_of is one, an
/// emulator of a contract another.
using PlanKernel = std::function<call::TensorMap(const call::Record&, const Plan&)>;

/// What a kernel works on.
struct Work {
  const Call& call;  ///< as it was given
  call::Record record;
  Plan plan;
};

struct Mistake {
  std::string_view name;  ///< stable; rows of one name are ways to make one mistake
  std::string_view group;
  std::string_view meaning;  ///< one clause to the author: what the kernel does
  /// Changes what the kernel is given; null: nothing. A mistake that leaves plan and tensors as
  /// they were cannot be made in the call.
  void (*change)(Work& work) = nullptr;
  /// Changes what it returns and says whether it did; null: nothing.
  bool (*after)(const Plan& plan, call::TensorMap& outputs) = nullptr;
  std::string_view reported = {};  ///< where it was made in public; empty: not known
};

/// All of them, in the order of the documentation.
[[nodiscard]] std::span<const Mistake> mistakes();

/// Whether the mistake can be made in this call at all.
[[nodiscard]] bool applies(const Mistake& mistake, const Call& call);

/// The outputs of `kernel` with the mistake.
[[nodiscard]] call::TensorMap commit(const Mistake& mistake, const Call& call,
                                     const PlanKernel& kernel);

/// Rows of the table, by file.
std::span<const Mistake> mask_mistakes();
std::span<const Mistake> key_mistakes();
std::span<const Mistake> number_mistakes();

}  // namespace goldenrule::attention
