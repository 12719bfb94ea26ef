// SPDX-License-Identifier: Apache-2.0
//
// A decay pattern asks for a log alpha. The case with gate=log stores it directly (in f32), and
// every other gate, on the same seed, must realise it to within the rounding of its own input:
// the values that its input has one ulp to either side enclose the target.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "fixtures/cases/delta_patterns.hpp"
#include "tests/cases/measure.hpp"

namespace call = goldenrule::call;
using namespace goldenrule::cases;
using namespace goldenrule::cases::test;

namespace {

constexpr const char* kShape = " mode=mtp B=3 T=5 H=2 HV=4 K=6 V=2 seed=3";

std::string line(const char* op, const std::string& more) {
  return "op=" + std::string(op) + kShape + " " + more;
}

// The target is stored in f32, and a logit of +-30 stands for an alpha of 1 or a bound reached:
// sigmoid(-30) < 1e-13, times amplitudes and bounds below 16.
double slack(double target) { return 1e-6 * std::fabs(target) + 2e-12; }

void check_realised(const call::Record& record, const std::vector<double>& targets) {
  const call::Tensor& gate = gate_input(record);
  const call::Dims dims = call::validate(record);
  REQUIRE(gate.size() == std::ssize(targets));
  for (std::int64_t i = 0; i < gate.size(); ++i) {
    const double ulp = call::ulp(gate.dtype(), gate[i]);
    const double one = log_alpha_if(record, dims, i, gate[i] - ulp);
    const double other = log_alpha_if(record, dims, i, gate[i] + ulp);
    double target = targets[static_cast<std::size_t>(i)];
    if (record.convention.gate == call::Gate::kBounded) {
      target = std::max(target, record.convention.lower_bound);
    }
    CAPTURE(i);
    CAPTURE(target);
    CAPTURE(one);
    CAPTURE(other);
    // One ulp below 0 a linear gate holds no alpha at all: then only the other side bounds.
    if (!std::isnan(one)) REQUIRE(std::min(one, other) <= target + slack(target));
    REQUIRE(std::fmax(one, other) >= target - slack(target));
  }
}

}  // namespace

TEST_CASE("every gate realises the decay that its pattern asks for") {
  for (const char* op : {"gdn", "kda"}) {
    for (const char* name : {"A", "Dslow", "Dprod", "Dbound", "Dzero", "Dmixed", "Derase", "E"}) {
      const std::string pattern = " pattern=" + std::string(name);
      const std::vector<double> targets = input(record_of(line(op, "gate=log" + pattern)), "g");
      for (const char* gate : {"gate=softplus", "gate=bounded", "gate=log2", "gate=linear"}) {
        if (std::string(name) == "Derase" && std::string(gate) == "gate=bounded") continue;
        for (const char* io : {" io=bf16", " io=f16", " io=f32"}) {
          for (const char* more : {"", " gate_head=qk head_map=tiled", " softplus_beta=2"}) {
            const std::string text = line(op, gate + std::string(io) + more + pattern);
            CAPTURE(text);
            check_realised(record_of(text), targets);
          }
        }
      }
    }
  }
}

TEST_CASE("decay patterns have the decays that they are named after") {
  for (const char* op : {"gdn", "kda"}) {
    CAPTURE(op);
    const auto targets = [&](const char* name) {
      return input(record_of("op=" + std::string(op) +
                             " mode=mtp B=8 T=16 H=2 HV=4 K=6 V=2 gate=log pattern=" + name),
                   "g");
    };
    for (const double g : targets("Dslow")) REQUIRE(g == call::round_to(call::DType::kF32, -0.01));
    for (const double g : targets("Dgrow")) REQUIRE(g == call::round_to(call::DType::kF32, 0.01));
    for (const double g : targets("Dbound")) REQUIRE(g == -5);
    for (const double g : targets("Dzero")) REQUIRE(g == 0);

    const std::vector<double> wide = targets("Dprod");
    const auto [low, high] = std::ranges::minmax(wide);
    CHECK(low >= -2661.01);
    CHECK(low < -1000);
    CHECK(high <= -1e-3 * (1 - 1e-6));
    CHECK(high > -1e-2);
    // Log-uniform over 6.4 decades: a sixth of the draws to every decade, within 5 deviations.
    const double tenth = static_cast<double>(
        std::ranges::count_if(wide, [](double g) { return g <= -1 && g > -10; }));
    const double n = static_cast<double>(wide.size());
    const double p = 1 / std::log10(2.661e6);
    CHECK(std::fabs(tenth - p * n) < 5 * std::sqrt(p * n));

    const std::vector<double> mixed = targets("Dmixed");
    CHECK(std::ranges::count(mixed, 0.0) > 0);
    CHECK(std::ranges::count(mixed, -5.0) > 0);
    CHECK(std::ranges::count_if(mixed, [](double g) { return g <= -15; }) > 0);
    CHECK(std::ranges::count_if(mixed, [](double g) { return g < 0 && g > -0.016; }) > 0);
  }
  // KDA mixes within one token and head.
  const std::vector<double> channels =
      input(record_of("op=kda mode=decode B=1 H=1 HV=1 K=5 V=1 gate=log pattern=Dmixed"), "g");
  CHECK(std::ranges::count(channels, 0.0) == 1);
  CHECK(std::ranges::count(channels, -5.0) == 1);
}

