// SPDX-License-Identifier: Apache-2.0
//
// The oracle: runs the plan of a call through the recurrent form in one precision tier and returns,
// for each output, the exact result rounded to double, a certified radius, and (where a contract is
// given) the spread that the contract allows. The same code serves every mode; see call::Plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/bounds/contract.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::oracle {

/// What the call does to a block, the elements of one row (token, slot, kept state) and value head.
enum class Touch : std::uint8_t {
  kKept,      ///< no sequence writes it: a slot that nobody names keeps its content
  kCopied,    ///< written without the rule: zero tokens, the zero output of a padded row
  kComputed,  ///< by the rule
};

/// One output tensor. All vectors are per element in storage order; spread, sigma and bias are
/// empty when no contract was given. |golden - exact result| <= radius for every element; a radius
/// of infinity says that the tier could not bound its error. Where the exact result is not finite
/// because an input is not (NaN or Inf reaches it), golden is not finite and radius is 0; where all
/// inputs are finite and the tier overflowed, golden is not finite and radius is infinite.
struct Expected {
  call::Shape shape;
  std::vector<double> golden;
  std::vector<float> radius;  ///< rounded up
  std::vector<float> spread;  ///< what the contract grants: multiple sigma + bias, rounded up
  double multiple = 0.0;      ///< how many sigmas the contract grants
  std::vector<float> sigma;   ///< one standard deviation of its roundings (Options::components)
  std::vector<float> bias;    ///< its systematic errors, linearly added (Options::components)
  /// What a kernel loses that flushes subnormal fp32 numbers to zero: up to 2^-126 in each of the
  /// K + 1 numbers that meet in an element, times the largest number that they multiply.
  double flushed = 0.0;
  std::vector<bool> undefined;  ///< elements that no kernel writes; empty: all are defined
  std::size_t block = 1;        ///< elements of one row and value head, which are contiguous
  std::vector<Touch> touched;   ///< per block
  /// Of o, with a certificate, per block: the sum of (||q^|| ||S column||)^2 / K, the squared size
  /// that an element has for a q of that length in a random direction. Empty: the values themselves
  /// say how large they are.
  std::vector<double> reach2;

  [[nodiscard]] double max_radius() const;
};

struct Evaluation {
  scalar::Precision precision = scalar::Precision::kDouble;
  std::map<std::string, Expected> outputs;  ///< o, and the states that Options ask for
};

struct Options {
  bool certify = true;                         ///< false: radius is left at infinity
  const bounds::Contract* contract = nullptr;  ///< fills spread
  bool components = false;                     ///< fills sigma and bias as well
  bool final_state = true;                     ///< computes it
  bool intermediate_states = true;             ///< MTP: computes them
};

/// Memory: verdict/memory.hpp. Throws Error as call::make_plan does. The result is bitwise
/// independent of the thread count.
[[nodiscard]] Evaluation evaluate(const call::Record& record, scalar::Precision precision,
                                  const Options& options);

[[nodiscard]] std::string_view name_of(scalar::Precision precision);
[[nodiscard]] int bits_of(scalar::Precision precision);

}  // namespace goldenrule::oracle
