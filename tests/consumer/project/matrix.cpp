// SPDX-License-Identifier: Apache-2.0
//
// A kernel matrix in somebody's own doctest: the cases come from case lines, the kernel is their
// own, and each verdict is that of goldenrule. tests/README.md shows the second half of this file.
// Here the kernel is a plain fp32 decode step for the default conventions.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/case.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/verdict.hpp"

namespace {

using namespace goldenrule;

std::vector<float> row(const call::Tensor& x, std::int64_t index, std::int64_t size) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < size; ++i) values.push_back(static_cast<float>(x[index * size + i]));
  return values;
}

std::vector<float> normalised(std::vector<float> x, float scale) {
  float sum = 1e-6f;
  for (const float value : x) sum += value * value;
  for (float& value : x) value *= scale / std::sqrt(sum);
  return x;
}

// One token of one value head: `S` is [V,K]. Returns o.
std::vector<float> step(std::vector<float>& S, const std::vector<float>& q,
                        const std::vector<float>& k, const std::vector<float>& v, float alpha,
                        float beta) {
  const std::size_t K = k.size();
  std::vector<float> o(v.size());
  for (std::size_t j = 0; j < v.size(); ++j) {
    float seen = 0.0f;
    for (std::size_t i = 0; i < K; ++i) seen += (S[j * K + i] *= alpha) * k[i];
    const float d = beta * (v[j] - seen);
    for (std::size_t i = 0; i < K; ++i) o[j] += (S[j * K + i] += d * k[i]) * q[i];
  }
  return o;
}

call::TensorMap my_kernel(const call::Record& call, bool with_decay) {
  const call::Dims dims = call::validate(call);
  const std::int64_t B = dims.rows, H = dims.H, HV = dims.HV, K = dims.K, V = dims.V;
  const auto& in = call.inputs;
  call::TensorMap out;
  call::Tensor& o = out["o"] = call::Tensor(in.at("v").dtype(), in.at("v").shape());
  call::Tensor& state = out["final_state"] = in.at("initial_state");
  const float scale = 1.0f / std::sqrt(static_cast<float>(K));
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t j = 0; j < HV; ++j) {
      const std::int64_t token = b * HV + j, head = b * H + j / (HV / H);
      const auto x = static_cast<float>(in.at("a")[token] + in.at("dt_bias")[j]);
      const float alpha =
          std::exp(-std::exp(static_cast<float>(in.at("A_log")[j])) * std::log1p(std::exp(x)));
      const float beta = 1.0f / (1.0f + std::exp(-static_cast<float>(in.at("b")[token])));
      std::vector<float> S = row(in.at("initial_state"), token, K * V);
      const std::vector<float> result =
          step(S, normalised(row(in.at("q"), head, K), scale),
               normalised(row(in.at("k"), head, K), 1.0f), row(in.at("v"), token, V),
               with_decay ? alpha : 1.0f, beta);
      for (std::int64_t i = 0; i < V; ++i)
        o.set(token * V + i, result[static_cast<std::size_t>(i)]);
      for (std::int64_t i = 0; i < K * V; ++i) {
        state.set(token * K * V + i, S[static_cast<std::size_t>(i)]);
      }
    }
  }
  return out;
}

constexpr const char* kMatrix =
    "op=gdn mode=decode B={1,3} H=2 HV=4 K={16,64,100} V={8,33} io={bf16,f32} "
    "pattern={A,C050,E,I,production}";

verdict::Verdict judge(const std::string& line, bool with_decay) {
  call::Record call = cases::make_record(cases::parse(line));
  call.outputs = my_kernel(call, with_decay);
  return verdict::judge_record(delta::slice(), call).verdict;
}

}  // namespace

TEST_CASE("my kernel is right on the whole matrix") {
  for (const std::string& line : cases::expand(kMatrix)) {
    CAPTURE(line);  // one line of text is all that is needed to repeat a failure
    CHECK(verdict::is_pass(judge(line, true)));
  }
}

TEST_CASE("without its decay it is wrong on the whole matrix") {
  for (const std::string& line : cases::expand(kMatrix)) {
    CAPTURE(line);
    CHECK(judge(line, false) == verdict::Verdict::kOutOfBudget);
  }
}
