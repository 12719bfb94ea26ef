// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/visible/failing_rows.hpp"

#include "reference/attention/rule/evaluate.hpp"
#include "reference/explain/failures.hpp"

namespace goldenrule::attention {
namespace {

std::int64_t failing_elements(const std::vector<explain::Failures>& failures, const Plan& plan,
                              const Place& place) {
  const Request& request = plan.requests[place.request];
  std::int64_t count = 0;
  for (const explain::Failures& f : failures) {
    if (f.name == "lse") {
      count += f.failing[lse_index(plan, request.first_query + place.row.query, place.row.head)];
      continue;
    }
    const std::int64_t first = o_index(plan, request, place.row);
    for (std::int64_t x = 0; x < plan.dims.V; ++x) {
      count += f.failing[static_cast<std::size_t>(first + x)];
    }
  }
  return count;
}

}  // namespace

JudgedRows judged_rows(const verdict::Judgement& judgement, const Plan& plan) {
  JudgedRows rows;
  if (!judgement.record.outputs.contains("o")) return rows;
  const auto failures =
      explain::find_failures(judgement.record, judgement.contract, judgement.expected);
  for (std::size_t n = 0; n < plan.requests.size(); ++n) {
    for (std::int64_t i = 0; i < plan.requests[n].valid; ++i) {
      for (std::int64_t j = 0; j < plan.dims.HV; ++j) {
        const Place place{n, {i, j}};
        const std::int64_t count = failing_elements(failures, plan, place);
        (count > 0 ? rows.failing : rows.passing).push_back({place, count});
      }
    }
  }
  return rows;
}

std::vector<JudgedRow> thinned(const std::vector<JudgedRow>& rows, std::int64_t most) {
  const std::int64_t n = std::ssize(rows);
  if (n <= most) return rows;
  std::vector<JudgedRow> kept;
  for (std::int64_t i = 0; i < most; ++i) {
    kept.push_back(rows[static_cast<std::size_t>(i * n / most)]);
  }
  return kept;
}

}  // namespace goldenrule::attention
