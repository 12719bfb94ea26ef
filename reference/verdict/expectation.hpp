// SPDX-License-Identifier: Apache-2.0
//
// What an output of a call must be: the exact result with its certified radius, which depends on
// the call alone, and what one contract grants a kernel beside it. An operation's oracle gives the
// first and its budget the second (slice.hpp); verdicts and explanations read both and know nothing
// of the operation.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/call/tensor.hpp"
#include "reference/calls/outputs.hpp"
#include "reference/scalar/precision.hpp"

namespace goldenrule::verdict {

/// What the call does to a block, the elements of one row (token, slot, kept state) and value head.
enum class Touch : std::uint8_t {
  kKept,      ///< no sequence writes it: a slot that nobody names keeps its content
  kCopied,    ///< written without the rule: zero tokens, the zero output of a padded row
  kComputed,  ///< by the rule
};

/// The exact result of one output tensor; vectors are per element in storage order.
/// |golden - exact result| <= radius for every element; a radius of infinity says that the tier
/// could not bound its error. Where the exact result is not finite because an input is not (NaN or
/// Inf reaches it), golden is not finite and radius is 0; where all inputs are finite and the tier
/// overflowed, golden is not finite and radius is infinite.
struct Exact {
  call::Shape shape;
  std::vector<double> golden;  ///< the exact result rounded to double
  std::vector<float> radius;   ///< rounded up
  /// Elements that no kernel writes, or that have several right values (Slice::settle) or none;
  /// empty: all are defined.
  std::vector<bool> undefined;
  std::size_t block = 1;       ///< elements of one row and value head, which are contiguous
  std::vector<Touch> touched;  ///< per block
  /// An infinite element that is written without the rule is what an output must be, as the lse of
  /// a row of attention that sees no key: NaN or the other infinity is wrong.
  bool has_right_infinities = false;
  /// Of o, with a certificate, per block: the squared size that the elements have for a q of the
  /// same length in a random direction, summed over the block. Of lse 1: an error of a logarithm is
  /// one of the sum's size, and 0 is a value like any other. Empty: the values themselves say how
  /// large they are.
  std::vector<double> reach2;

  [[nodiscard]] bool is_defined(std::size_t i) const { return undefined.empty() || !undefined[i]; }
  [[nodiscard]] bool is_right_infinity(std::size_t i) const {
    return has_right_infinities && touched[i / block] == Touch::kCopied && std::isinf(golden[i]);
  }
  /// Whether `y` is right for an element whose exact result is not finite.
  [[nodiscard]] bool admits_nonfinite(std::size_t i, double y) const {
    return is_right_infinity(i) ? y == golden[i] : !std::isfinite(y);
  }
  /// Hands over the golden values as an output has them: NaN in undefined elements.
  [[nodiscard]] std::vector<double> take_output() {
    for (std::size_t i = 0; i < undefined.size(); ++i) {
      if (undefined[i]) golden[i] = calls::kUnwritten;
    }
    return std::move(golden);
  }
  [[nodiscard]] double max_radius() const {
    float largest = 0.0F;
    for (const float r : radius) largest = r > largest ? r : largest;
    return static_cast<double>(largest);
  }
};

/// Which outputs are evaluated, and whether with a certificate.
struct EvaluationOptions {
  bool certify = true;      ///< false: radius is left at infinity, reach2 empty
  bool final_state = true;  ///< computes it
  bool kept_states = true;  ///< computes those on the way (call::Plan::kept_states)
};

/// What one contract grants one output tensor, beside half an ulp of storage: vectors per element.
struct Grant {
  bool given = false;         ///< false: the contract says nothing about this tensor
  std::vector<float> spread;  ///< multiple sigma + bias, rounded up; empty: nothing
  double multiple = 0.0;      ///< how many sigmas
  std::vector<float> sigma;   ///< one standard deviation of its roundings (GrantDetail::kTerms)
  std::vector<float> bias;    ///< its systematic errors, linearly added (GrantDetail::kTerms)
  /// What a kernel may lose that flushes subnormal fp32 numbers to zero.
  double flushed = 0.0;
  /// Per block, 1: the contract lets some element be whatever the call could make of it. Empty: no.
  std::vector<char> anything;
};

/// How much of a grant is filled in.
enum class GrantDetail : std::uint8_t { kSpread, kTerms };

/// One output as a verdict reads it: what is exact, and what one contract grants beside it.
struct Expected {
  Exact exact;
  Grant grant;
};

/// All outputs of a call that were evaluated.
struct Expectations {
  scalar::Precision precision = scalar::Precision::kDouble;
  std::map<std::string, Expected> outputs;
};

}  // namespace goldenrule::verdict
