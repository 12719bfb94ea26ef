// SPDX-License-Identifier: Apache-2.0
//
// One call run from the ledgers of its rows: the exact states that it leaves, what a stored state
// may be beside them, and the ledgers with which its requests go on (ledger.hpp has the
// mathematics).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/chain/ledger.hpp"

namespace goldenrule::chain {

/// One call, run from the ledgers of its rows.
class Step {
 public:
  /// starts[row]: nullptr where the row has no ledger.
  Step(const verdict::Slice& slice, const contract::Contract& contract, const Layout& layout,
       const call::Record& tokens, std::span<const Known> starts);

  [[nodiscard]] const call::Plan& plan() const { return plan_; }
  /// The exact o of the call, as it lies.
  [[nodiscard]] std::span<const double> outputs() const {
    return expected_.outputs.at("o").exact.golden;
  }
  /// After how many tokens states of `row` are known: ascending, without 0.
  [[nodiscard]] std::vector<std::int64_t> known(std::int64_t row) const;
  /// The ledger of `row` after that many of its tokens; 0: as it started.
  [[nodiscard]] Known after(std::int64_t row, std::int64_t tokens) const;
  /// What a stored state of `row` may be after that many of its tokens.
  [[nodiscard]] Allowed allowed(std::int64_t row, std::int64_t tokens) const;

 private:
  struct Place {
    const verdict::Expected* expected;
    const char* name;
    std::size_t first;
  };
  [[nodiscard]] Place place(std::int64_t row, std::int64_t tokens) const;
  /// State and errors after the tokens, with nothing of what this call adds.
  [[nodiscard]] Ledger carried(const Place& at, std::int64_t row, std::int64_t tokens) const;

  const contract::Contract* contract_;
  Layout layout_;
  call::Record record_;
  call::Plan plan_;
  std::vector<Known> starts_;
  verdict::Expectations expected_;
  std::vector<verdict::Expectations> moved_;  // noise, one per run
};

}  // namespace goldenrule::chain
