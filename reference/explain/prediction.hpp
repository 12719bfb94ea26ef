// SPDX-License-Identifier: Apache-2.0
//
// What a hypothesis (one mistake, or two made together) predicts for a call, and how far the
// roundings of its contract may carry each element from there.
//
// Spread. A mistake is a change around a kernel, so the budget of the mistaken kernel is the budget
// of the kernel seen through the change: the mistake is committed with kernels that return
// golden - s, golden and golden + s, where s = multiple sigma + bias + radius of the call that the
// mistake made of it. Where an element went, there its spread went too, and a rounding in the
// mistake (o through bf16) shows its steps. The spread is the larger of the two distances.
//
// A mistake that feeds one result into the next call shifts an element by a sum over shifted
// elements, sum_j c_j s_j, where one sign for all may cancel by chance. It is committed with n
// patterns of independent random signs as well, as roundings have them, and the spread is the
// largest distance. Each pattern gives S |z|, z about standard normal, S^2 = sum_j c_j^2 s_j^2; an
// error of x S / multiple, x standard normal times what honest kernels use of their sigma (a third
// to a half), exceeds all n with probability
//
//   E (sqrt(2/pi) |x| / multiple)^n = (n-1)!! (sqrt(2/pi) rms(x) / multiple)^n,
//
// for multiple = 6, rms(x) = 1/2: 6e-5 of all elements at n = 4 and 4e-8 at n = 8, which is used. A
// sum of two terms (a slot that is updated twice) is the one thing that all n patterns may cancel,
// with probability 2^-n, and that one sign for all does not.
//
// A mistake inside the algorithm has its own implementation and calls no kernel; nothing is known
// of its spread but what the right call has. Its sigma is that of the right call, times the growth
// of the values (root mean square over a row and head, never below 1): roundings are relative. A
// mistake that amplifies roundings is the business of scatter.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/calls/mistake.hpp"
#include "reference/explain/capture.hpp"
#include "reference/explain/oracle_kernel.hpp"

namespace goldenrule::explain {

/// One or two mistakes, the outer one first: it changes the call that the inner one sees.
using Hypothesis = std::vector<const calls::Mistake*>;

struct PredictedOutput {
  std::vector<double> value;       ///< calls::kUnwritten where nothing writes
  std::vector<float> spread;       ///< infinite where nothing is known
  std::vector<bool> may_overflow;  ///< overflow.hpp; empty: nowhere
};

struct Prediction {
  std::map<std::string, PredictedOutput> outputs;
  bool called_kernel = false;
};

/// How the spread of a prediction is found, the cheaper way first.
enum class SpreadBy {
  kScaling,  ///< that of the right call, scaled with the values
  kKernel,   ///< through the kernel; as kScaling for a mistake that calls none
};

/// Predicts the outputs of a capture, to which it refers.
class Predictor {
 public:
  explicit Predictor(const Capture& capture);

  /// Nothing where the mistakes cannot be made together in this call or where their outputs are
  /// not those of the call.
  [[nodiscard]] std::optional<Prediction> predict(const Hypothesis& hypothesis, SpreadBy by) const;
  /// The same by a kernel of its caller, which may remember what it has run: with a contract the
  /// spread is found through it, without one by scaling.
  [[nodiscard]] std::optional<Prediction> predict(const Hypothesis& hypothesis,
                                                  OracleKernel& kernel, SpreadBy by) const;

 private:
  // An output of the right call.
  struct Right {
    std::vector<float> spread;       // multiple sigma + bias + radius
    std::vector<double> magnitudes;  // per row and head
  };
  void add_scaled_spread(Prediction& prediction) const;

  const Capture& capture_;
  const bool overflowed_;
  std::map<std::string, Right> right_;
};

/// The outputs of `call` under the mistakes, as far as the capture has them; nothing where predict
/// gives nothing.
[[nodiscard]] std::optional<call::TensorMap> commit_all(const Capture& capture,
                                                        const Hypothesis& hypothesis,
                                                        const call::Record& call,
                                                        const calls::Kernel& kernel);

/// Elements of one row and head of an output of this shape.
[[nodiscard]] std::size_t block_size(const call::Shape& shape, const std::string& name);

}  // namespace goldenrule::explain
