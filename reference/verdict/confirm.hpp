// SPDX-License-Identifier: Apache-2.0
//
// Which parts of a large call are asked again with more runs (Slice::confirm). An honest kernel is
// out of budget by chance in few elements of few parts, a wrong one in many of many, and work is
// bounded: those with the fewest failing elements come first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/budget.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::verdict {

/// An output beside what it is compared with.
class Compared {
 public:
  /// Refers to what it is made from; `expected` may be nullptr.
  Compared(const std::string& name, const call::TensorMap& outputs, const Expected* expected,
           const contract::Contract& contract);

  /// Whether an element is a number, and not within its budget of the exact one. False where the
  /// output is not there or has no budget.
  [[nodiscard]] bool is_out(std::size_t at) const;

 private:
  const call::Tensor* output_ = nullptr;
  const Expected* expected_ = nullptr;
  std::optional<Budget> budget_;
};

/// Runs of both kinds together: a few more for all that fail, many for what still does.
inline constexpr std::array kConfirmingRuns{12, 96};

/// The parts of 0 .. parts - 1 in which count_out(part) is not 0, the fewest first; at most `most`.
[[nodiscard]] std::vector<std::int64_t> fewest_out(
    std::int64_t parts, std::int64_t most,
    const std::function<std::int64_t(std::int64_t part)>& count_out);

/// Calls ask(part, runs) of the parts that fail, for each of kConfirmingRuns, as long as `work`
/// lasts: a run of all parts takes `of_run` of it.
void confirm_parts(std::int64_t parts, double work, double of_run,
                   const std::function<std::int64_t(std::int64_t part)>& count_out,
                   const std::function<void(std::int64_t part, int runs)>& ask);

}  // namespace goldenrule::verdict
