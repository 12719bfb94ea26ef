// SPDX-License-Identifier: Apache-2.0
//
// What the Python package asks of the library, in terms of the library: nothing of an interpreter
// stands here, so that all of it may run without its lock. The answers to people are those of the
// program, text and JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fixtures/call/record.hpp"
#include "reference/arbiter/examine.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/verdict/coordinates.hpp"
#include "reference/verdict/memory.hpp"
#include "reference/verdict/stages.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::python {

/// There is not enough memory to judge a call.
class TooLarge : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How a call is to be judged, as a caller says it.
struct Asked {
  std::string name;       ///< of the call, in its report
  std::string contract;   ///< a built-in one, a .json file, or JSON; empty: what the call implies
  std::string precision;  ///< auto, double, quad or multi
  std::vector<std::string> only, terms;
  bool explain = true, blind = false;
  std::optional<double> explain_seconds{};
};

struct Judged {
  std::string text;  ///< as `goldenrule check` prints it
  std::string json;  ///< as it writes it
};

/// A contract with all its roundings; `text` is as in Asked. Throws Error for one that calls of
/// `op` cannot be judged by; empty: any operation.
[[nodiscard]] std::string contract_json(const std::string& text, const std::string& op);

/// Throws Error for a call or a question that makes no sense.
[[nodiscard]] Judged judge(call::Record record, std::optional<verdict::KernelStages> stages,
                           const Asked& asked);

/// An output as it must be; values are in storage order. NaN: no kernel writes the element.
struct ExpectedOutput {
  call::Shape shape;
  std::vector<double> golden;
  std::vector<float> radius;
  std::vector<double> budget;  ///< empty: the contract gives none
};

struct ExpectedCall {
  std::string contract;
  int precision_bits = 0;
  std::map<std::string, ExpectedOutput> outputs;
};

/// What every output of the call must be, in the types that an honest kernel stores; outputs of the
/// record say in which types this one does. Throws Error.
[[nodiscard]] ExpectedCall expected(const call::Record& record, const Asked& asked);

/// Relations between two calls of one kernel, and how they are asked.
struct AskedRelations {
  std::vector<std::string> names;
  std::string contract;   ///< as in Asked
  bool same_bits = true;  ///< of a row wherever it stands in the batch; else within both budgets
  int repeats = 1;        ///< of calls that are made again
};

/// An element of the original call that a relation does not hold for, or the first of several.
struct Departure {
  std::string tensor;
  std::int64_t violations = 0;  ///< elements of the tensor
  verdict::Coordinates first;
  verdict::Worst worst;              ///< value: in the call, golden: in the other one
  verdict::Coordinates coordinates;  ///< of worst
};

struct RelationRow {
  std::string name, meaning;
  bool applies = false, bits = false;  ///< bits: they had to be the same
  std::int64_t compared = 0;
  double bound_to_signal = 0.0;
  std::vector<Departure> departures;
};

/// Tries the relations in their order; those that say nothing of the call are not made. Throws
/// Error, for operations that are not the delta rule or its backward pass too, and what the kernel
/// throws.
[[nodiscard]] std::vector<RelationRow> relations_of(const call::Record& record,
                                                    const calls::Kernel& kernel,
                                                    const AskedRelations& asked);

/// Refuses a call that would need more memory than there is, before its tensors are copied. Throws
/// TooLarge.
void admit(const verdict::Declared& call, bool explained);

/// Refuses tensors of so many bytes, where they alone are more memory than there is: before they
/// are put into one piece. Throws TooLarge.
void admit_tensors(double bytes);

/// One case of a suite, before its tensors are made.
struct CaseRow {
  std::string line, op, mode, pattern, stem;
  std::int64_t golden_bytes = 0;
};

/// Of a suite by its name, or of a case line with or without braces. Throws Error.
[[nodiscard]] std::vector<CaseRow> cases_of(const std::string& what);

}  // namespace goldenrule::python
