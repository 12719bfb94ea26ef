// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of attention kernels: each is a change of what a right kernel is given, the plan or q,
// or of what it returns. Which keys are visible, where they are read and with which scale are
// numbers of the plan, so most mistakes are one changed number. A kernel takes calls, not plans: it
// is given the plain call that means the changed plan (plain_call.hpp), so that whatever is a
// kernel, the oracle, an emulator or another mistake, makes it.
#pragma once

#include <span>
#include <string_view>

#include "reference/attention/plan/plan.hpp"
#include "reference/calls/mistake.hpp"

namespace goldenrule::attention {

inline constexpr std::int64_t kKeyTile = 64;  ///< keys of a tile of most kernels

/// What a kernel works on.
struct Work {
  const call::Record& call;  ///< as it was given
  call::Record record;       ///< of which q may be changed
  Plan plan;
};

using Change = void (*)(Work& work);
/// Changes what a kernel returns for `call`, of that plan, and says whether it did.
using After = bool (*)(const call::Record& call, const Plan& plan, call::TensorMap& outputs);

/// Whether `change` leaves plan or inputs of the call as they were: then it cannot be made.
[[nodiscard]] bool changes(Change change, const call::Record& record);
[[nodiscard]] bool changes(After after, const call::Record& record);
/// The outputs of `kernel` with the change.
[[nodiscard]] call::TensorMap commit(Change change, const call::Record& record,
                                     const calls::Kernel& kernel);
[[nodiscard]] call::TensorMap commit(After after, const call::Record& record,
                                     const calls::Kernel& kernel);

/// A row of the table of mistakes; `change` is a Change or an After.
template <auto change>
constexpr calls::Mistake mistake(std::string_view name, std::string_view group,
                                 std::string_view meaning, std::string_view reported = {},
                                 std::span<const calls::Meant> meant = {}, bool rounds = false) {
  return {.name = name,
          .group = group,
          .meaning = meaning,
          .applies = [](const call::Record& record) { return changes(change, record); },
          .commit = [](const call::Record& record,
                       const calls::Kernel& kernel) { return commit(change, record, kernel); },
          .meant = meant,
          .rounds = rounds,
          .reported = reported};
}

/// All of them, in the order of the documentation.
[[nodiscard]] std::span<const calls::Mistake> mistakes();

/// Rows of the table, by file.
std::span<const calls::Mistake> mask_mistakes();
std::span<const calls::Mistake> key_mistakes();
std::span<const calls::Mistake> number_mistakes();
std::span<const calls::Mistake> position_mistakes();

/// Of parts and their merge (merge.hpp), enumerated. An explanation tries them where no mistake of
/// the table explains a call.
[[nodiscard]] std::span<const calls::Mistake> merge_mistakes();

}  // namespace goldenrule::attention
