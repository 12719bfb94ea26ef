// SPDX-License-Identifier: Apache-2.0
//
// Between the tensors of a call and the matrices of a lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// Where element (i, v) of the state of value head `head` lies in a tensor of [.., HV,state]
/// blocks.
struct StateIndex {
  std::int64_t HV, K, V;
  bool vk;

  StateIndex(const call::Record& record, const call::Dims& dims)
      : HV(dims.HV),
        K(dims.K),
        V(dims.V),
        vk(record.convention.state_layout == call::StateLayout::kVK) {}

  [[nodiscard]] std::size_t operator()(std::int64_t block, std::int64_t head, std::int64_t i,
                                       std::int64_t v) const {
    return static_cast<std::size_t>((block * HV + head) * K * V + (vk ? v * K + i : i * V + v));
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
[[nodiscard]] std::vector<double> start_columns(const CallInputs& inputs, const StateIndex& index,
                                                const call::Sequence& sequence, std::int64_t head,
                                                std::int64_t first, std::int64_t columns);

/// v of one lane, [token_count, V].
[[nodiscard]] Matrix<double> lane_values(const CallInputs& inputs, const call::Dims& dims,
                                         const call::Sequence& sequence, std::int64_t head);

/// The start state of one lane, [K, V]; zero where the sequence has none.
[[nodiscard]] Matrix<double> lane_start(const CallInputs& inputs, const call::Dims& dims,
                                        const StateIndex& index, const call::Sequence& sequence,
                                        std::int64_t head);

}  // namespace goldenrule::delta
