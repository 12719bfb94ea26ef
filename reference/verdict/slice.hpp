// SPDX-License-Identifier: Apache-2.0
//
// What one family of operations gives to the parts that know none: how its calls are evaluated,
// what a contract grants, how an honest kernel under it is emulated, and what its authors get
// wrong. Verdicts, explanations, relations, suites and reports take a slice and the call; a new
// operation is a row in fixtures/call/families.hpp and one slice (reference/delta/slice.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/call/record.hpp"
#include "reference/calls/mistake.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/grants.hpp"
#include "reference/verdict/memory.hpp"

namespace goldenrule::verdict {

struct Judgement;   // verdict.hpp
struct StageSlice;  // stages.hpp

/// What a search says of a failing record's kernel, without a table.
struct Searched {
  std::vector<std::string> texts;  ///< one for each finding, which reproduces what it speaks of
  bool whole = false;  ///< a kernel as found returns every element of the record, failing or not
};

struct Slice {
  /// The exact outputs of a call in one tier; nothing is granted. Throws Error for a call that
  /// makes no sense; bitwise independent of the thread count.
  Expectations (*evaluate)(const call::Record& record, scalar::Precision precision,
                           const EvaluationOptions& options);
  /// Fills in what `contract` grants the outputs in `expected`, the evaluation of this record.
  void (*grant)(const call::Record& record, const contract::Contract& contract, GrantDetail detail,
                Expectations& expected);
  /// Core-seconds that this takes beyond an evaluation; nullptr: hardly any.
  double (*grant_seconds)(const call::Record& record, const contract::Contract& contract);
  /// Where a call has several right results, defines those elements of `expected`, the evaluation
  /// of this record, in which `outputs` is none of them (Exact::undefined). nullptr: it has one.
  void (*settle)(const call::Record& record, const call::TensorMap& outputs,
                 Expectations& expected);
  /// Where the grant of a large call is an estimate from few runs, makes it from more of them for
  /// the lanes in which finite elements of `outputs` are out of budget; what it says already is
  /// never lowered. nullptr: grants are no estimates, or of few elements.
  void (*confirm)(const call::Record& record, const contract::Contract& contract,
                  const call::TensorMap& outputs, Expectations& expected);
  /// The outputs, in f64, of an honest kernel under `contract`; `seed` chooses its freedoms.
  call::TensorMap (*emulate)(const call::Record& record, const contract::Contract& contract,
                             std::uint64_t seed);
  /// The known mistakes of its kernels, in the order of the documentation.
  std::span<const calls::Mistake> (*mistakes)();
  /// Mistakes that generators enumerate beside the table, tried where none of it explains a call.
  /// nullptr: there are none.
  std::span<const calls::Mistake> (*generated)();
  /// What the person who captured a failing record may have done wrong, what accounts for its
  /// failures first. Costs a few verdicts at most.
  std::vector<calls::CaptureMistake> (*capture_mistakes)(const Judgement& judgement);
  /// What a failing record's kernel does, found by search and not in a table. nullptr: nothing is
  /// sought.
  Searched (*find)(const Judgement& judgement);
  /// Why budgets of a call may say nothing, where its inputs tell; else empty. nullptr: they never
  /// do.
  std::string (*likely_cause)(const call::Record& record);
  /// The contract that a call implies by its mode and the types of its tensors.
  const contract::Contract& (*default_contract)(const call::Record& record);
  /// Memory that judging takes, from the shapes alone.
  Need (*memory_needed)(const Declared& call, int threads);
  /// The intermediate results of its kernels; nullptr: none that are known.
  const StageSlice* stages;
  /// Suites whose cases show between them in which calls each mistake can be made.
  std::span<const std::string_view> telling_suites;
};

/// The exact outputs of a call and what `contract` grants beside them.
[[nodiscard]] inline Expectations expect(const Slice& slice, const call::Record& record,
                                         const contract::Contract& contract,
                                         scalar::Precision precision,
                                         const EvaluationOptions& options = {},
                                         GrantDetail detail = GrantDetail::kSpread) {
  Expectations expected = slice.evaluate(record, precision, options);
  slice.grant(record, contract, detail, expected);
  admit_infinities(record, contract, expected);
  return expected;
}

/// Reads `expected`, made for this record, as it is to judge these outputs.
inline void settle(const Slice& slice, const call::Record& record, const call::TensorMap& outputs,
                   Expectations& expected) {
  if (slice.settle != nullptr) slice.settle(record, outputs, expected);
}

}  // namespace goldenrule::verdict
