// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/rule/evaluate.hpp"

#include <algorithm>

#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/drafts/rule/rule.hpp"

namespace goldenrule::drafts {
namespace {

using Values = std::vector<Returned::Value>;

struct RowResult {
  Returned exact;   // decided without rounding
  Returned common;  // to all outcomes
};

RowResult result_of(const Decisions& v, std::int64_t n) {
  const std::vector<Outcome> outcomes = v.outcomes(n);
  Outcome exact = outcomes.front();
  if (!exact.token) exact.token = v.choice(n, exact.accepted).exact;
  RowResult result{.exact = v.returned(n, exact), .common = v.returned(n, outcomes.front())};
  Returned& common = result.common;
  for (std::size_t k = 1; k < outcomes.size(); ++k) {
    const Returned other = v.returned(n, outcomes[k]);
    const auto join = [](Returned::Value& to, const Returned::Value& from) {
      if (to != from) to.reset();
    };
    for (std::size_t i = 0; i < common.tokens.size(); ++i) {
      join(common.tokens[i], other.tokens[i]);
      join(common.keep[i], other.keep[i]);
    }
    for (const auto field :
         {&Returned::accepted, &Returned::committed, &Returned::target_len, &Returned::draft_len,
          &Returned::next_anchor, &Returned::release_from}) {
      join(common.*field, other.*field);
    }
  }
  return result;
}

// f(index, value) for the numbers of row n of an output.
template <class F>
void for_each_element(const Values& row, std::size_t n, const verdict::Exact& exact, const F& f) {
  for (std::size_t i = 0; i < row.size(); ++i) f(n * exact.block + i, row[i]);
}

}  // namespace

verdict::Expectations evaluate(const call::Record& record) {
  const Plan plan = make_plan(record);
  const Decisions decisions(record, plan);
  const std::int64_t rows = plan.dims.rows;
  std::vector<RowResult> results(static_cast<std::size_t>(rows));
  parallel::for_each_index(rows, [&](std::int64_t n) {
    const bool padded = plan.rows[static_cast<std::size_t>(n)].padded();
    const Returned nothing = padded ? decisions.returned(n, {}) : Returned();
    results[static_cast<std::size_t>(n)] =
        padded ? RowResult{.exact = nothing, .common = nothing} : result_of(decisions, n);
  });
  verdict::Expectations expected;
  const Returned empty;
  Returned::for_each(empty, [&](const char* name, const auto&) {
    verdict::Exact& exact = expected.outputs[name].exact;
    exact.shape = call::output_shape(record, plan.dims, name);
    const auto size = static_cast<std::size_t>(call::element_count(exact.shape));
    exact.golden.resize(size);
    exact.radius.resize(size);
    exact.undefined.resize(size);
    exact.block = exact.shape.size() == 1 ? 1 : static_cast<std::size_t>(exact.shape.back());
    for (const Row& row : plan.rows) {
      exact.touched.push_back(row.padded() ? verdict::Touch::kCopied : verdict::Touch::kComputed);
    }
  });
  for (std::size_t n = 0; n < results.size(); ++n) {
    Returned::for_each(results[n].exact, [&](const char* name, const auto& value) {
      verdict::Exact& exact = expected.outputs.at(name).exact;
      for_each_element(Returned::values(value), n, exact, [&](std::size_t at, const auto& x) {
        exact.golden[at] = static_cast<double>(x.value_or(0));
      });
    });
    Returned::for_each(results[n].common, [&](const char* name, const auto& value) {
      verdict::Exact& exact = expected.outputs.at(name).exact;
      for_each_element(Returned::values(value), n, exact,
                       [&](std::size_t at, const auto& x) { exact.undefined[at] = !x; });
    });
  }
  for (auto& [name, e] : expected.outputs) {
    if (std::ranges::find(e.exact.undefined, true) == e.exact.undefined.end()) {
      e.exact.undefined.clear();
    }
  }
  return expected;
}

}  // namespace goldenrule::drafts
