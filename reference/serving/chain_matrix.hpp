// SPDX-License-Identifier: Apache-2.0
//
// The kill table of chains: every mistake of a server is made in every scenario, and the judge of
// chains is shown the calls. A mistake counts in a scenario where it changes a bit of what was
// recorded; there it must be seen, and named where the judge has a name for it. Every call by
// itself is right, and the table says so too. The honest server of every scenario must pass.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/cases/delta_scenario.hpp"
#include "reference/chain/finding.hpp"
#include "reference/serving/mistakes.hpp"

namespace goldenrule::serving {

/// One mistake over all scenarios.
struct ChainRow {
  const ServerMistake* mistake = nullptr;
  int made = 0;                      ///< scenarios in which it changes what is recorded
  int seen = 0;                      ///< ... and the judge says so
  int named = 0;                     ///< ... and what it says first has the name of the mistake
  int alone = 0;                     ///< calls that are refused by themselves, in all of them
  std::vector<std::string> unseen;   ///< lines in which it is not seen
  std::vector<std::string> unnamed;  ///< lines in which it is called otherwise, and how
};

/// What the judge says of an honest server.
struct ChainAlarm {
  std::string line;
  chain::Finding finding;
};

struct ChainMatrix {
  std::vector<ChainRow> rows;  ///< in the order of the table
  std::vector<ChainAlarm> false_alarms;
  int chains = 0;          ///< honest ones
  std::int64_t calls = 0;  ///< of them

  /// Every mistake is seen and named wherever it is made, and made somewhere; no false alarm.
  [[nodiscard]] bool holds() const;
};

struct ChainMatrixOptions {
  std::vector<cases::Scenario> scenarios;        ///< honest
  std::vector<std::string> mistakes;             ///< empty: all
  std::optional<contract::Contract> contract{};  ///< absent: what each call implies
  /// Called before each chain, by one thread at a time: its number from 0, how many there are, its
  /// line.
  std::function<void(std::size_t, std::size_t, const std::string&)> begin_chain{};
};

/// Bytes that simulating and judging one of them needs at most; a thread has one.
[[nodiscard]] double memory_to_judge(const cases::Scenario& scenario);

[[nodiscard]] ChainMatrix chain_matrix(const ChainMatrixOptions& options);

}  // namespace goldenrule::serving
