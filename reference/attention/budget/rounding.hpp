// SPDX-License-Identifier: Apache-2.0
//
// What arithmetic an attention kernel declares. All of them add in fp32 and round o once; they
// differ in what the weights P = exp(s - m) are rounded to before they multiply V, in which sum
// divides, and in whether scores are stored on the way.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "fixtures/call/dtype.hpp"
#include "reference/contract/format.hpp"

namespace goldenrule::attention {

struct Rounding {
  std::string_view name;
  bool is_ideal = false;  ///< the exact result, rounded once
  /// P is rounded to the type of q before the product with V; fp32 where that has no fewer bits.
  bool rounded_weights = true;
  bool rounded_sum = false;    ///< l sums the rounded weights
  bool stored_scores = false;  ///< <q,k> and scale <q,k> are stored in the type of q, then P / l is
  double exp2_error = 0x1p-22;  ///< relative
  double tanh_error = 0x1p-11;  ///< relative: the approximate instruction that kernels use
};

inline constexpr std::array kRoundings{
    Rounding{.name = "ideal", .is_ideal = true, .rounded_weights = false},
    // FlashAttention 2 and 3, cuDNN, Triton, Diffulex, SGLang.
    Rounding{.name = "flash_bf16"},
    // FlashInfer's tensor-core kernels: the row sum is a product with the rounded fragment.
    Rounding{.name = "flash_bf16_rounded_sum", .rounded_sum = true},
    // Three calls of a framework, each of which stores its result.
    Rounding{.name = "eager_bf16", .stored_scores = true},
};

/// What values "in the type of q" are rounded to; nothing: fp32.
[[nodiscard]] inline std::optional<contract::Format> operand_format(call::DType q) {
  if (q == call::DType::kBF16) return contract::Format::kBF16;
  if (q == call::DType::kF16) return contract::Format::kF16;
  return std::nullopt;
}

}  // namespace goldenrule::attention
