// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/budget/grant.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/call/f32_bound.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/attention/budget/row_budget.hpp"
#include "reference/verdict/grants.hpp"

namespace goldenrule::attention {
namespace {

void prepare(verdict::Expected& expected, verdict::GrantDetail detail) {
  const double multiple = verdict::deviation_multiple(std::ssize(expected.exact.golden));
  expected.grant = verdict::empty_grant(expected.exact, multiple, detail);
}

// Where the exact result is not finite there is nothing to grant.
void store(verdict::Expected& to, std::size_t at, double sigma, double bias) {
  if (std::isfinite(to.exact.golden[at])) verdict::store_grant(to.grant, at, sigma, bias);
}

}  // namespace

void grant(const call::Record& record, const contract::Contract& contract,
           verdict::GrantDetail detail, verdict::Expectations& expected) {
  const Softmax* rounding = contract.softmax();
  for (auto& [name, e] : expected.outputs) {
    e.grant = {};
    e.grant.given = contract.is_ideal();
  }
  if (rounding == nullptr) return;
  const Plan plan = make_plan(record);
  verdict::Expected& o = expected.outputs.at("o");
  verdict::Expected& lse = expected.outputs.at("lse");
  prepare(o, detail);
  prepare(lse, detail);
  o.grant.anything.assign(o.exact.touched.size(), 0);
  o.grant.overflows.assign(o.exact.golden.size(), 0);
  lse.grant.overflows.assign(lse.exact.golden.size(), 0);
  const Tensors tensors(record);
  const std::vector<RowJob> jobs = row_jobs(plan);
  o.grant.flushed.assign(o.exact.touched.size(), 0.0F);
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const RowJob& job = jobs[static_cast<std::size_t>(i)];
    for (const RowPlace& row : job.rows) {
      const auto first = static_cast<std::size_t>(o_index(plan, *job.request, row));
      const std::size_t at = lse_index(plan, job.request->first_query + row.query, row.head);
      if (o.exact.touched[first / o.exact.block] != verdict::Touch::kComputed) continue;
      const RowBudget terms =
          row_budget(tensors, plan, *job.request, row, *rounding, o.grant.multiple,
                     &o.exact.golden[first], lse.exact.golden[at]);
      o.grant.anything[first / o.exact.block] = terms.anything ? 1 : 0;
      for (std::size_t x = 0; x < terms.sigma.size(); ++x) {
        store(o, first + x, terms.sigma[x], terms.bias[x]);
      }
      std::ranges::copy(terms.column_overflows,
                        o.grant.overflows.begin() + static_cast<std::ptrdiff_t>(first));
      lse.grant.overflows[at] = terms.overflows ? 1 : 0;
      store(lse, at, terms.lse_sigma, terms.lse_bias);
      o.grant.flushed[first / o.exact.block] = call::f32_not_below(terms.flushed);
    }
  });
}

}  // namespace goldenrule::attention
