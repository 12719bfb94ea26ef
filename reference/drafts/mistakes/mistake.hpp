// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of draft acceptance kernels. Three kinds, by what is changed around a right kernel:
//
//   what it reads      the inputs or conventions of the call
//   what it decides    the outcome of a row, how many drafts and which token behind them. A kernel
//                      takes calls, not outcomes: it is given the greedy call that means them, with
//                      as many drafts as are accepted and the token as the target's choice
//   what it returns    the numbers of a row
//
// So whatever is a kernel, the oracle, an emulator or another mistake, makes it. Sums that a wrong
// kernel would form are formed in double.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "reference/calls/mistake.hpp"
#include "reference/drafts/rule/rule.hpp"

namespace goldenrule::drafts {

/// A call and what is right of it. Refers to the record.
struct Work {
  explicit Work(const call::Record& record);
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  const call::Record& call;
  const Plan plan;
  const Decisions decisions;

  [[nodiscard]] const Row& row(std::int64_t n) const {
    return plan.rows[static_cast<std::size_t>(n)];
  }
  /// Else it is a rejection.
  [[nodiscard]] bool is_greedy() const { return call.mode == call::Mode::kGreedy; }
  /// Rows of the target of a request.
  [[nodiscard]] std::int64_t target_positions() const;
  [[nodiscard]] bool is_one_hot() const {
    return call.convention.draft_kind == call::DraftKind::kOneHot;
  }
};

/// Another call of the same rows.
using Misread = void (*)(const Work& work, call::Record& record);
/// The outcome of row n, which is no padding.
using Misdecided = void (*)(const Work& work, std::int64_t n, Outcome& outcome);
/// What row n returns, padding included.
using Misreturned = void (*)(const Work& work, std::int64_t n, Returned& returned);

/// Whether the mistake changes what some row of the call returns: else it cannot be made.
[[nodiscard]] bool changes(Misread change, const call::Record& record);
[[nodiscard]] bool changes(Misdecided change, const call::Record& record);
[[nodiscard]] bool changes(Misreturned change, const call::Record& record);
/// The outputs of `kernel` with the change.
[[nodiscard]] call::TensorMap commit(Misread change, const call::Record& record,
                                     const calls::Kernel& kernel);
[[nodiscard]] call::TensorMap commit(Misdecided change, const call::Record& record,
                                     const calls::Kernel& kernel);
[[nodiscard]] call::TensorMap commit(Misreturned change, const call::Record& record,
                                     const calls::Kernel& kernel);

/// A row of the table of mistakes; `change` is one of the three kinds.
template <auto change>
constexpr calls::Mistake mistake(std::string_view name, std::string_view group,
                                 std::string_view meaning, std::string_view reported = {},
                                 std::span<const calls::Meant> meant = {}) {
  return {.name = name,
          .group = group,
          .meaning = meaning,
          .applies = [](const call::Record& record) { return changes(change, record); },
          .commit = [](const call::Record& record,
                       const calls::Kernel& kernel) { return commit(change, record, kernel); },
          .meant = meant,
          .reported = reported};
}

/// All of them, in the order of the documentation.
[[nodiscard]] std::span<const calls::Mistake> mistakes();

/// Rows of the table, by file.
std::span<const calls::Mistake> accept_mistakes();
std::span<const calls::Mistake> token_mistakes();
std::span<const calls::Mistake> commit_mistakes();

}  // namespace goldenrule::drafts
