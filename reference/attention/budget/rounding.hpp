// SPDX-License-Identifier: Apache-2.0
//
// What contract::Softmax means by "the type of q".
#pragma once

#include <optional>

#include "fixtures/call/dtype.hpp"
#include "reference/contract/contract.hpp"

namespace goldenrule::attention {

using contract::Softmax;
using contract::SoftmaxPoint;

/// What values in the type of q are rounded to; nothing: fp32.
[[nodiscard]] inline std::optional<contract::Format> operand_format(call::DType q) {
  if (q == call::DType::kBF16) return contract::Format::kBF16;
  if (q == call::DType::kF16) return contract::Format::kF16;
  return std::nullopt;
}

}  // namespace goldenrule::attention
