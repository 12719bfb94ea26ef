// SPDX-License-Identifier: Apache-2.0
//
// One call run from the ledgers of its rows: the exact states that it leaves, what a stored state
// may be beside them, and the ledgers with which its requests go on (ledger.hpp has the
// mathematics).
//
// Outputs. o_t = q^_t^T S_t, and the start that a server has is off from the exact one by E: with
// M_t the linear map of the tokens that lead to t, itself among them, o_t is off by q^_t^T M_t E
// beside what the call adds. The parts of E that the ledger carries move as they move a state:
//
//   random  Each run of the noise, taken through the tokens as a start state with v = 0, returns
//           n_tx = q^_t^T M_t N_x as its o. What multiplies N_x is the same for all columns x, so
//           the V values of a token and head are a row like that of a key of the state:
//           sigma_tx^2 = s_x^2 mean_x (n_tx^2 / s_x^2) over the runs, s_x the norm of N_x.
//   bias, error of the oracle
//           |q^_t^T M_t e_x| <= ||q^_t|| rho_t ||e_x||, rho_t the product of the transports.
//
// So o may be off by its own budget and radius, lambda / sqrt(q) sigma_tx, and these two bounds.
// Where that is as large as what q reads of a state in a random direction, o says nothing.
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
  /// What o of the call may be after starts as the ledgers have them; undefined in rows without.
  [[nodiscard]] verdict::Expected outputs_from_ledgers() const;
  /// Which states of `row` are known, named as in Snapshot::after: ascending, without 0.
  [[nodiscard]] std::vector<std::int64_t> known(std::int64_t row) const;
  /// The ledger of `row` at state `after`; 0: as it started.
  [[nodiscard]] Known after(std::int64_t row, std::int64_t after) const;
  /// What a stored state `after` of `row` may be.
  [[nodiscard]] Allowed allowed(std::int64_t row, std::int64_t after) const;

 private:
  struct Place {
    const verdict::Expected* expected;
    const char* name;
    std::size_t first;
  };
  void add_carried(std::int64_t row, double multiple, verdict::Expected& o) const;
  [[nodiscard]] Place place(std::int64_t row, std::int64_t after) const;
  /// State and errors at a state, with nothing of what this call adds.
  [[nodiscard]] Ledger carried(const Place& at, std::int64_t row, std::int64_t after) const;
  /// f(tokens, dims, first, count) for the tokens that lead to a state: in a tree its ancestors
  /// alone, one after the other.
  template <class F>
  auto along_path(std::int64_t row, std::int64_t after, F&& f) const;

  const contract::Contract* contract_;
  Layout layout_;
  call::Record record_;
  call::Plan plan_;
  std::vector<Known> starts_;
  verdict::Expectations expected_;
  std::vector<verdict::Expectations> moved_;  // noise, one per run
};

}  // namespace goldenrule::chain
