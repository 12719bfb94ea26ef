// SPDX-License-Identifier: Apache-2.0
//
// The order of the four steps of a token,
//
//   decay S' = diag(alpha) S,  predict p = S'^T k^,  write S' + k^ (beta (v - p))^T,  read o = S^T
//   q^,
//
// and where the decays of a chunk stand. Each step may meet the state before or after another one;
// a kernel that takes the wrong one is a point of this space. orders.cpp enumerates the sensible
// points; the table has names for some of them.
#pragma once

#include <array>
#include <cstdint>

namespace goldenrule::delta {

/// A state at token t: S is the one before it, W = k^ d^T its write.
enum class StateAt : std::uint8_t {
  kNothing,          ///< 0
  kOld,              ///< S
  kDecayed,          ///< diag(alpha) S
  kOldAndWrite,      ///< S + W
  kDecayedAndWrite,  ///< diag(alpha) S + W
  kDecayOfBoth,      ///< diag(alpha) (S + W)
};

struct TokenOrder {
  StateAt predicts = StateAt::kDecayed;        ///< what d is predicted from
  StateAt leaves = StateAt::kDecayedAndWrite;  ///< what the next token finds
  StateAt reads = StateAt::kDecayedAndWrite;   ///< what o is read from
  bool operator==(const TokenOrder&) const = default;
};

/// Orders with a name in the table: no_delta, read_before_update, own_token_unread,
/// decay_after_delta and gate_ignored.
inline constexpr TokenOrder kNoDelta{.predicts = StateAt::kNothing};
inline constexpr TokenOrder kReadBeforeUpdate{.reads = StateAt::kOld};
inline constexpr TokenOrder kOwnTokenUnread{.reads = StateAt::kDecayed};
inline constexpr TokenOrder kDecayAfterDelta{
    .predicts = StateAt::kOld, .leaves = StateAt::kDecayOfBoth, .reads = StateAt::kDecayOfBoth};
inline constexpr TokenOrder kGateIgnored{
    .predicts = StateAt::kOld, .leaves = StateAt::kOldAndWrite, .reads = StateAt::kOldAndWrite};
inline constexpr std::array kNamedTokenOrders{kNoDelta, kReadBeforeUpdate, kOwnTokenUnread,
                                              kDecayAfterDelta, kGateIgnored};

/// Whether each decay of a chunk is there, and what o and the state have of the corrections.
struct ChunkOrder {
  bool pairs = true;      ///< in A: from one token to what a later one predicts
  bool predicted = true;  ///< in w: from the start of the chunk to what is predicted
  bool read = true;       ///< from the start of the chunk to what q reads
  bool attention = true;  ///< in q k^T
  bool writes = true;     ///< from a write to the end of the chunk
  bool carried = true;    ///< of the state, from the start of the chunk to its end
  /// exp(G_C - G_i) of a write lies along value channels where it belongs along tokens.
  bool writes_along_values = false;
  bool o_corrected = true;       ///< false: o reads values that lack the prediction from the start
  bool writes_corrected = true;  ///< false: so does the state
  bool operator==(const ChunkOrder&) const = default;
};

/// Orders of chunks of 64 with a name in the table: w_no_decay, intra_no_decay, inter_no_decay.
inline constexpr ChunkOrder kWNoDecay{.predicted = false};
inline constexpr ChunkOrder kIntraNoDecay{.attention = false};
inline constexpr ChunkOrder kInterNoDecay{.read = false};
inline constexpr std::array kNamedChunkOrders{kWNoDecay, kIntraNoDecay, kInterNoDecay};

}  // namespace goldenrule::delta
