// SPDX-License-Identifier: Apache-2.0
//
// Between the tensors of a call and the matrices of a lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Where element (i, v) of the state of value head `head` lies in a tensor of [.., HV,state]
/// blocks, and element v of the output of a token in o.
struct OutputIndex {
  call::Strides state, output;
  RingIndex ring;

  OutputIndex(const call::Record& record, const call::Dims& dims)
      : state(call::output_strides(record, dims, "final_state")),
        output(call::output_strides(record, dims, "o")),
        ring(record, dims) {}

  [[nodiscard]] std::size_t operator()(std::int64_t block, std::int64_t head, std::int64_t i,
                                       std::int64_t v) const {
    return state(block, head, i, v);
  }
  /// `token` in the flattened token axis.
  [[nodiscard]] std::size_t o(std::int64_t token, std::int64_t head, std::int64_t v) const {
    return output(token, head, 0, v);
  }
  /// Element v of the correction of token `t` of a sequence, counted with those that it replays.
  [[nodiscard]] std::size_t d(const call::Sequence& sequence, std::int64_t t, std::int64_t head,
                              std::int64_t v) const {
    const call::Replay& replay = sequence.replay;
    return static_cast<std::size_t>(ring.d(replay.ring, head, replay.place(t)) + v);
  }
};

/// One value head of one sequence: what the rule runs by itself.
struct LaneJob {
  const call::Sequence* sequence;
  std::int64_t head;
};

/// The lanes of a call that have tokens: not those of padded rows. With `also_empty` those of
/// sequences without tokens as well, which leave their start states.
[[nodiscard]] std::vector<LaneJob> lanes_of(const call::Plan& plan, bool also_empty = false);
inline constexpr bool kAlsoEmpty = true;

/// Columns [first, first + columns) of the start state of one lane, [K, columns], read in rows.
/// The sequence must have one.
[[nodiscard]] std::vector<double> start_columns(const CallInputs& inputs, const call::Dims& dims,
                                                const OutputIndex& index,
                                                const call::Sequence& sequence, std::int64_t head,
                                                std::int64_t first, std::int64_t columns);

/// v of token `t` of a lane, [first, first + columns), to `to`: where it is replayed from a ring
/// its correction, else where o has it.
void read_values(const CallInputs& inputs, const OutputIndex& index, const LaneJob& job,
                 std::int64_t t, std::int64_t first, std::int64_t columns, double* to);

/// v of one lane, [lane_tokens, V].
[[nodiscard]] Matrix<double> lane_values(const CallInputs& inputs, const call::Dims& dims,
                                         const OutputIndex& index, const call::Sequence& sequence,
                                         std::int64_t head);

/// The start state of one lane, [K, V]; zero where the sequence has none.
[[nodiscard]] Matrix<double> lane_start(const CallInputs& inputs, const call::Dims& dims,
                                        const OutputIndex& index, const call::Sequence& sequence,
                                        std::int64_t head);

}  // namespace goldenrule::delta