TEST_CASE("Derase erases exactly where the gate is linear, and beyond every exponent elsewhere") {
  for (const char* op : {"gdn", "kda"}) {
    const auto alphas = input(record_of(line(op, "gate=linear pattern=Derase")), "g");
    const auto zeros = std::ranges::count(alphas, 0.0);
    CHECK(zeros > 0);
    CHECK(zeros < std::ssize(alphas) / 2);
    const auto logs = input(record_of(line(op, "gate=log pattern=Derase")), "g");
    CHECK(std::ranges::count(logs, -1e4) == zeros);
    const auto softplus = log_alphas(record_of(line(op, "pattern=Derase")));
    CHECK(std::ranges::count_if(softplus, [](double g) { return g < -9.9e3; }) == zeros);
  }
  // A single token of a single head is erased, so that no Derase case is empty.
  CHECK(input(record_of("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=4 gate=linear pattern=Derase"),
              "g")[0] == 0);
}

TEST_CASE("J patterns put the logit exactly where they say, and it is visible") {
  const std::pair<const char*, double> patterns[] = {
      {"J17", -17}, {"J20p", 20}, {"J20m", -20}, {"J100", 100}};
  for (const auto& [name, logit] : patterns) {
    for (const char* op : {"gdn", "kda"}) {
      for (const char* io : {"bf16", "f16", "f32"}) {
        const std::string options = "io=" + std::string(io) + " pattern=" + name;
        CAPTURE(options);
        for (const char* gate : {" gate=softplus", " gate=bounded"}) {
          const call::Record record = record_of(line(op, options + gate));
          const call::Tensor& a = record.inputs.at("a");
          const std::int64_t channels = record.op == call::Op::kKda ? 6 : 1;
          bool has_bias = false;
          for (std::int64_t i = 0; i < a.size(); ++i) {
            const double bias = record.inputs.at("dt_bias")[i % (4 * channels)];
            REQUIRE(a[i] + bias == logit);
            has_bias = has_bias || bias != 0;
          }
          CHECK(has_bias);
        }
        for (const char* gate : {" gate=softplus", " gate=log", " gate=linear"}) {
          for (const double g : log_alphas(record_of(line(op, options + gate)))) {
            REQUIRE(g < -0.0099);
            REQUIRE(g > -0.301);
          }
        }
      }
    }
  }
}

TEST_CASE("production gates come from A_log, dt_bias and a as they are trained") {
  const call::Record record =
      record_of("op=kda mode=mtp B=8 T=16 H=8 HV=64 K=8 V=1 io=f32 pattern=production");
  for (const double a_log : input(record, "A_log")) {
    REQUIRE(std::exp(a_log) >= 1);
    REQUIRE(std::exp(a_log) <= 16);
  }
  for (const double bias : input(record, "dt_bias")) {
    const double dt = std::log1p(std::exp(bias));
    REQUIRE(dt >= 1e-3 * (1 - 1e-5));
    REQUIRE(dt <= 1e-1 * (1 + 1e-5));
  }
  const std::vector<double> a = input(record, "a");
  double mean = 0, square = 0;
  const double n = static_cast<double>(a.size());
  for (const double x : a) {
    mean += x / n;
    square += x * x / n;
  }
  CHECK(std::fabs(mean) < 5 / std::sqrt(n));
  CHECK(std::fabs(square - 1) < 5 * std::sqrt(2 / n));
  // The other gates imitate what softplus would make of the same projections.
  const std::vector<double> softplus = log_alphas(record);
  const std::vector<double> direct = input(
      record_of("op=kda mode=mtp B=8 T=16 H=8 HV=64 K=8 V=1 io=f32 gate=log pattern=production"),
      "g");
  for (std::size_t i = 0; i < direct.size(); i += 101) {
    REQUIRE(direct[i] == doctest::Approx(softplus[i]).epsilon(1e-5));
  }
}
