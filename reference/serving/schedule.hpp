// SPDX-License-Identifier: Apache-2.0
//
// What a server does, as data and without a number of a tensor: a list of steps, each of which
// moves states between places and then makes one call of the kernel. A mistake of a server is a
// change of a step (mistakes.hpp), and the simulator carries out whatever the step says
// (simulate.hpp).
//
// Every row says for which request the server makes it and how many tokens of it came before
// (`request`, `position`): that is what the server believes. Slots and counts are what the kernel
// is given. A mistake changes what the kernel is given, or which state lies there, so every call by
// itself is right, and only the calls together are wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "fixtures/call/record.hpp"

namespace goldenrule::serving {

/// Where a state lies.
struct Place {
  enum class Where : std::uint8_t {
    kNothing,       ///< a state of zeros
    kSlot,          ///< slot `index` of the pool
    kIntermediate,  ///< block `index` of intermediate_states of the last MTP call
    kCheckpoint,    ///< row `index` of checkpoints of the last prefill call
    kSnapshot,      ///< kept for `request`: its state after `index` tokens
    kPlane,   ///< kept for `request`: its state after token `index` of its last MTP call, from 1
    kSwap,    ///< kept for `request` while it has no slot
    kFormer,  ///< slot `index` of the pool as the last call found it
    kNoise,   ///< memory that nobody has written: noise of the size of a state
  };
  Where where = Where::kNothing;
  std::int64_t request = -1;
  std::int64_t index = 0;

  bool operator==(const Place&) const = default;
  friend bool operator<(const Place& a, const Place& b) {
    return std::tie(a.where, a.request, a.index) < std::tie(b.where, b.request, b.index);
  }
};

/// Tokens [begin, begin + count) of a request.
struct Stretch {
  std::int64_t request = -1;
  std::int64_t begin = 0, count = 0;
  bool drafts = false;  ///< those that were drafted there, and rejected
};

/// One state is copied, between two calls.
struct Move {
  Place from, to;
  std::optional<Stretch> replay = {};       ///< and goes through these tokens on its way
  bool decay_only = false;                  ///< which write nothing
  std::optional<call::DType> through = {};  ///< and is rounded to this type
  std::int64_t part = 1;                    ///< only the first 1/part of it is copied
  std::int64_t heads = 0;                   ///< value head j takes the state of head j + heads
  bool first_half = false;                  ///< value head j takes that of head j % (HV/2)
  bool transposed = false;                  ///< its axes of keys and values are exchanged
  double factor = 1.0;                      ///< its numbers are multiplied by this
  std::int64_t singles = 0;  ///< of a plane: decode steps since the MTP call that left it
};

/// What is recorded of a row where that is not what the server did.
struct Said {
  std::int64_t request = -1, position = 0, accepted = 0;
};

/// One row (sequence) of a call.
struct Row {
  std::int64_t request = -1;  ///< -1: graph padding
  std::int64_t position = 0;  ///< tokens of the request before this call
  std::int64_t count = 0;     ///< tokens in this call
  std::int64_t accepted = 0;  ///< how many of them belong to the request; the others are rejected
  std::int64_t restored_from = -1;  ///< whose earlier state it starts from; -1: its own last one
  std::int64_t slot = -1;           ///< where that lies; -1: padded
  std::int64_t out = -1;            ///< where its state goes; -1: nowhere
  std::vector<std::int64_t> parents = {};  ///< of its tokens (token_tree.hpp); empty: no tree
  std::int64_t kept = 0;                   ///< the state that goes on, named as in Snapshot::after
  bool fresh = false;                      ///< it starts from zero, whatever the slot holds
  bool restarted = false;                  ///< fresh, after a preemption
  bool whole_prompt = false;               ///< the call has the whole prompt of the request
  std::vector<std::int64_t> columns = {};  ///< scatter: the slot of each token
  std::int64_t column = 1;                 ///< scatter: the state lies in columns[column - 1]
  std::vector<std::int64_t> checkpoints = {};  ///< prefill: after how many tokens a state is kept
  std::optional<Said> said = {};               ///< absent: request, position, accepted
};

/// What lies in o instead of the result, in rows of requests.
enum class Spoiled : std::uint8_t {
  kNothing,
  kNoise,     ///< noise of the size of o
  kNan,       ///< one NaN
  kNextRows,  ///< the result of the next row that has a request
};

/// What a server does wrong with the caches of its attention, or with a draft acceptance.
enum class CacheFault : std::uint8_t {
  kNothing,
  kPageOfNext,    ///< the table names a page of the next row
  kTableOfLast,   ///< the table is that of the call before
  kPageTwice,     ///< new rows come into a page that the next row has
  kShifted,       ///< new rows come one place further
  kNotWritten,    ///< new rows do not come into the cache
  kZeros,         ///< zeros come into the cache
  kNoise,         ///< other numbers do
  kHeadsMoved,    ///< each head has the row of the next
  kLengthOff,     ///< the cache has CacheChange::off more rows than the request has tokens
  kStartOff,      ///< the draft acceptance begins CacheChange::off tokens further
  kCommitsOff,    ///< it commits CacheChange::off tokens more
  kCommitsMoved,  ///< it commits what each next row has accepted
};
struct CacheChange {
  CacheFault fault = CacheFault::kNothing;
  std::int64_t request = -1;  ///< of which; -1: of all
  std::int64_t off = 0;
};

/// What is recorded of a row.
[[nodiscard]] inline Said said_of(const Row& row) {
  return row.said.value_or(Said{row.request, row.position, row.accepted});
}

struct Step {
  std::vector<Move> moves;  ///< before the call, in this order
  call::Mode mode = call::Mode::kDecode;
  std::vector<Row> rows;
  bool compacted = false;  ///< rows have changed their place in the batch since the step before
  std::optional<call::DType> outputs = {};     ///< o is stored in this type
  std::optional<call::DType> parameters = {};  ///< those of the layer are rounded to this type
  bool other_parameters = false;               ///< those of another layer are given
  bool keys_of_last = false;                   ///< the kernel reads the keys of the call before
  std::optional<call::Convention> convention = {};  ///< of this call, in which it differs
  bool stored = true;                               ///< false: the states are not recorded
  std::optional<call::DType> empty_pool = {};       ///< and the pool of no slots has this type
  Spoiled spoiled = Spoiled::kNothing;
  CacheChange cache = {};
  bool lost = false;  ///< the call is never made
  bool late = false;  ///< it is made after the next one, where both have a request in common
};

}  // namespace goldenrule::serving
