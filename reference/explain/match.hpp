// SPDX-License-Identifier: Apache-2.0
//
// How well a prediction reproduces a capture.
//
// An element is reproduced when |captured - predicted| <= spread + half an ulp of storage where the
// predicted value lies. Where nothing finite is predicted by arithmetic (an overflow), nothing
// finite may be captured; where the kernel's arithmetic may overflow (overflow.hpp) or the type of
// the output cannot hold what is predicted, NaN and Inf may be captured too. A NaN that the mistake
// computes is reproduced by NaN, and by Inf where the element passes.
//
// An element without a finite budget says nothing. Where the right call bounds none, the element is
// left out. Where the prediction bounds none (its spread is infinite), the element refutes nothing
// and counts as failing with none of its error accounted for: a mistake whose roundings may be
// anything would explain any capture.
//
// Unwritten elements are predicted as calls::kUnwritten; what a kernel left alone holds whatever
// the buffer held. They are reproduced by NaN or Inf. By a finite number only as the rest of a
// tensor that the prediction otherwise gets right, in two cases:
//
//   one number in all such elements (buffers are cleared, or filled with a mark): two equal numbers
//     or a zero do not come about by chance, where the results differ from place to place;
//   junk, where the element fails (junk is not right by chance), some finite elements of the tensor
//     are predicted and all of them are reproduced (else "nothing was written" would explain every
//     wrong tensor), and the junk knows nothing of the results:
//     |<captured, exact>| <= |captured| |exact| / 2 over all of it. A kernel that wrote its results
//     with an error, whatever it is, wrote something that resembles them.
//
// Anywhere else what is predicted as unwritten says nothing about a finite number and accounts for
// nothing of it: a mistake that leaves out a tenth of a tensor would account for a tenth of every
// error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/explain/prediction.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::explain {

struct Match {
  double ratio = 0.0;     ///< max |captured - predicted| / budget; infinite for NaN
  double residual = 0.0;  ///< rms of |captured - predicted| over the budget of the right call
  /// Share of the error that is gone: 1 - mean (|captured - predicted| / |captured - exact|)^2 over
  /// the failing elements of a row and head, never below 0; the mean over rows and heads that fail.
  double accounted = 0.0;
  std::int64_t failing = 0;    ///< elements that are not reproduced
  std::int64_t guessed = 0;    ///< reproduced elements, predicted as unwritten, that hold a number
  std::int64_t excused = 0;    ///< NaN and Inf where a number is predicted that may have overflowed
  std::int64_t unbounded = 0;  ///< elements that fail and that the prediction does not bound
  bool breaks_right = false;   ///< some are not reproduced in an output in which nothing fails
};

/// One output of a capture as all predictions are compared with it.
struct ComparedOutput {
  ComparedOutput(const std::string& name, const call::Tensor& output,
                 const verdict::Expected& expected, const contract::Contract& contract);

  /// kUndefined: no kernel writes it, or the right call does not bound it.
  enum class Element : std::uint8_t { kUndefined, kPasses, kFails };

  /// What captured `y` is beside predicted `p` where one of the two is not finite.
  enum class Nonfinite : std::uint8_t {
    kOther,    ///< not what is predicted
    kSame,     ///< neither is finite
    kExcused,  ///< what is predicted may have overflowed
    kLeft,     ///< finite where nothing is written: what the buffer held, or not
  };
  [[nodiscard]] Nonfinite nonfinite(std::size_t i, double y, double p,
                                    const PredictedOutput& predicted) const;

  /// Whether nothing fails.
  [[nodiscard]] bool is_right() const {
    return std::ranges::find(elements, Element::kFails) == elements.end();
  }

  std::string name;
  call::DType type;
  const verdict::Expected* expected;
  verdict::Budget budget;  ///< of the right call
  std::size_t block;       ///< elements of one row and head
  std::vector<double> captured;
  std::vector<float> in_budgets;  ///< the budget of the right call; 1 where it is not finite
  std::vector<Element> elements;
};

/// A capture prepared for many predictions. Refers to it.
class Matcher {
 public:
  explicit Matcher(const Capture& capture);

  [[nodiscard]] Match match(const Prediction& prediction) const;

  /// The right call as a prediction, and how well it does: what there is to explain.
  [[nodiscard]] Prediction right_call() const;
  [[nodiscard]] Match match_right_call() const { return match(right_call()); }

  /// Whether element `i` of an output is what `predicted` has for element `from`, NaN for NaN.
  /// Elements that no kernel writes are anything.
  [[nodiscard]] bool reproduces(const std::string& output, std::size_t i,
                                const PredictedOutput& predicted, std::size_t from) const;

  [[nodiscard]] const std::vector<ComparedOutput>& outputs() const { return outputs_; }

  static constexpr double kSame = 1e-3;

  /// Whether no element tells the two apart: they differ by at most `budgets` of the right call's.
  [[nodiscard]] bool same_outputs(const Prediction& a, const Prediction& b,
                                  double budgets = kSame) const;

 private:
  std::vector<ComparedOutput> outputs_;
};

}  // namespace goldenrule::explain
