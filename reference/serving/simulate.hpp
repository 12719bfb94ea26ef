// SPDX-License-Identifier: Apache-2.0
//
// A simulated server: the steps of a schedule carried out on a pool of states by an honest kernel
// of the contract that each call implies, emulated. What comes out is a chain of calls as a real
// server would have recorded it, one call at a time, so that a chain of any length needs no more
// memory than its pool, its snapshots and one call.
//
// The tokens of a request are one sequence of a case (fixtures/cases): token t of request r has the
// same numbers in whatever call it comes. Rejected tokens of an MTP call are of another sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fixtures/cases/delta_scenario.hpp"
#include "reference/chain/call.hpp"

namespace goldenrule::serving {

struct Simulated {
  std::int64_t calls = 0;
  std::int64_t tokens = 0;     ///< of requests, in all calls
  std::int64_t occasions = 0;  ///< calls before or in which the mistake was made
  std::int64_t first = -1;     ///< the first of them; -1: none
};

/// Hands each call to `sink` in order until that returns false. Throws Error(kArgument) for an
/// unknown mistake.
Simulated simulate(const cases::Scenario& scenario,
                   const std::function<bool(chain::Call&& call)>& sink);

/// How many calls have an occasion for the mistake of the scenario, from the schedule alone.
[[nodiscard]] std::int64_t occasions(const cases::Scenario& scenario);

/// Bytes that the simulation of a line needs at most, from the line alone.
[[nodiscard]] double memory_needed(const cases::Scenario& scenario);

/// "chain_gdn_R6_C40_1a2b3c4d": the name of a chain, distinct for distinct lines up to a 32-bit
/// hash.
[[nodiscard]] std::string chain_name(const cases::Scenario& scenario);

}  // namespace goldenrule::serving
