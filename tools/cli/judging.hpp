// SPDX-License-Identifier: Apache-2.0
//
// What `check` and `diff` share: the choice of a contract and a tier, and the end of a report.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "reference/bounds/contract.hpp"
#include "reference/scalar/tier.hpp"
#include "tools/cli/report.hpp"

namespace goldenrule::tools {

/// auto (nullopt), double, quad or multi; Error(kArgument) otherwise.
[[nodiscard]] std::optional<scalar::Precision> parse_precision(const std::string& name);

/// The contract `name`, a built-in one or a .json file: the one place where such a file is loaded.
/// Reports print its name and fixtures make a group of it, so it must be printable ASCII and may
/// not be that of a built-in contract, which would lend it a trust that it has not earned. Throws
/// Error.
[[nodiscard]] bounds::Contract named_contract(const std::string& name);

/// Whether a built-in contract has this name.
[[nodiscard]] bool is_built_in(const std::string& contract);

/// The same, or without a name the contract of the record; `origin` says how it was chosen.
[[nodiscard]] bounds::Contract choose_contract(const std::string& name, const call::Record& record,
                                               std::string& origin);

/// Drops the outputs that `only` does not name. Throws Error(kArgument) for a name that is none.
void keep_only(const std::vector<std::string>& only, call::Record& record);

/// The tightest built-in contract that the record keeps: where it is out of budget, and where it is
/// so far within that the contract says little.
[[nodiscard]] std::optional<explain::Permit> find_permit(const call::Record& record,
                                                         const bounds::Contract& contract,
                                                         const verdict::CaseReport& report);

/// How long an explanation may be looked for: the given seconds, else ten times what the verdict
/// took, or five where that is more. A verdict that is not timed began with the program.
struct ExplainEffort {
  using Clock = std::chrono::steady_clock;
  std::optional<double> seconds{};
  Clock::time_point judging_since = program_start();
  Clock::time_point judged = Clock::now();

  [[nodiscard]] static Clock::time_point program_start();
};

/// Why a record is out of budget; nothing where it is not.
[[nodiscard]] std::optional<explain::Diagnosis> explain_failure(const call::Record& record,
                                                                const bounds::Contract& contract,
                                                                const verdict::Judgement& judgement,
                                                                const ExplainEffort& effort = {});

[[nodiscard]] verdict::CaseReport error_report(const Error& error);

/// A report must not replace what it reports on, nor the other report. Throws Error(kArgument).
void refuse_overwriting(const std::vector<std::string>& inputs, const std::string& json,
                        const std::string& junit);

/// Frees what a report does not need: coordinates want cu_seqlens and the conventions only.
void drop_tensors(call::Record& record);

/// Prints the summary of more than one file, writes the machine-readable reports and returns the
/// exit code.
[[nodiscard]] int finish(const std::vector<FileReport>& reports, const std::string& json,
                         const std::string& junit);

}  // namespace goldenrule::tools
