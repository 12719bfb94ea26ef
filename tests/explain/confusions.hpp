// SPDX-License-Identifier: Apache-2.0
//
// How often an explanation names the mistakes that were made. Kernels are the emulated ones of the
// call's contract, so a mistake is looked for under roundings that the explanation does not know.
//
// A name is right when the first explanation is the hypothesis that was made or one that is
// provably equal to it in this call: around the exact kernel both give the same outputs to a
// thousandth of the budget (Matcher::same_outputs). Mistakes that leave a call within its budget
// need no explanation and are not counted. Neither are those of which one cannot be seen: whose
// exact outputs are everywhere within a budget of what the call makes without it (where such a call
// is refused, the last straw was a rounding, and no mistake accounts for half of the error).
#pragma once

#include <string>
#include <vector>

#include "reference/explain/prediction.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::explain::test {

/// Calls in which different mistakes are visible: every gate, beta and layout, slots and padding,
/// tails in K, V and T, both operations, all three modes.
[[nodiscard]] const std::vector<std::string>& various_calls();

/// One call of each mode under every input pattern that it can express.
[[nodiscard]] std::vector<std::string> calls_of_patterns();

/// A call and what is expected of it, under the contract that it implies.
struct Call {
  std::string line;
  call::Record record;  ///< without outputs
  const contract::Contract* contract = nullptr;
  verdict::Expectations expected;
};
[[nodiscard]] Call expected_call(const std::string& line);

class Calls {
 public:
  explicit Calls(const std::vector<std::string>& lines);

  [[nodiscard]] std::size_t size() const { return calls_.size(); }
  [[nodiscard]] const Call& operator[](std::size_t i) const { return calls_[i]; }

 private:
  std::vector<Call> calls_;
};

/// Mistakes made together in one call, the outermost first.
struct Attempt {
  std::size_t call = 0;
  Hypothesis made;
};

struct Outcome {
  bool shown = false;  ///< some element leaves its budget, and for a pair: see above
  bool right = false;
  std::string named;    ///< the first explanation; "none"
  std::string details;  ///< of all explanations, where it is not right
};

[[nodiscard]] Outcome diagnosed(const Call& call, const Hypothesis& made);

/// "scale_missing + head_tiled"
[[nodiscard]] std::string name_of(const Hypothesis& made);

/// Diagnoses all attempts, in parallel. Outcomes do not depend on the number of threads.
[[nodiscard]] std::vector<Outcome> diagnose_all(const Calls& calls,
                                                const std::vector<Attempt>& attempts);

struct Score {
  int shown = 0, right = 0;
  [[nodiscard]] double share() const { return shown == 0 ? 0.0 : 1.0 * right / shown; }
};

/// Prints what was confused with what and where, and adds up.
Score print_confusions(const Calls& calls, const std::vector<Attempt>& attempts,
                       const std::vector<Outcome>& outcomes);

}  // namespace goldenrule::explain::test
