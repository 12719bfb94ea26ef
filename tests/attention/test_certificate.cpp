// SPDX-License-Identifier: Apache-2.0
//
// The certificate encloses: what double and quad compute lies within their radii of what the widest
// tier computes, whose own radius is below 2^-150 of it. And it is not idle: the largest error is a
// visible part of the radius.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "reference/attention/rule/evaluate.hpp"
#include "tests/attention/problems.hpp"

using namespace goldenrule;
using namespace goldenrule::attention;
using scalar::Multi;

namespace {

struct WorstBound {
  double o = 0.0, lse = 0.0;
  std::int64_t elements = 0, unbounded = 0;
};

// |a - b| / radius in the widest tier; an infinite radius encloses everything.
void compare(double narrow, const Multi& wide, double radius, double& worst, WorstBound& counts) {
  ++counts.elements;
  if (!std::isfinite(radius)) {
    ++counts.unbounded;
    return;
  }
  const double error = std::fabs(scalar::to_double(Multi(narrow) - wide));
  if (error > 0.0) worst = std::max(worst, error / radius);
}

void compare(const call::Record& call, WorstBound& worst) {
  const Plan plan = make_plan(call);
  const Tensors tensors(call);
  const verdict::Expectations in_double = evaluate(call, scalar::Precision::kDouble);
  const verdict::Exact& o = in_double.outputs.at("o").exact;
  const verdict::Exact& lse = in_double.outputs.at("lse").exact;
  for (const RowJob& job : row_jobs(plan)) {
    const auto wide = two_pass<Multi>(tensors, plan, *job.request, job.rows, false);
    for (std::size_t r = 0; r < wide.size(); ++r) {
      const auto first = static_cast<std::size_t>(o_index(plan, *job.request, job.rows[r]));
      const std::size_t at =
          lse_index(plan, job.request->first_query + job.rows[r].query, job.rows[r].head);
      if (!wide[r].has_keys) {
        CHECK(o.golden[first] == 0.0);
        CHECK(lse.golden[at] == -INFINITY);
        continue;
      }
      for (std::size_t x = 0; x < wide[r].o.size(); ++x) {
        compare(o.golden[first + x], wide[r].o[x], static_cast<double>(o.radius[first + x]),
                worst.o, worst);
      }
      compare(lse.golden[at], wide[r].lse, static_cast<double>(lse.radius[at]), worst.lse, worst);
    }
  }
}

}  // namespace

TEST_CASE("attention: the certificate of double encloses the widest tier") {
  for (int f = 0; f < kPatterns; ++f) {
    const auto pattern = static_cast<Pattern>(f);
    WorstBound worst;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      for (const call::DType type : {call::DType::kBF16, call::DType::kF32}) {
        CAPTURE(line_of(pattern, type, seed));
        const double before = std::max(worst.o, worst.lse);
        compare(random_problem(pattern, type, seed, {.context = 32, .key_dim = 16}), worst);
        if (std::max(worst.o, worst.lse) > before) CHECK(std::max(worst.o, worst.lse) <= 1.0);
      }
    }
    MESSAGE(std::string(name_of(pattern))
            << ": largest error / radius " << worst.o << " of o, " << worst.lse << " of lse, "
            << worst.elements << " elements, " << worst.unbounded << " unbounded");
    CHECK(worst.unbounded == 0);
    CHECK(worst.o > 0.002);  // a bound of worst cases against errors that partly cancel
  }
}

TEST_CASE(
    "attention: a radius is infinite where scores are too uncertain, and a wider tier's is not") {
  call::Record call = random_problem(Pattern::kRandom, call::DType::kF64, 3, {.plain = true});
  call.convention.scale = 1e13;  // scores of 1e13 and more: their error is above 2^-8
  const auto narrow = evaluate(call, scalar::Precision::kDouble);
  const auto wide = evaluate(call, scalar::Precision::kMulti);
  CHECK(std::isinf(narrow.outputs.at("o").exact.max_radius()));
  CHECK(wide.outputs.at("o").exact.max_radius() < 1e-14);
  call.convention.soft_cap = 5.0;
  CHECK(evaluate(call, scalar::Precision::kQuad).outputs.at("o").exact.max_radius() < 1e-13);
}
