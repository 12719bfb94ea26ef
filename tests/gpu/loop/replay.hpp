// SPDX-License-Identifier: Apache-2.0
//
// What the loop must have emitted, without a loop: the target over all tokens of all requests at
// once, as a prefill without caches, pages, states or drafts. Speculation is right where each token
// is the one that the target chooses behind those before it. This judges the world itself, of which
// leader and follower are the same code: a mistake that both make would show in nothing else.
#pragma once

#include <map>
#include <string>

#include "tests/gpu/loop/draws.hpp"

namespace goldenrule::test::loop {

/// "" or the first token that the target would not have chosen, of requests by number. The draws
/// are those of the loop.
[[nodiscard]] std::string wrong_token(
    const std::map<std::int64_t, std::vector<std::int64_t>>& requests, const Draws& draws);

}  // namespace goldenrule::test::loop
