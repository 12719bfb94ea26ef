// SPDX-License-Identifier: Apache-2.0
//
// What all that judge a call share, `check`, `diff` and the Python package: the choice of a
// contract and a tier, what belongs to a report, and its end.
#pragma once

#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "reference/contract/contract.hpp"
#include "reference/report/report.hpp"
#include "reference/scalar/precision.hpp"
#include "reference/verdict/work.hpp"
#include "tools/cli/commands.hpp"

namespace goldenrule::tools {

/// auto (nullopt), double, quad or multi; Error(kArgument) otherwise.
[[nodiscard]] std::optional<scalar::Precision> parse_precision(const std::string& name);

/// The contract `name`, a built-in one or a .json file: the one place where such a file is loaded.
/// Reports print its name and fixtures make a group of it, so it must be printable ASCII and may
/// not be that of a built-in contract, which would lend it a trust that it has not earned. Throws
/// Error.
[[nodiscard]] contract::Contract named_contract(const std::string& name);

/// Whether a built-in contract has this name.
[[nodiscard]] bool is_built_in(const std::string& contract);

/// How long an explanation may be looked for: the given seconds, else ten times what the verdict
/// took, or five where that is more, but no longer than `most_seconds`. A verdict that is not timed
/// began with the program.
struct ExplainEffort {
  using Clock = std::chrono::steady_clock;
  std::optional<double> seconds{};
  double most_seconds = std::numeric_limits<double>::infinity();
  Clock::time_point judging_since = program_start();
  Clock::time_point judged = Clock::now();

  [[nodiscard]] static Clock::time_point program_start();
  [[nodiscard]] double limit() const;
};

/// Why a record is out of budget; nothing where it is not.
[[nodiscard]] std::optional<explain::Diagnosis> explain_failure(const verdict::Judgement& judgement,
                                                                const ExplainEffort& effort = {});

/// The tightest built-in contract that the record keeps: where it is out of budget, and where it is
/// so far within that the contract says little. All that are tried take no longer, as estimated,
/// than an explanation may.
[[nodiscard]] std::optional<explain::Permit> find_permit(const verdict::Judgement& judgement,
                                                         const ExplainEffort& effort = {});

/// What is asked of a call.
struct Examination {
  verdict::Question question{};
  bool explain = true;  ///< a failure ends with where it fails and why
  std::optional<double> explain_seconds{};
  double most_explain_seconds = std::numeric_limits<double>::infinity();  ///< where none are given
  bool blind = false;                ///< adds what the call cannot show
  std::vector<std::string> terms{};  ///< "o[1,3,0,7]": elements whose budget is shown term by term
  bool maps = false;                 ///< adds where the errors of outputs are that fail
  std::optional<verdict::KernelStages> stages{};  ///< intermediate results of the kernel
  ExplainEffort::Clock::time_point since = ExplainEffort::Clock::now();  ///< the verdict began
  std::optional<verdict::WorkLimit> work{};  ///< of the verdict and stages
};

/// The report of a call. Throws Error.
[[nodiscard]] report::FileReport examine(call::Record record, const Examination& asked);

[[nodiscard]] verdict::CaseReport error_report(const Error& error);

/// A report must not replace what it reports on, nor another report. Throws Error(kArgument).
void refuse_overwriting(const std::vector<std::string>& inputs, const ReportFiles& reports);

/// Prints the summary of more than one file, writes the reports that are wanted and returns the
/// exit code.
[[nodiscard]] int finish(const std::vector<report::FileReport>& files, const report::Run& run,
                         const ReportFiles& wanted);

/// Replaces `path` by `text`; whoever reads it meanwhile has all of the old or all of the new text,
/// unless it is a link, a pipe or a device. Throws Error(kFile).
void write_text(const std::string& path, const std::string& text);

/// The options that name a contract and outputs, as the end of a command line.
[[nodiscard]] std::string judged_by(const std::string& contract,
                                    const std::vector<std::string>& only);

/// A word as a shell takes it back: quoted where it must be, and never an option.
[[nodiscard]] std::string shell_word(const std::string& word);

}  // namespace goldenrule::tools
