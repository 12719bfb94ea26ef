// SPDX-License-Identifier: Apache-2.0
//
// A chain is what one server did: its calls one after the other, with whose state is whose. A call
// alone says nothing of that: a kernel that is right in each of its calls still answers wrongly
// when it is handed the state of another request, of an earlier request, or of the wrong token. One
// call of a chain is a record (the call with its outputs), its place in the chain, and beside the
// record's own inputs the datasets of fixtures/call/chain_rows.hpp: request_ids, positions,
// restored_from, accepted_counts, accepted_last.
//
// Slots. state_indices, output_state_indices and ssm_state_indices name slots of the server's pool,
// which is the same pool in all calls of a chain; initial_state is the whole pool as the call found
// it, final_state as it left it.
//
// States that are not stored. A pool for every call is large. A call that stores none has an
// initial_state of no slots ([0,HV,V,K] or [0,HV,K,V], in the type of the pool; in a prefill call
// as well) and no outputs final_state, intermediate_states, checkpoints. Its slots are still named,
// and its tokens still count; by itself such a call cannot be judged. A call may also store what it
// started from and leave out some outputs.
//
// How many tokens a request has after a call: positions + the tokens of the row; after an MTP call
// positions + accepted_counts. Where a row's accepted_counts are absent, accepted_tokens (what the
// kernel was told) count, and without these the position in the request's next call. Where a row is
// a tree (parent_tokens), a count of tokens names no state: accepted_last does, positions advance
// by its depth, and of what leads to it only its ancestors have come to the request.
//
// A request is new where its position is 0 (it starts from zero: has_initial_state = 0, or its slot
// holds zeros). The same request at position 0 again was preempted and starts anew. A request that
// is first seen at another position, without restored_from, began before the chain: its first
// stored start state is taken for right.
//
// A start is somebody's end. What is restored from a request of the chain is a state that it has
// had: one that a call stored at that position, or what its tokens make (trail.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "fixtures/call/record.hpp"

namespace goldenrule::chain {

struct Call {
  std::string chain;       ///< id of the chain; may be empty
  std::int64_t index = 0;  ///< its place in the chain, ascending by 1 from any number
  call::Record record;     ///< with request_ids among its inputs
};

/// Whether the record holds the pool as the call found it.
[[nodiscard]] inline bool has_states(const call::Record& record) {
  const call::Tensor* pool = record.find_input("initial_state");
  return pool == nullptr || pool->shape().empty() || pool->shape().front() > 0;
}

}  // namespace goldenrule::chain
