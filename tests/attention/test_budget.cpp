// SPDX-License-Identifier: Apache-2.0
//
// False alarms: honest kernels under each contract stay within what it grants, without the half
// ulp of storage that a verdict adds. And the grant is no larger than it must be: the largest error
// is a visible part of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "reference/attention/budget/grant.hpp"
#include "reference/attention/emulation/emulate.hpp"
#include "tests/attention/problems.hpp"

using namespace goldenrule;
using namespace goldenrule::attention;

namespace {

constexpr std::uint64_t kTimes = 1;  // as many problems

struct Worst {
  double o = 0.0, lse = 0.0;
  std::int64_t runs = 0;
};

double worst_ratio(const call::Tensor& y, const verdict::Expected& expected) {
  double worst = 0.0;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double golden = expected.exact.golden[at];
    if (!std::isfinite(golden)) {
      CHECK(y[i] == golden);  // no visible key
      continue;
    }
    if (expected.is_overflow(at, y[i])) continue;  // a type that cannot hold the scores
    const double granted = static_cast<double>(expected.grant.spread[at]) +
                           static_cast<double>(expected.exact.radius[at]) + expected.flushed(at);
    const double error = std::fabs(y[i] - golden);
    if (error != 0.0) worst = std::max(worst, error <= granted ? error / granted : 1.001);
    if (error > granted) worst = std::max(worst, error / granted);
  }
  return worst;
}

void judge(Pattern pattern, call::DType type, std::uint64_t seed, const Size& size,
           std::map<std::string_view, Worst>& worst) {
  const call::Record call = random_problem(pattern, type, seed, size);
  const Plan plan = make_plan(call);
  verdict::Expectations expected = evaluate(call, plan, scalar::Precision::kDouble, true);
  for (const contract::Contract& contract : contract::contracts_of(call::Family::kAttention)) {
    if (contract.is_ideal()) continue;
    grant(call, contract, verdict::GrantDetail::kSpread, expected);
    for (std::uint64_t kernel = 0; kernel < 3; ++kernel) {
      const std::uint64_t choice = seed * 10 + kernel;
      const call::TensorMap outputs = emulate(call, contract, choice);
      const double o = worst_ratio(outputs.at("o"), expected.outputs.at("o"));
      const double lse = worst_ratio(outputs.at("lse"), expected.outputs.at("lse"));
      CAPTURE(line_of(pattern, type, seed));
      CAPTURE(contract.name);
      CAPTURE(KernelChoices(choice).words());
      if (o > 1.0 || lse > 1.0) {
        CHECK(o <= 1.0);
        CHECK(lse <= 1.0);
      }
      Worst& w = worst[contract.name];
      w.o = std::max(w.o, o);
      w.lse = std::max(w.lse, lse);
      ++w.runs;
    }
  }
}

}  // namespace

TEST_CASE("attention: honest kernels stay within the budget of their contract") {
  std::int64_t runs = 0;
  for (int f = 0; f < kPatterns; ++f) {
    const auto pattern = static_cast<Pattern>(f);
    std::map<std::string_view, Worst> worst;
    for (const call::DType type : {call::DType::kBF16, call::DType::kF16}) {
      for (std::uint64_t seed = 0; seed < 16 * kTimes; ++seed)
        judge(pattern, type, seed, {}, worst);
      for (std::uint64_t seed = 100; seed < 100 + 6 * kTimes; ++seed) {
        const auto context = static_cast<std::int64_t>(60 << seed % 5);
        judge(pattern, type, seed, {.context = context, .queries = 2, .key_dim = 80, .plain = true},
              worst);
      }
    }
    for (const auto& [name, w] : worst) {
      MESSAGE(std::string(name_of(pattern))
              << ", " << std::string(name) << ": largest error / grant " << w.o << " of o, "
              << w.lse << " of lse");
      runs += w.runs;
    }
  }
  MESSAGE(runs << " kernels");
}
