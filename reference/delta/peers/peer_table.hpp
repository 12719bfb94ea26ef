// SPDX-License-Identifier: Apache-2.0
//
// Which mistakes the rules of other projects let pass: what a budget on the same calls misses
// stands beside it, so that the table shows what is due to the rule and what to the inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/delta/peers/peers.hpp"

namespace goldenrule::peers {

/// Of one peer. A mistake is missed when it passes in all calls of the peer where it can be made.
struct MissedMistakes {
  std::vector<std::string_view> by_peer, here;  ///< by its rule, by a budget
  std::vector<std::string_view> possible;
  std::int64_t inert = 0;  ///< of those: not a stored bit differs, whoever looks
  std::string refuses;     ///< the contract of an emulated right kernel that the rule refuses
};

/// One entry per peer; `begin` (it may be empty) is called before each of them.
[[nodiscard]] std::vector<MissedMistakes> missed_by_peers(
    const std::vector<Peer>& peers, const std::function<void(std::size_t, const Peer&)>& begin);

}  // namespace goldenrule::peers
