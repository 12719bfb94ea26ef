// SPDX-License-Identifier: Apache-2.0
//
// What a kernel of any model may do to a value: round it to a format, or err in a function.
#pragma once

#include <optional>
#include <string_view>

#include "fixtures/call/families.hpp"
#include "reference/contract/format.hpp"

namespace goldenrule::contract {

/// Errors of a kernel's elementary functions. They are systematic (the same argument always errs
/// the same way, and an error of alpha is common to a whole state), so they add linearly.
struct FunctionErrors {
  double exp = 0.0;        ///< relative, at a given argument
  double log = 0.0;        ///< absolute, of log alpha where a chunked kernel is given alpha itself
  double log_alpha = 0.0;  ///< relative error of log alpha: its products and its exp argument
  double softplus = 0.0;   ///< absolute, and no more than softplus itself: see running.hpp
  double logit = 0.0;      ///< relative error of a + dt_bias; exp(A_log) times it takes exp as well
  double sigmoid = 0.0;    ///< relative, plus `logit` times |b| sigmoid(-b)
  double norm = 0.0;       ///< relative error of the q and k norms, reciprocal root included

  bool operator==(const FunctionErrors&) const = default;
};

/// fp32 kernels with the GPU's fast functions. CUDA C++ Programming Guide, "Intrinsic Functions":
/// __expf(x) is within 2 + 1.173 |x| ulp, __logf within an absolute 2^-21.41 on [1/2, 2] and 3 ulp
/// outside, rsqrtf within 2 ulp, division within 2 ulp; an ulp is at most 2^-23 relative. So exp at
/// a given argument: 2^-22; log alpha, two or three rounded products and 1.173 ulp in exp: 2^-21;
/// log(1 + exp(x)): 2^-21.41 and the 2^-24 lost in the sum, 2^-21; log of a given alpha, an
/// absolute 2^-21.41 near 1 too (lg2.approx: 2^-22 of the binary one); sigmoid, exp and a quotient:
/// 2^-21; norm, a sum of squares in fp32 and a reciprocal root: 2^-21.
inline constexpr FunctionErrors kFastFp32{.exp = 0x1p-22,
                                          .log = 0x1p-21,
                                          .log_alpha = 0x1p-21,
                                          .softplus = 0x1p-21,
                                          .logit = 0x1p-23,
                                          .sigmoid = 0x1p-21,
                                          .norm = 0x1p-21};

/// Visits every field as f(name, field). `E` is FunctionErrors or const FunctionErrors.
template <class E, class F>
void for_each_function(E& errors, F&& f) {
  f("exp", errors.exp);
  f("log", errors.log);
  f("log_alpha", errors.log_alpha);
  f("softplus", errors.softplus);
  f("logit", errors.logit);
  f("sigmoid", errors.sigmoid);
  f("norm", errors.norm);
}

/// What a value is rounded to; nothing: not rounded, beyond the fp32 arithmetic.
using Rounding = std::optional<Format>;
inline constexpr double kFp32 = 0x1p-24;  ///< the unit roundoff of fp32

/// Largest relative error of it; 0 where nothing is rounded.
[[nodiscard]] inline double unit_of(const Rounding& rounding) {
  return rounding ? unit_roundoff(*rounding) : 0.0;
}

}  // namespace goldenrule::contract
