// SPDX-License-Identifier: Apache-2.0
//
// The way of most calls of a long chain: none of their states is stored, so nothing is asked of
// them but the ledgers with which their requests go on. What Step (step.hpp) computes through
// tensors of the whole call, one after the other (exact states, radius, grant, moved noise), is
// done here tile by tile: the columns of a tile are taken through their tokens with certificate,
// running error and noise while they lie in the nearest cache, and only the ledger is written. It
// is made of the same parts in the same order, so the ledger has the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/chain/ledger.hpp"

namespace goldenrule::chain {

class Carry {
 public:
  /// Whether its rows can be taken so: the grant of the contract is followed token by token, and
  /// each token continues the one before it.
  [[nodiscard]] static bool serves(const contract::Contract& contract, const call::Record& tokens);

  /// Of a call of `rows` rows.
  Carry(const contract::Contract& contract, const Layout& layout, const call::Record& tokens,
        std::int64_t rows);

  /// The ledger of `row` after so many of its tokens, 0: as it started. nullptr where a NaN or Inf
  /// reaches the state: of these Step knows more.
  [[nodiscard]] Known after(std::int64_t row, const Known& start, std::int64_t tokens) const;

 private:
  struct Work;
  struct Place;
  void run_tile(const delta::Lane<double>& lane, const double* v, const Place& at,
                const Ledger& start, Ledger& ledger, Work& work) const;
  void move_noise(const delta::Lane<double>& lane, const Place& at, const Ledger& start, bool any,
                  Ledger& ledger, Work& work) const;

  const contract::Contract& contract_;
  const Layout& layout_;
  call::Record tokens_;
  call::Plan plan_;
  delta::CallInputs inputs_;
};

}  // namespace goldenrule::chain
