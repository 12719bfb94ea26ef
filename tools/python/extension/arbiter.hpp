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
#include "reference/verdict/memory.hpp"
#include "reference/verdict/stages.hpp"
#include "tools/cli/judging.hpp"

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

/// Refuses a call that would need more memory than there is, before its tensors are copied. Throws
/// TooLarge.
void admit(const verdict::Declared& call, bool explained);

/// Refuses tensors of so many bytes, where they alone are more memory than there is: before they
/// are put into one piece. Throws TooLarge.
void admit_tensors(double bytes);

/// One case of a suite, before its tensors are made.
struct CaseRow {
  std::string line, op, mode, family, stem;
  std::int64_t golden_bytes = 0;
};

/// Of a suite by its name, or of a case line with or without braces. Throws Error.
[[nodiscard]] std::vector<CaseRow> cases_of(const std::string& what);

}  // namespace goldenrule::python
