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
#include "reference/calls/unwritten.hpp"
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
  std::size_t block = 1;  ///< elements of one row and value head, which are contiguous
  /// Value channels of a block, calls of their own that share what a head has (the same q, k and
  /// gates), and elements of one that follow each other, before the next channel's: channel of
  /// element i of a block = i / run % channels. 1 where the elements of a block belong together.
  std::size_t channels = 1;
  std::size_t run = 1;
  std::vector<Touch> touched;  ///< per block
  /// An infinite element that is written without the rule is what an output must be, as the lse of
  /// a row of attention that sees no key: NaN or the other infinity is wrong.
  bool has_right_infinities = false;
  /// With a certificate, per channel of a block: the size, as a norm over its elements, that a
  /// channel is held to have where its values are smaller. Of a state the norm that the column held
  /// over the last tokens, of o what a q of the same length in a random direction reads of it.
  /// Empty: the values themselves say how large they are.
  std::vector<float> reach;
  /// With a certificate, per element: what it is measured in. Of an output whose elements are
  /// channels of their own, and together one call, the largest value that it is a mean of. Beside a
  /// reach a budget alone reads it. Empty: they have one unit.
  std::vector<float> unit;
  /// The values are logarithms: an error is one of the size of what they are of, so they are
  /// measured against 1, and 0 is a value like any other.
  bool logarithms = false;

  /// The place of element `i` among the channels of all blocks.
  [[nodiscard]] std::size_t channel(std::size_t i) const {
    return i / block * channels + i % block / run % channels;
  }
  [[nodiscard]] bool is_defined(std::size_t i) const { return undefined.empty() || !undefined[i]; }
  [[nodiscard]] bool is_right_infinity(std::size_t i) const {
    return has_right_infinities && touched[i / block] == Touch::kCopied && std::isinf(golden[i]);
  }
  /// Whether `y` is right for an element whose exact result is not finite. What nobody writes stays
  /// what it was.
  [[nodiscard]] bool admits_nonfinite(std::size_t i, double y) const {
    const bool kept = !touched.empty() && touched[i / block] == Touch::kKept;
    if (!kept && !is_right_infinity(i)) return !std::isfinite(y);
    return std::isnan(golden[i]) ? std::isnan(y) : y == golden[i];
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
  bool certify = true;      ///< false: radius is left at infinity, reach and unit empty
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
  /// Per channel of a block (Exact::channel), rounded up: what an element of it may lose in a
  /// kernel that flushes subnormal fp32 numbers to zero. Empty: nothing.
  std::vector<float> flushed;
  /// Per block, 1: the contract lets some element be whatever the call could make of it. Empty: no.
  std::vector<char> anything;
  /// Per element, 1: on the way to it an honest fp32 kernel may overflow, or multiply a NaN by 0,
  /// and return NaN or an infinity. Empty: none.
  std::vector<char> overflows;
  /// Per element, 1: the exact result is one that the stored type holds, and an honest kernel's
  /// number beside it may round to the infinity of its sign. Empty: none.
  std::vector<char> infinities;
};

/// How much of a grant is filled in.
enum class GrantDetail : std::uint8_t { kSpread, kTerms };

/// One output as a verdict reads it: what is exact, and what one contract grants beside it.
struct Expected {
  Exact exact;
  Grant grant;

  /// Grant::flushed of element `i`.
  [[nodiscard]] double flushed(std::size_t i) const {
    return grant.flushed.empty() ? 0.0 : static_cast<double>(grant.flushed[exact.channel(i)]);
  }

  /// Whether `y` is what an overflow leaves where there may be one (Grant::overflows).
  [[nodiscard]] bool is_overflow(std::size_t i, double y) const {
    return !grant.overflows.empty() && grant.overflows[i] != 0 && !std::isfinite(y) &&
           std::isfinite(exact.golden[i]);
  }

  /// Whether `y` is the infinity to which a right number may round (Grant::infinities).
  [[nodiscard]] bool is_rounded_up(std::size_t i, double y) const {
    return !grant.infinities.empty() && grant.infinities[i] != 0 && std::isinf(y) &&
           std::signbit(y) == std::signbit(exact.golden[i]);
  }
};

/// All outputs of a call that were evaluated.
struct Expectations {
  scalar::Precision precision = scalar::Precision::kDouble;
  std::map<std::string, Expected> outputs;
};

}  // namespace goldenrule::verdict
