// SPDX-License-Identifier: Apache-2.0
//
// The oracle of the backward pass: the gradients of a whole call, in parallel over sequences and
// query/key heads. The value heads of such a group are run one after another, their parts of dq and
// dk added up in rising order, and the parameters' gradients over the sequences in theirs, so the
// result does not depend on the number of threads.
//
// Sizes. A gradient that is one sum (dbeta, dg of one gate per head, dA_log, ddt_bias) may be small
// by chance, and says no less then: what a budget is held against is at least what the sum has
// where its terms have random signs (verdict::Exact::reach), the root of the sum of their squares.
// A token may be small beside its neighbours as well, where its gate erases: no optimizer sees it
// beside them, and none of its digits need be right. So a budget is held against no less than half
// of what the tokens of a chunk have, as mean squares; of dv the same channel by channel
// (pooled.hpp). What is granted is measured in a token's own size (verdict::Exact::unit).
#pragma once

#include <vector>

#include "reference/backward/rule/lane_gradients.hpp"
#include "reference/verdict/expectation.hpp"

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

/// Every output that the call can have. Throws Error for a call that makes no sense.
[[nodiscard]] verdict::Expectations evaluate(const call::Record& record,
                                             scalar::Precision precision,
                                             const verdict::EvaluationOptions& options = {});

}  // namespace goldenrule::backward
