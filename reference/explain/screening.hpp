// SPDX-License-Identifier: Apache-2.0
//
// Which parts of a large capture hypotheses are screened on: some value channels of all tokens, and
// all channels of the first tokens. Each is a call of its own, so what explains the whole explains
// each part. Mistakes that a generator enumerates are many and cheap to refute: few lanes do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/explain/capture.hpp"
#include "reference/explain/failures.hpp"

namespace goldenrule::explain {

/// Visits of state elements that the screening of all hypotheses may take, about a nanosecond each.
inline constexpr std::int64_t kScreeningSteps = std::int64_t{8} << 30;

/// Those of one prediction.
[[nodiscard]] std::int64_t steps_of(const Capture& capture);

/// The cuts that a capture too large for so many hypotheses is screened on.
[[nodiscard]] std::vector<Capture> screening_cuts(const Capture& capture,
                                                  std::span<const Failures> failures,
                                                  std::int64_t hypotheses);

/// Of `count` value channels half from where most fails, half from where least does; ascending.
[[nodiscard]] std::vector<std::int64_t> telling_channels(const Capture& capture,
                                                         std::span<const Failures> failures,
                                                         std::int64_t count);

/// Value channels and tokens that tell one order of steps from another: two chunks of most kernels
/// and the half of a third one.
inline constexpr std::int64_t kFewChannels = 4, kFewTokens = 192;

/// A cut of few value channels and, where the mistakes allow it and there are many, few tokens.
/// Within a chunk a token costs as much as a channel.
[[nodiscard]] Capture few_lanes(const Capture& capture, std::span<const Failures> failures,
                                calls::CutBy by, std::int64_t hypotheses);

}  // namespace goldenrule::explain
