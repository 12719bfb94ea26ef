// SPDX-License-Identifier: Apache-2.0
//
// What a uniform draws by weights that a wrong kernel may have: the first token whose sum of
// weights is above a threshold. Sums of a kernel in fp32 differ from these by no more than
// decide.hpp says, so tokens whose sums are as near to the threshold may all be drawn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace goldenrule::drafts {

/// Tokens that a kernel may draw: from the first to the last.
struct Drawn {
  std::int64_t first, last;

  [[nodiscard]] std::optional<std::int64_t> only() const {
    return first == last ? std::optional(first) : std::nullopt;
  }
  [[nodiscard]] bool admits(std::int64_t token) const { return first <= token && token <= last; }
};

enum class Threshold : std::uint8_t {
  kOfSum,   ///< the uniform times the sum of the weights
  kItself,  ///< the uniform
};

/// Nothing where u is no number, and where a kernel may find no sum above the threshold.
[[nodiscard]] std::optional<Drawn> drawn(std::span<const double> w, double u,
                                         Threshold threshold = Threshold::kOfSum);

}  // namespace goldenrule::drafts
