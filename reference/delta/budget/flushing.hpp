// SPDX-License-Identifier: Apache-2.0
//
// What a kernel may lose in an element that flushes subnormal fp32 numbers to zero: up to 2^-126 in
// each of the K + 1 numbers that meet in it, times the largest number M that they multiply, and no
// less than 1, since v itself may be subnormal. M is that of the element's own value channel, which
// no other reaches: of the start state's column and of v up to its token. Where all of these are 0
// nothing is lost. Behind a gate below 2^-126 a large M may be lost as a whole; no more than 2^60
// counts, with which the term stays below 2^-57 for K = 256.
#pragma once

#include "fixtures/call/plan.hpp"
#include "reference/delta/oracle/lane_io.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::delta {

/// What an element of channel x may lose after t tokens of a lane, [tokens + 1, V].
[[nodiscard]] Matrix<double> flushed_of_lane(const Matrix<double>& v, const Matrix<double>& start);

/// Stores row t of it to the channels of one row and head, from channel `first` on.
void store_flushed(const Matrix<double>& lost, std::int64_t t, std::size_t first,
                   verdict::Grant& to);

/// What any element may lose that no value reaches: a norm, a gate, a product of keys.
[[nodiscard]] double flushed_beside_values(std::int64_t K);

/// Fills in Grant::flushed of all outputs in `expected`.
void grant_flushing(const call::Record& record, const call::Plan& plan,
                    verdict::Expectations& expected);

}  // namespace goldenrule::delta
