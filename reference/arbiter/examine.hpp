// SPDX-License-Identifier: Apache-2.0
//
// The arbiter: what a capture is asked, and the report that answers. Verdict, explanation, the
// tightest contract that is kept, error maps, blind spots, terms of single budgets and stages come
// from one judgement, so that whoever asks (the program, the Python package, a test in C++) is told
// the same.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "reference/arbiter/limits.hpp"
#include "reference/report/report.hpp"
#include "reference/verdict/work.hpp"

namespace goldenrule::arbiter {

/// Why a record is out of budget; nothing where it is not.
[[nodiscard]] std::optional<explain::Diagnosis> explain_failure(
    const verdict::Judgement& judgement, const explain::SearchLimit& effort = {.seconds = {}});

/// The tightest built-in contract that the record keeps: where it is out of budget, and where it is
/// so far within that the contract says little. All that are tried take no longer, as estimated,
/// than an explanation may.
[[nodiscard]] std::optional<explain::Permit> find_permit(const verdict::Judgement& judgement,
                                                         const explain::SearchLimit& effort = {
                                                             .seconds = {}});

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
  std::optional<verdict::WorkLimit> work{};       ///< of the verdict and stages
};

/// The report of a call. Throws Error.
[[nodiscard]] report::FileReport examine(call::Record record, const Examination& asked);

[[nodiscard]] verdict::CaseReport error_report(const Error& error);

/// The report of a file: what of `asked` depends on the file (its stages, how long is looked for a
/// mistake, the verdict's work) is taken from it and from `limits`. A file that cannot be judged is
/// a report, kError with the reason: this throws nothing.
[[nodiscard]] report::FileReport examine_file(const std::string& file, Examination asked,
                                              const Limits& limits = {});

}  // namespace goldenrule::arbiter
