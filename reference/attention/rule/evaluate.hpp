// SPDX-License-Identifier: Apache-2.0
//
// The oracle of attention: the two-pass form over all rows of a call, in parallel over requests,
// key heads and small groups of rows. The groups do not depend on the number of threads.
#pragma once

#include "reference/attention/rule/rule.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::attention {

/// Rows that are computed on together: a tile of keys is read once for all of them.
inline constexpr std::int64_t kRowsTogether = 8;

/// Rows of one request and one key head.
struct RowJob {
  const Request* request;
  std::vector<RowPlace> rows;
};

/// All rows of a plan but the padding, in a fixed order.
[[nodiscard]] std::vector<RowJob> row_jobs(const Plan& plan);

/// Index of element (query, head, 0) in o.
[[nodiscard]] inline std::int64_t o_index(const Plan& plan, const Request& request,
                                          const RowPlace& row) {
  return ((request.first_query + row.query) * plan.dims.HV + row.head) * plan.dims.V;
}

/// The exact outputs `o` and `lse` of a plan on the tensors of `record`. Rows without a visible key
/// have o = 0 and lse = -inf. Bitwise independent of the number of threads.
[[nodiscard]] verdict::Expectations evaluate(const call::Record& record, const Plan& plan,
                                             scalar::Precision precision, bool certify);

/// The same with the plan of the call. Throws Error for a call that makes no sense.
[[nodiscard]] verdict::Expectations evaluate(const call::Record& call, scalar::Precision precision,
                                             bool certify = true);

/// The outputs as a kernel gives them, in f64, without a certificate.
[[nodiscard]] call::TensorMap outputs_of(const call::Record& record, const Plan& plan);

}  // namespace goldenrule::attention
