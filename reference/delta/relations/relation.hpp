// SPDX-License-Identifier: Apache-2.0
//
// Metamorphic relations: what must hold between the outputs of one kernel on related calls. They
// need no exact result, so they see what an oracle and a kernel may have wrong together, and they
// run on any kernel that can be called.
//
// Most relations ask for the same call to be made in another way: the exact results are the same
// numbers, and two kernels' results (or one kernel's, added up in another order) differ by at most
// the sum of what the contract grants each call. Some need no tolerance, because the operations
// and their operands stay the same:
//
//   same bits        the transformed call runs the same operations on the same numbers (or on
//                    numbers multiplied by 2^n, which commutes with every rounding that neither
//                    over- nor underflows), in the same places of the batch;
//   same bits        ... in other places of the batch: the same bits only from a kernel whose
//   if invariant     order of summation does not depend on where in the batch a row or head
//                    stands. From others: within the sum of both budgets;
//   budget           another order of summation: within the sum of the budgets of all calls.
//
// "Same bits" is equality of numbers: the sign of a zero and the payload of a NaN do not count.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/calls/kernel.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/coordinates.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::relations {

using calls::Kernel;

enum class Demand { kSameBits, kSameBitsIfInvariant, kBudget };

class Trial;

struct Relation {
  std::string_view name;
  std::string_view meaning;  ///< one sentence: what must correspond
  Demand demand;
  /// Whether the relation says anything about this call.
  bool (*applies)(const call::Record& record, const contract::Contract& contract);
  /// Makes the transformed calls and claims what must correspond (trial.hpp).
  void (*state)(Trial& trial);
  /// The mode of the transformed calls; absent: that of the original.
  std::optional<call::Mode> mode = {};
};

/// Every relation, in the order of the documentation.
[[nodiscard]] std::span<const Relation> table();

/// What a relation finds in one output tensor of the original call.
struct Finding {
  std::string tensor;
  std::int64_t violations = 0;  ///< elements that break the relation
  call::Shape first;            ///< the first of them
  /// The one with the largest error over bound: value and golden are the two sides (actual,
  /// expected), budget is the bound: 0 where the same bits are demanded.
  verdict::Worst worst;
  verdict::Coordinates coordinates;  ///< of worst
};

struct Outcome {
  std::string_view relation;
  std::int64_t compared = 0;  ///< elements that the relation said something about
  /// rms of the bounds over rms of the values, over all that was compared: from 1 on the relation
  /// says nothing. 0: the same bits.
  double bound_to_signal = 0.0;
  std::vector<Finding> findings;

  [[nodiscard]] bool holds() const { return compared > 0 && findings.empty(); }
};

struct Options {
  /// The bits of a row and head do not depend on where in the batch it stands.
  bool batch_invariant = true;
  /// What the kernel serves: check_all leaves out relations whose calls have another mode.
  std::vector<call::Mode> modes = {call::Mode::kDecode, call::Mode::kMtp, call::Mode::kPrefill};
  /// How often a stream makes its call again where repeats are compared.
  int repeats = 1;
  /// Calls in flight at once there. Above 1 the kernel is called from as many threads at the same
  /// time, and should launch on a stream of each.
  int streams = 1;
};

/// Whether the same bits are demanded, of a kernel with these options.
[[nodiscard]] constexpr bool demands_bits(const Relation& relation, const Options& options) {
  return relation.demand == Demand::kSameBits ||
         (relation.demand == Demand::kSameBitsIfInvariant && options.batch_invariant);
}

/// Tries one relation that applies. `kernel` is called with the record and with transformed ones:
/// other modes, other numbers of rows, NaN among the inputs; an output in f64 is taken as a kernel
/// under `contract` stores it (calls::stored), one of another type as it is. Throws Error as
/// call::make_plan does, Error(kSchema) and Error(kShape) for outputs that are missing or of
/// another shape, and what the kernel throws.
[[nodiscard]] Outcome check(const Relation& relation, const call::Record& record,
                            const Kernel& kernel, const contract::Contract& contract,
                            Options options = {});

/// Tries every relation that applies and whose calls the kernel serves.
[[nodiscard]] std::vector<Outcome> check_all(const call::Record& record, const Kernel& kernel,
                                             const contract::Contract& contract,
                                             Options options = {});

}  // namespace goldenrule::relations
