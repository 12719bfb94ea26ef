// SPDX-License-Identifier: Apache-2.0
//
// Verdicts on tensors. An element passes when
//
//   |y - golden| <= radius + budget,   budget = multiple sigma + bias + half an ulp of storage,
//
// with golden and its certified radius from the oracle, sigma and bias from the contract
// (bounds/running.hpp) and the ulp taken at |golden| + multiple sigma + bias, where the kernel's
// unrounded result may lie. A tensor passes when every element does: no norm over the tensor, no
// cosine, no share of elements that may be wrong. Where the exact result is not finite (the inputs
// hold NaN or Inf) the kernel's must not be finite either; NaN and Inf anywhere else are findings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/bounds/contract.hpp"
#include "reference/oracle/evaluate.hpp"

namespace goldenrule::verdict {

enum class Verdict {
  kExact,         ///< every element is the exact result correctly rounded to its type
  kWithinBudget,  ///< every element is within its budget
  kOutOfBudget,   ///< at least one element is not
  kMistrusted,    ///< a pass that says nothing: the budget is as large as the signal
  kSkipped,       ///< not judged; the reason says why
  kError,         ///< could not be judged; the reason says why
};

[[nodiscard]] std::string_view name_of(Verdict verdict);

/// The element with the largest ratio of error to budget (the first that is not finite, if any;
/// the one with the largest error where there is no budget).
struct Worst {
  call::Shape index;
  double value = 0.0, golden = 0.0, error = 0.0, budget = 0.0, ulps = 0.0;
};

/// Elements by |y - golden| in ulps of the stored type: [0] at most 1/2, [b] at most 2^(b-1), the
/// last everything beyond.
inline constexpr int kUlpBuckets = 26;

/// What is wrong in one index of the leading axis (a token of o in prefill, a batch row, a slot).
struct RowFindings {
  std::int64_t row = 0;
  std::int64_t out_of_budget = 0;
  std::int64_t nan = 0;
  std::int64_t elements = 0;  ///< of this row
};

struct TensorReport {
  std::string name;
  Verdict verdict = Verdict::kSkipped;
  std::string reason;  ///< for kMistrusted, kSkipped, kError
  call::DType dtype = call::DType::kF32;
  call::Shape shape;
  std::int64_t compared = 0;       ///< elements judged
  std::int64_t undefined = 0;      ///< elements that no kernel writes (rows of padded requests)
  std::int64_t out_of_budget = 0;  ///< elements beyond radius + budget, NaN and Inf included
  std::int64_t undecided = 0;      ///< elements that pass only thanks to the oracle's radius
  std::int64_t nan = 0, inf = 0;   ///< where the exact result is finite
  std::int64_t unwritten = 0;      ///< NaN elements whose whole last-axis row is NaN
  double max_abs = 0.0;            ///< largest |y - golden| over finite elements
  double rms_rel = 0.0;            ///< sqrt(sum |y - golden|^2 / sum golden^2), finite elements
  double bias = 0.0;           ///< sum (y - golden) / sum |y - golden|: 0 unbiased, +-1 one-sided
  double max_ratio = 0.0;      ///< max (|y - golden| - radius) / budget; infinite for NaN
  double median_ratio = 0.0;   ///< both are NaN where the contract has no budget
  std::optional<Worst> worst;  ///< absent when nothing was compared
  std::array<std::int64_t, kUlpBuckets> ulp_histogram{};
  std::vector<RowFindings> failing_rows;  ///< rows with a finding, ascending
};

/// Judges `output` against `expected` under `contract`. Where the contract gives no budget for this
/// tensor the errors are reported and the verdict is kSkipped with the reason.
[[nodiscard]] TensorReport judge(const std::string& name, const call::Tensor& output,
                                 const oracle::Expected& expected,
                                 const bounds::Contract& contract);

struct CaseReport {
  Verdict verdict = Verdict::kSkipped;
  std::string reason;
  std::string contract;
  int precision_bits = 0;
  std::int64_t nonfinite_inputs = 0;  ///< NaN and Inf among the floating-point inputs
  std::vector<TensorReport> tensors;
};

/// Judges every tensor in record.outputs. `precision` absent: starts in double and moves to a wider
/// tier while any element is undecided. Throws Error on records that make no sense.
[[nodiscard]] CaseReport judge_record(const call::Record& record, const bounds::Contract& contract,
                                      std::optional<scalar::Precision> precision);

/// A report and the expectations that it was made from, for those who ask why (explain/).
struct Judgement {
  CaseReport report;
  oracle::Evaluation evaluation;
};

/// judge_record, with what it knows.
[[nodiscard]] Judgement judgement(const call::Record& record, const bounds::Contract& contract,
                                  std::optional<scalar::Precision> precision);

/// The verdict of a whole from those of its parts: out-of-budget dominates, then error, mistrusted,
/// skipped; a whole of passes is EXACT only if all parts are. Skipped parts (an empty tensor) do
/// not matter beside a judged one.
[[nodiscard]] Verdict combine(const std::vector<Verdict>& parts);

}  // namespace goldenrule::verdict
