// SPDX-License-Identifier: Apache-2.0
//
// Judging what a kernel computed: against the oracle, element by element, under the contract that
// the kernel that serves it declares (LiveCall::contract).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu/live_call.hpp"

namespace goldenrule::test {

/// What happened to the cases under one contract.
struct Tally {
  int cases = 0;
  int judged_again = 0;  ///< a pass under the contract said nothing
  std::int64_t elements = 0;
  std::map<std::string, int> verdicts;
  std::map<std::string, double> worst;  ///< error / budget of each output
  std::map<std::string, std::string> worst_case;
};
using Tallies = std::map<std::string, Tally>;

/// "" or what is wrong with record.outputs under record.contract, or that of the recurrent kernels.
/// `exact`: every element has to be the exact result rounded once, as in an exact world (pattern
/// K), where no operation of an fp32 kernel rounds.
[[nodiscard]] std::string judge(const call::Record& record, bool exact, Tally& tally);

/// Runs and judges a case; "" or what is wrong, whatever it is.
[[nodiscard]] std::string run_case(const LiveCase& c, Tallies& tallies,
                                   Memory memory = Memory::kGuarded, const Kernel& kernel = {});
/// Likewise, "" or the line and what is wrong.
[[nodiscard]] std::string complaint_of(std::string_view line);

/// Prints a line for each contract and one for the worst element of each output.
void print(const std::string& name, const Tallies& tallies);

}  // namespace goldenrule::test
