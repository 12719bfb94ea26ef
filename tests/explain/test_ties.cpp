// SPDX-License-Identifier: Apache-2.0
//
// Kernels that compute token by token in fp32 and round something to bf16 as well are given the
// name of that rounding, although some of their numbers fall on the other side of a tie. The kernel
// here is written out: none of its arithmetic is the project's own.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/ties.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

float bf16(float x) { return static_cast<float>(call::round_to(call::DType::kBF16, x)); }

// What a kernel rounds beside its fp32 arithmetic.
struct Rounds {
  bool state_after_read = false, state_before_read = false, beta = false, gate = false,
       final_state = false;
};

// Gate log, beta direct, one q/k head per value head, norm with the eps inside the root, [V,K].
Record fp32_capture(const std::string& line, const Rounds& rounds) {
  Record record = make_call(line);
  record.contract = "recurrent_f32";
  const call::Dims d = call::validate(record);
  const auto floats = [&](const char* name) {
    const std::vector<double> x = record.inputs.at(name).to_doubles();
    return std::vector<float>(x.begin(), x.end());
  };
  const auto q = floats("q"), k = floats("k"), v = floats("v"), g = floats("g"),
             beta = floats("beta"), initial = floats("initial_state");
  const auto bounds = record.inputs.at("cu_seqlens").to_integers();
  std::vector<double> o(v.size());
  std::vector<double> final_state(initial.size());
  const auto K = static_cast<std::size_t>(d.K);
  const auto V = static_cast<std::size_t>(d.V);
  const auto H = static_cast<std::size_t>(d.HV);
  const auto normalised = [&](const std::vector<float>& x, std::size_t row) {
    float sum = 0.0F;
    for (std::size_t i = 0; i < K; ++i) sum += x[row * K + i] * x[row * K + i];
    const float inverse = 1.0F / std::sqrt(sum + 1e-6F);
    std::vector<float> y(K);
    for (std::size_t i = 0; i < K; ++i) y[i] = x[row * K + i] * inverse;
    return y;
  };
  const float scale = 1.0F / std::sqrt(static_cast<float>(K));
  for (std::size_t n = 0; n + 1 < bounds.size(); ++n) {
    for (std::size_t h = 0; h < H; ++h) {
      const std::size_t block = (n * H + h) * K * V;
      std::vector<float> S(initial.begin() + static_cast<std::ptrdiff_t>(block),
                           initial.begin() + static_cast<std::ptrdiff_t>(block + K * V));
      const auto round_state = [&] {
        for (float& x : S) x = bf16(x);
      };
      for (auto t = static_cast<std::size_t>(bounds[n]);
           t < static_cast<std::size_t>(bounds[n + 1]); ++t) {
        const std::size_t row = t * H + h;
        const auto kt = normalised(k, row), qt = normalised(q, row);
        const float alpha = std::exp(rounds.gate ? bf16(g[row]) : g[row]);
        const float b = rounds.beta ? bf16(beta[row]) : beta[row];
        for (std::size_t x = 0; x < V; ++x) {
          float* const s = S.data() + x * K;
          float known = 0.0F;
          for (std::size_t i = 0; i < K; ++i) {
            s[i] *= alpha;
            known += s[i] * kt[i];
          }
          const float delta = b * (v[row * V + x] - known);
          for (std::size_t i = 0; i < K; ++i) s[i] += kt[i] * delta;
        }
        if (rounds.state_before_read) round_state();
        for (std::size_t x = 0; x < V; ++x) {
          float sum = 0.0F;
          for (std::size_t i = 0; i < K; ++i) sum += S[x * K + i] * (qt[i] * scale);
          o[row * V + x] = static_cast<double>(sum);
        }
        if (rounds.state_after_read) round_state();
      }
      if (rounds.final_state) round_state();
      for (std::size_t i = 0; i < K * V; ++i) final_state[block + i] = static_cast<double>(S[i]);
    }
  }
  record.outputs["o"] = call::Tensor(call::DType::kF32, record.inputs.at("v").shape(), o);
  record.outputs["final_state"] =
      call::Tensor(call::DType::kF32, record.inputs.at("initial_state").shape(), final_state);
  return record;
}

std::string call_of(int tokens) {
  return "op=gdn mode=prefill lens=" + std::to_string(tokens) +
         " H=3 HV=3 K=32 V=32 gate=log beta=direct h0=1 io=f32";
}

Diagnosis explained(const Record& record) {
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  const auto judged = verdict::judgement(
      delta::slice(), record, {.contract = contract, .precision = scalar::Precision::kDouble});
  return diagnose(judged, delta::mistakes());
}

void check_named(const Record& record, const char* name) {
  const Diagnosis d = explained(record);
  INFO(name, ": ", d.pattern);
  REQUIRE(!d.explanations.empty());
  const Explanation& first = d.explanations.front();
  CHECK(first.name() == name);
  CHECK(first.explains);
  CHECK(first.accounted > 0.5);
}

TEST_CASE("ties: the fp32 kernel itself is right") {
  const Record record = fp32_capture(call_of(16), {});
  CHECK(explained(record).pattern.empty());
}

TEST_CASE("ties: a state in bf16 is named for one token and for many") {
  for (const int tokens : {1, 4, 16, 70}) {
    CAPTURE(tokens);
    check_named(fp32_capture(call_of(tokens), {.state_after_read = true}), "state_bf16_each_token");
    check_named(fp32_capture(call_of(tokens), {.state_before_read = true}),
                "state_bf16_each_token");
  }
}

TEST_CASE("ties: rounded activations and a rounded final state are named") {
  check_named(fp32_capture(call_of(40), {.beta = true}), "beta_bf16");
  check_named(fp32_capture(call_of(40), {.gate = true}), "gate_bf16");
  check_named(fp32_capture(call_of(40), {.final_state = true}), "final_state_bf16");
}

TEST_CASE("ties: more than ties may leave is not explained") {
  Record record = fp32_capture(call_of(16), {.state_after_read = true});
  call::Tensor& o = record.outputs.at("o");
  SUBCASE("too many elements") {
    for (std::int64_t i = 0; i < o.size(); i += 2) o.set(i, o[i] * 1.001);
  }
  SUBCASE("one element too far off") { o.set(100, o[100] + 1.0); }
  const Diagnosis d = explained(record);
  CHECK(std::ranges::none_of(d.explanations, &Explanation::explains));
}

}  // namespace
}  // namespace goldenrule::explain::test
