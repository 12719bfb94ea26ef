// SPDX-License-Identifier: Apache-2.0
//
// Every named mistake can be made in some problem and is refused there: an element of o or lse lies
// beyond the budget of flash_bf16, half an ulp of storage included. And a kernel without a mistake
// is refused nowhere (test_budget.cpp).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "fixtures/call/integer_inputs.hpp"
#include "reference/attention/budget/grant.hpp"
#include "reference/attention/emulation/emulate.hpp"
#include "reference/attention/mistakes/mistake.hpp"
#include "reference/attention/mistakes/plain_call.hpp"
#include "tests/attention/problems.hpp"

using namespace goldenrule;
using namespace goldenrule::attention;

namespace {

const contract::Contract& flash() { return contract::find_contract("flash_bf16"); }

call::TensorMap exact(const call::Record& record) { return outputs_of(record, make_plan(record)); }

struct Judged {
  call::Record call;
  verdict::Expectations expected;

  explicit Judged(call::Record given)
      : call(std::move(given)), expected(evaluate(call, scalar::Precision::kDouble)) {
    grant(call, flash(), verdict::GrantDetail::kSpread, expected);
  }

  // The largest error over budget of an output as it is stored; infinite where it is not finite.
  [[nodiscard]] double worst(const call::TensorMap& outputs) const {
    double worst = 0.0;
    for (const auto& [name, e] : expected.outputs) {
      const call::DType type = name == "o" ? call::DType::kBF16 : call::DType::kF32;
      const call::Tensor& output = outputs.at(name);
      for (std::int64_t i = 0; i < output.size(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double golden = e.exact.golden[at];
        const double y = call::round_to(type, output[i]);
        if (y == golden) continue;
        const double spread = static_cast<double>(e.grant.spread[at]) +
                              static_cast<double>(e.exact.radius[at]) + e.flushed(at);
        const double budget = spread + 0.5 * call::ulp(type, std::fabs(golden) + spread);
        const double ratio = std::fabs(y - golden) / budget;
        worst = std::max(worst, std::isnan(ratio) ? HUGE_VAL : ratio);
      }
    }
    return worst;
  }
};

// More pages than 16 bits count; the request has the last of them.
call::Record many_pages() {
  constexpr std::int64_t kPages = 65540;
  call::Record call;
  call.op = call::Op::kAttention;
  auto& in = call.inputs;
  std::vector<double> k(kPages);
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<double>(i % 7) - 3.0;
  in["q"] = call::Tensor(call::DType::kBF16, {1, 1, 1}, std::vector<double>{1.0});
  in["cu_seqlens_q"] = call::integer_tensor({0, 1});
  in["k_cache"] = call::Tensor(call::DType::kBF16, {kPages, 1, 1, 1}, k);
  in["v_cache"] = in["k_cache"];
  in["kv_lens"] = call::integer_tensor({2});
  in["page_table"] = call::integer_tensor({kPages - 1, 5}, {1, 2});
  return call;
}

std::vector<Judged> problems() {
  std::vector<Judged> all;
  for (const Pattern pattern : {Pattern::kRandom, Pattern::kSparse, Pattern::kLow}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      all.emplace_back(random_problem(pattern, call::DType::kBF16, seed, {.queries = 20}));
    }
  }
  // Long rows, many queries, wide keys.
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    all.emplace_back(random_problem(Pattern::kSparse, call::DType::kBF16, seed,
                                    {.context = 150, .queries = 80, .requests = 2}));
  }
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    all.emplace_back(random_problem(Pattern::kRandom, call::DType::kBF16, seed, {.key_dim = 190}));
  }
  // Later tokens within a window, which no other mask hides.
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    call::Record call = random_problem(Pattern::kSparse, call::DType::kBF16, seed, {.queries = 20});
    call.convention.mask = Mask::kFull;
    call.convention.window_right = static_cast<std::int64_t>(seed) / 2;
    all.emplace_back(std::move(call));
  }
  all.emplace_back(many_pages());
  return all;
}

}  // namespace

TEST_CASE("attention: every mistake can be made, and is refused where it is") {
  const std::vector<Judged> all = problems();
  const calls::Kernel kernel = exact;
  std::set<std::string_view> names;
  for (const calls::Mistake& mistake : mistakes()) {
    names.insert(mistake.name);
    std::int64_t made = 0;
    std::int64_t refused = 0;
    double worst = 0.0;
    for (const Judged& problem : all) {
      if (!mistake.applies(problem.call)) continue;
      ++made;
      const double ratio = problem.worst(mistake.commit(problem.call, kernel));
      worst = std::max(worst, ratio);
      if (ratio > 1.0) ++refused;
    }
    MESSAGE(std::string(mistake.name) << ": made " << made << " times, refused " << refused
                                      << " times, largest error / budget " << worst);
    CAPTURE(std::string(mistake.name));
    CHECK(made > 0);
    CHECK(refused > 0);
  }
  MESSAGE(names.size() << " names");
}

TEST_CASE("attention: a mistake around an emulated kernel is refused as around the oracle") {
  const Judged problem(random_problem(Pattern::kRandom, call::DType::kBF16, 4, {.queries = 12}));
  const calls::Kernel kernel = [](const call::Record& record) {
    return emulate(record, flash(), 5);
  };
  CHECK(problem.worst(kernel(problem.call)) <= 1.0);
  std::int64_t refused = 0;
  for (const calls::Mistake& mistake : mistakes()) {
    if (!mistake.applies(problem.call)) continue;
    if (problem.worst(mistake.commit(problem.call, kernel)) > 1.0) ++refused;
  }
  CHECK(refused > 3);
}

namespace {

// What a mistake makes of a plan, in one plan: other ranges, heads, scales, and keys of zeros.
Plan changed_plan(const call::Record& call, std::uint64_t seed) {
  Plan plan = make_plan(call);
  if (seed % 3 == 0) std::ranges::fill(plan.key_head, plan.dims.H - 1);
  if (seed % 4 == 1) plan.scale *= 1.5;
  for (Request& request : plan.requests) {
    for (Range& range : request.visible) range.last = std::min(range.last, request.offset + 3);
    if (seed % 2 == 0) request.runs.push_back({Source::kZeros, 0, request.offset, 1});
    if (request.valid > 1 && seed % 5 == 2) {
      --request.valid;
      request.visible.pop_back();
    }
  }
  return plan;
}

}  // namespace

TEST_CASE("attention: the plain call of a changed plan gives its bits") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const call::Record call = random_problem(Pattern::kRandom, call::DType::kBF16, seed);
    const Plan plan = changed_plan(call, seed);
    const call::TensorMap by_plan = outputs_of(call, plan);
    const call::TensorMap by_call = exact(call_of(call, plan));
    for (const auto& [name, tensor] : by_plan) {
      const call::Tensor& other = by_call.at(name);
      CHECK(tensor.shape() == other.shape());
      CHECK(std::ranges::equal(tensor.bytes(), other.bytes()));
    }
  }
}
