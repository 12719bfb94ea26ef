// SPDX-License-Identifier: Apache-2.0
//
// What a contract of chunks grants beside inputs that are not finite. A NaN at token t reaches no
// earlier token, but a kernel computes a chunk by products in which later tokens are masked, and
// 0 times NaN is NaN: o of the tokens of that chunk in front of t may be lost, all channels of it
// by k, beta or a gate, its own channel by v (oracle/judged_tokens.hpp has what reaches what).
// Where it is a number, it is that of the call in which such an input does nothing, and is judged
// as that.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/delta/budget/lane_spread.hpp"

namespace goldenrule::delta {

/// Puts what does nothing in place of what is not finite: q, k, beta, v and the start state 0, and
/// no decay. Returns per value channel the first token that may be lost in a kernel with
/// chunks of `chunk` tokens, whether or not it ends them at the positions of the call; the number
/// of tokens where nothing reaches the channel.
[[nodiscard]] std::vector<std::int64_t> mask_nonfinite(LaneCall& call, std::int64_t chunk);

}  // namespace goldenrule::delta
