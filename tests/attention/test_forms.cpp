// SPDX-License-Identifier: Apache-2.0
//
// Three forms of one rule agree in the widest tier to some units of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "reference/attention/rule/evaluate.hpp"
#include "reference/attention/rule/forms.hpp"
#include "tests/attention/problems.hpp"

using namespace goldenrule;
using namespace goldenrule::attention;
using scalar::Multi;

namespace {

// In units of the tier, against the largest score and value that meet in the result.
double distance(const RowValue<Multi>& a, const RowValue<Multi>& b, double size, double scores) {
  REQUIRE(a.has_keys == b.has_keys);
  if (!a.has_keys) return 0.0;
  double worst = std::fabs(scalar::to_double(a.lse - b.lse)) / scores;
  for (std::size_t x = 0; x < a.o.size(); ++x) {
    worst = std::max(worst, std::fabs(scalar::to_double(a.o[x] - b.o[x])) / (size * scores));
  }
  return worst * 0x1p168;
}

}  // namespace

TEST_CASE("attention: two passes, random merge trees and reciprocals agree in the widest tier") {
  for (int f = 0; f < kPatterns; ++f) {
    const auto pattern = static_cast<Pattern>(f);
    double trees = 0.0;
    double reciprocals = 0.0;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const call::Record call = random_problem(pattern, call::DType::kBF16, seed, {.key_dim = 16});
      CAPTURE(line_of(pattern, call::DType::kBF16, seed));
      const Plan plan = make_plan(call);
      const Tensors tensors(call);
      // Scores err by units of their size.
      const double scores = pattern == Pattern::kHuge ? 1e5 : 100.0;
      for (const RowJob& job : row_jobs(plan)) {
        const auto values = two_pass<Multi>(tensors, plan, *job.request, job.rows, false);
        for (std::size_t r = 0; r < values.size(); ++r) {
          const auto tree =
              by_merge_tree<Multi>(tensors, plan, *job.request, job.rows[r], seed + r);
          const auto other = by_reciprocals<Multi>(tensors, plan, *job.request, job.rows[r]);
          trees = std::max(trees, distance(values[r], tree, 5.0, scores));
          reciprocals = std::max(reciprocals, distance(values[r], other, 5.0, scores));
        }
      }
    }
    MESSAGE(std::string(name_of(pattern)) << ": trees " << trees << ", reciprocals " << reciprocals
                                          << " units of 2^-168 of the scores");
    // An exponential may err by 256 units, and a comb multiplies up to 46 of them for each key: 2 x
    // 46 x 256 units against scores of 100 are 236, other operations some more.
    CHECK(trees <= 300.0);
    CHECK(reciprocals <= 300.0);
  }
}
