// SPDX-License-Identifier: Apache-2.0
//
// Verdicts on tensors. An element passes when
//
//   |y - golden| <= radius + budget,   budget = multiple sigma + bias + half an ulp of storage,
//
// with golden and its certified radius from the oracle, sigma and bias from the contract
// (the operation's budget, see slice.hpp) and the ulp taken at |golden| + multiple sigma + bias,
// where the kernel's unrounded result may lie. A tensor passes when every element does: no norm
// over the tensor, no cosine, no share of elements that may be wrong. Where the exact result is not
// finite because an input is not, the kernel's must not be finite either; NaN and Inf anywhere else
// are findings.
//
// A pass says nothing, and is none, where
//   - elements pass only thanks to the oracle's radius in the widest tier: MISTRUSTED;
//   - the radius or the budget is infinite or NaN: ERROR, with the place;
//   - in some row (token, slot) and head that the rule computes, what the contract grants is as
//     large as the signal: MISTRUSTED. Both are root mean squares over the elements of that row and
//     head; the signal of o is its size, or the size that it has for a q of that length in a random
//     direction, if that is larger: a q orthogonal to the state is read as accurately as any. The
//     signal of a state is its size. Rows that the rule does not compute have none. Rounding to the
//     storage type does not count here, since nothing but the right number or its neighbour passes
//     by it; over the whole tensor it does (an fp16 output of 1e-9 says nothing). Nor does what is
//     below the range of fp32;
//   - every exact value that the rule computes is 0: MISTRUSTED, the untouched buffer passes too.
//     Of outputs that are integers neither this nor the size of the signal counts: they are right
//     or they are not;
//   - no expectation is finite, the call applies the rule to no token, or an output that the call
//     produces is not there: SKIPPED.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/contract/contract.hpp"
#include "reference/verdict/coordinates.hpp"
#include "reference/verdict/slice.hpp"

namespace goldenrule::verdict {

enum class Verdict {
  kExact,         ///< every element is the exact result correctly rounded to its type
  kWithinBudget,  ///< every element is within its budget
  kOutOfBudget,   ///< at least one element is not
  kMistrusted,    ///< a pass that says nothing; the reason says why
  kSkipped,       ///< not judged; the reason says why
  kError,         ///< could not be judged; the reason says why
};

[[nodiscard]] std::string_view name_of(Verdict verdict);

[[nodiscard]] constexpr bool is_pass(Verdict verdict) {
  return verdict == Verdict::kExact || verdict == Verdict::kWithinBudget;
}

/// The element with the largest ratio of error to budget (the first that is not finite, if any;
/// the one with the largest error where there is no budget).
struct Worst {
  call::Shape index;
  Coordinates coordinates{};  ///< the same, named: filled in by judgement
  double value = 0.0, golden = 0.0, error = 0.0, budget = 0.0, ulps = 0.0;
};

/// Elements by |y - golden| in ulps of the stored type: [0] at most 1/2, [b] at most 2^(b-1), the
/// last everything beyond.
inline constexpr int kUlpBuckets = 26;

/// Elements by error over budget: [0] exactly 0, [b] at most 2^(b-25), the last everything beyond,
/// but for what is not finite. Those above [25] are out of budget.
inline constexpr int kRatioBuckets = 50;
inline constexpr int kRatioOne = 25;  ///< the last bucket within budget

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
  std::int64_t compared = 0;       ///< elements with a finite expectation, or a right infinity
  std::int64_t nonfinite = 0;      ///< elements whose exact result is not finite, as inputs are not
  std::int64_t undefined = 0;      ///< elements that are not compared: Exact::undefined
  std::int64_t out_of_budget = 0;  ///< elements beyond radius + budget, NaN and Inf included
  std::int64_t undecided = 0;      ///< elements that pass only thanks to the oracle's radius
  std::int64_t unbounded = 0;      ///< elements whose radius or budget is infinite or NaN
  std::int64_t vacuous = 0;        ///< rows and heads whose budget is as large as their signal
  call::Shape first_unjudged;      ///< index of the first element of these; empty: none
  Coordinates first_unjudged_at;   ///< the same, named: filled in by judgement
  std::int64_t nan = 0, inf = 0;   ///< where the exact result is finite
  std::int64_t unwritten = 0;      ///< NaN elements whose whole last-axis row is NaN
  double max_abs = 0.0;            ///< largest |y - golden| over finite elements
  double rms_rel = 0.0;            ///< sqrt(sum |y - golden|^2 / sum golden^2), finite elements
  double bias = 0.0;           ///< sum (y - golden) / sum |y - golden|: 0 unbiased, +-1 one-sided
  double max_ratio = 0.0;      ///< max (|y - golden| - radius) / budget; infinite for NaN
  double median_ratio = 0.0;   ///< both are NaN where the contract has no budget
  std::optional<Worst> worst;  ///< absent when nothing was compared
  std::array<std::int64_t, kUlpBuckets> ulp_histogram{};
  std::array<std::int64_t, kRatioBuckets> ratio_histogram{};  ///< zeros without a budget
  std::vector<RowFindings> failing_rows;                      ///< rows with a finding, ascending
  std::string row_word;  ///< "slot": what they count, filled in by judgement
};

