// SPDX-License-Identifier: Apache-2.0
//
// Words for the tokens that fail. Sequences differ in length, so what is the same in all of them
// may be the first token, the distance to the end or the position in a chunk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace goldenrule::explain {

/// The tokens of one sequence, failing or not.
using TokenMask = std::vector<std::uint8_t>;

/// What the failing tokens of all sequences have in common: "from token 64 on (a multiple of 64)",
/// "only the last token", "only the tail chunk (T % 64 tokens)"; empty for all tokens, for none or
/// where nothing simple holds.
[[nodiscard]] std::string token_words(const std::vector<TokenMask>& sequences);

}  // namespace goldenrule::explain
