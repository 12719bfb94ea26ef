// SPDX-License-Identifier: Apache-2.0
//
// Between the tensors of a call and its lanes.
#pragma once

#include <string>
#include <vector>

#include "reference/backward/rule/lane_gradients.hpp"

namespace goldenrule::backward {

/// A sequence: tokens [first, first + count) of the packed axis.
struct Sequence {
  std::int64_t first = 0, count = 0;
};

/// Throws Error for cu_seqlens that do not ascend from 0 to the number of tokens.
[[nodiscard]] std::vector<Sequence> sequences_of(const call::Record& record,
                                                 const call::Dims& dims);

/// The value heads that read query/key head `h`, rising.
[[nodiscard]] std::vector<std::int64_t> heads_of_group(const call::Record& record,
                                                       const call::Dims& dims, std::int64_t h);

/// What the lane of a sequence and value head is given beside q, k and its gates.
[[nodiscard]] LaneInputs lane_inputs(const call::Record& record, const call::Dims& dims,
                                     std::int64_t sequence, const Sequence& tokens,
                                     std::int64_t head);

/// "da" or "dg", "db" or "dbeta"; empty where the call has no gate.
[[nodiscard]] std::string gate_output(const call::Convention& convention);
[[nodiscard]] std::string beta_output(const call::Convention& convention);

}  // namespace goldenrule::backward