/// Judges `output` against `expected` under `contract`. Where the contract gives no budget for this
/// tensor the errors are reported and the verdict is kSkipped with the reason.
[[nodiscard]] TensorReport judge(const std::string& name, const call::Tensor& output,
                                 const Expected& expected, const contract::Contract& contract);

struct CaseReport {
  Verdict verdict = Verdict::kSkipped;
  std::string reason;
  /// Why the oracle bounds some elements by nothing that says something, where the inputs tell.
  std::string likely_cause;
  std::string op, mode, source, case_line;  ///< of the record
  std::string contract;
  int precision_bits = 0;
  std::int64_t nonfinite_inputs = 0;  ///< NaN and Inf among the floating-point inputs
  std::vector<std::string> absent;    ///< outputs that the call produces and the record lacks
  std::vector<TensorReport> tensors;
};

/// What is asked of a record.
struct Question {
  /// Absent: what the call implies, or what the record claims where that is no wider.
  std::optional<contract::Contract> contract{};
  /// Absent: double, and a wider tier while any element is undecided or unbounded.
  std::optional<scalar::Precision> precision{};
  /// The outputs to judge, all of which must be there; empty: all that are there.
  std::vector<std::string> only{};
  /// Where `only` is empty, the outputs that must be there; empty: those that the call produces, o
  /// and final_state unless its update is disabled.
  std::vector<std::string> wanted{};
};

/// A report and everything that it was made from, for those who ask why (explain/).
struct Judgement {
  const Slice* slice = nullptr;
  /// As it was judged: without outputs that were not asked for, each output in the narrowest type
  /// that holds its numbers (call/widening.hpp).
  call::Record record;
  contract::Contract contract;
  std::string contract_origin;  ///< how it was chosen, and what the record claims
  CaseReport report;
  Expectations expected;  ///< of record.outputs
};

/// Judges a record. Throws Error on records that make no sense, and Error(kArgument) for outputs in
/// `only` that no call has.
[[nodiscard]] Judgement judgement(const Slice& slice, call::Record record,
                                  const Question& question = {});

/// The same, without what it is made from.
[[nodiscard]] CaseReport judge_record(const Slice& slice, call::Record record,
                                      const Question& question = {});

/// The verdict of a whole from those of its parts: out-of-budget dominates, then error, mistrusted,
/// skipped; a whole of passes is EXACT only if all parts are. No parts: SKIPPED.
[[nodiscard]] Verdict combine(const std::vector<Verdict>& parts);

}  // namespace goldenrule::verdict
