// SPDX-License-Identifier: Apache-2.0
//
// Where a request has been. A server may keep a state of a request at any position and start from
// it later, and no call need have stored it. The tokens that led there are in the dump, so the
// state is computed from them again: from the last ledger that is kept before it, call by call.
#pragma once

#include "reference/chain/request.hpp"
#include "reference/verdict/slice.hpp"

namespace goldenrule::chain {

/// The calls that a request has behind it, the last one among them.
[[nodiscard]] std::vector<Leg> legs_of(const Request& request);

/// `next` goes on from where `request` is: it has its calls behind it.
void extend_trail(Request& request, Request& next);

/// What the trail of a request holds, but for tokens.
[[nodiscard]] std::uint64_t bytes_of_trail(const Layout& layout, const Request& request);

/// The ledger of request `id` at `position`, on the way that it had gone before call `until`.
/// nullptr: the tokens are not in the dump, or were given up, or follow from what is not known.
[[nodiscard]] Known ledger_at(const verdict::Slice& slice, const Layout& layout,
                              const Requests& requests, std::int64_t id, std::int64_t position,
                              std::int64_t until);

/// The ledgers that it had there before it began again, the latest first, where they are not those
/// of its present life. Nothing is computed for a request that has been there once.
[[nodiscard]] std::vector<Known> former_ledgers_at(const verdict::Slice& slice,
                                                   const Layout& layout, const Requests& requests,
                                                   std::int64_t id, std::int64_t position,
                                                   std::int64_t until);
inline constexpr std::size_t kMostLedgers = 4;  ///< of which lives

}  // namespace goldenrule::chain
