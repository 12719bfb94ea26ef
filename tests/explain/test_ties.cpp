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
  std::size_t wrong_way = 1 << 20;  // head whose beta becomes the other neighbour
};

// Gate log, beta direct, one q/k head per value head, norm with the eps inside the root, [V,K].
class Fp32Kernel {
 public:
  Fp32Kernel(const Record& record, const Rounds& rounds)
      : rounds_(rounds),
        q_(floats(record, "q")),
        k_(floats(record, "k")),
        v_(floats(record, "v")),
        g_(floats(record, "g")),
        beta_(floats(record, "beta")) {
    const call::Dims d = call::validate(record);
    K_ = static_cast<std::size_t>(d.K);
    V_ = static_cast<std::size_t>(d.V);
    H_ = static_cast<std::size_t>(d.HV);
    scale_ = 1.0F / std::sqrt(static_cast<float>(K_));
  }

  static std::vector<float> floats(const Record& record, const char* name) {
    const std::vector<double> x = record.inputs.at(name).to_doubles();
    return {x.begin(), x.end()};
  }

  [[nodiscard]] std::size_t heads() const { return H_; }
  [[nodiscard]] std::size_t state_size() const { return K_ * V_; }

  /// Token t of head h: S becomes the state behind it, and its row of o is written.
  void step(std::size_t t, std::size_t h, std::vector<float>& S, std::vector<double>& o) const {
    const std::size_t row = t * H_ + h;
    const auto kt = normalised(k_, row), qt = normalised(q_, row);
    const float alpha = std::exp(rounds_.gate ? bf16(g_[row]) : g_[row]);
    float b = rounds_.beta ? bf16(beta_[row]) : beta_[row];
    if (h == rounds_.wrong_way) b = b > beta_[row] ? b - 0x1p-8F : b + 0x1p-8F;
    for (std::size_t x = 0; x < V_; ++x) {
      float* const s = S.data() + x * K_;
      float known = 0.0F;
      for (std::size_t i = 0; i < K_; ++i) {
        s[i] *= alpha;
        known += s[i] * kt[i];
      }
      const float delta = b * (v_[row * V_ + x] - known);
      for (std::size_t i = 0; i < K_; ++i) s[i] += kt[i] * delta;
    }
    if (rounds_.state_before_read) round_state(S);
    for (std::size_t x = 0; x < V_; ++x) {
      float sum = 0.0F;
      for (std::size_t i = 0; i < K_; ++i) sum += S[x * K_ + i] * (qt[i] * scale_);
      o[row * V_ + x] = static_cast<double>(sum);
    }
    if (rounds_.state_after_read) round_state(S);
  }

  void finish(std::vector<float>& S) const {
    if (rounds_.final_state) round_state(S);
  }

 private:
  static void round_state(std::vector<float>& S) {
    for (float& x : S) x = bf16(x);
  }

  [[nodiscard]] std::vector<float> normalised(const std::vector<float>& x, std::size_t row) const {
    float sum = 0.0F;
    for (std::size_t i = 0; i < K_; ++i) sum += x[row * K_ + i] * x[row * K_ + i];
    const float inverse = 1.0F / std::sqrt(sum + 1e-6F);
    std::vector<float> y(K_);
    for (std::size_t i = 0; i < K_; ++i) y[i] = x[row * K_ + i] * inverse;
    return y;
  }

  Rounds rounds_;
  std::vector<float> q_, k_, v_, g_, beta_;
  std::size_t K_ = 0, V_ = 0, H_ = 0;
  float scale_ = 0.0F;
};

Record fp32_capture(Record record, const Rounds& rounds) {
  record.contract = "recurrent_f32";
  const Fp32Kernel kernel(record, rounds);
  const call::Tensor& v = record.inputs.at("v");
  const call::Tensor& initial = record.inputs.at("initial_state");
  const std::vector<float> start = Fp32Kernel::floats(record, "initial_state");
  const auto bounds = record.inputs.at("cu_seqlens").to_integers();
  std::vector<double> o(static_cast<std::size_t>(v.size()));
  std::vector<double> final_state;
  for (std::size_t n = 0; n + 1 < bounds.size(); ++n) {
    for (std::size_t h = 0; h < kernel.heads(); ++h) {
      const auto block = start.begin() + std::ssize(final_state);
      std::vector<float> S(block, block + static_cast<std::ptrdiff_t>(kernel.state_size()));
      for (std::int64_t t = bounds[n]; t < bounds[n + 1]; ++t) {
        kernel.step(static_cast<std::size_t>(t), h, S, o);
      }
      kernel.finish(S);
      final_state.insert(final_state.end(), S.begin(), S.end());
    }
  }
  record.outputs["o"] = call::Tensor(call::DType::kF32, v.shape(), o);
  record.outputs["final_state"] = call::Tensor(call::DType::kF32, initial.shape(), final_state);
  return record;
}

Record call_of(int tokens) {
  return make_call("op=gdn mode=prefill lens=" + std::to_string(tokens) +
                   " H=3 HV=3 K=32 V=32 gate=log beta=direct h0=1 io=f32");
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

// The beta of head 0 lies at a tie, so that some runs flip it and with it a third of the elements;
// that of head 1 lies at none, and the kernel has the wrong neighbour all the same. Beside another
// mistake in o, by which most of the error is accounted for.
TEST_CASE("ties: a rounding that reproduces less than half of what it should is no explanation") {
  Record call = call_of(1);
  const std::vector<double> beta{0.5 + 0x1p-9 * (1.0 + 0x1p-14), 0.7, 0.8};
  call.inputs["beta"] = call::Tensor(call::DType::kF32, {1, 3}, beta);
  const auto unscaled = [&](const Rounds& rounds) {
    Record record = fp32_capture(call, rounds);
    call::Tensor& o = record.outputs.at("o");
    for (std::int64_t i = 0; i < o.size(); ++i) o.set(i, o[i] * std::sqrt(32.0));
    return record;
  };
  const Record flipped = unscaled({.beta = true, .wrong_way = 0});
  for (const Record& named : {unscaled({.beta = true}), flipped}) {
    const Diagnosis d = explained(named);
    REQUIRE(!d.explanations.empty());
    CHECK(d.explanations[0].explains);
    const std::vector<std::string> pair{"beta_bf16", "scale_missing"};
    CHECK(std::ranges::is_permutation(d.explanations[0].mistakes, pair));
  }
  Record record = unscaled({.beta = true, .wrong_way = 1});
  for (auto& [name, t] : record.outputs) {
    for (std::int64_t i = 0; i < t.size() / 3; ++i) t.set(i, flipped.outputs.at(name)[i]);
  }
  const Diagnosis d = explained(record);
  CHECK(std::ranges::none_of(d.explanations, &Explanation::explains));
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
