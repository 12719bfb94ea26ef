// SPDX-License-Identifier: Apache-2.0
//
// The prepared quantities of a lane and what lane.hpp claims about them: their errors, measured
// against the widest tier, and the upper bounds that the certificate multiplies up.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "fixtures/cases/suite.hpp"
#include "reference/delta/rule/lane.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using namespace goldenrule::delta;
using scalar::Multi;
using scalar::Quad;
using scalar::Tier;

namespace {

Multi widen(double x) { return Multi(x); }
Multi widen(const Quad& x) { return Multi(x.hi) + Multi(x.lo); }

struct Worst {
  double k = 0, q = 0, beta = 0, alpha = 0;  // largest error over its bound
  std::int64_t above = 0;                    // bounds that do not hold
  std::int64_t tokens = 0;
};

// Largest |x - y| over `bound` |y|, element by element.
template <class S>
double ratio(const S* x, const Multi* y, std::int64_t n, double bound) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto error = static_cast<double>(abs(widen(x[i]) - y[i]));
    if (error == 0.0) continue;
    largest = std::fmax(largest, error / (bound * static_cast<double>(abs(y[i])) + 0x1p-1070));
  }
  return largest;
}

Multi norm(const Multi* x, std::int64_t n) {
  Multi sum(0);
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return sqrt(sum);
}

template <class S>
void examine(const Lane<S>& lane, const Lane<Multi>& exact, Worst& worst) {
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    const auto at = static_cast<std::size_t>(t);
    const TokenBounds& b = lane.bounds[at];
    worst.k = std::fmax(worst.k, ratio(lane.k_row(t), exact.k_row(t), lane.K, lane.k_error));
    worst.q = std::fmax(worst.q, ratio(lane.q_row(t), exact.q_row(t), lane.K, lane.q_error));
    worst.beta = std::fmax(worst.beta, ratio(&lane.beta[at], &exact.beta[at], 1, b.beta_error));
    Multi alpha_max(0);
    for (std::int64_t i = 0; i < lane.gates; ++i) {
      const auto gate = static_cast<std::size_t>(t * lane.gates + i);
      const auto error = static_cast<double>(abs(widen(lane.alpha[gate]) - exact.alpha[gate]));
      if (error > 0.0) worst.alpha = std::fmax(worst.alpha, error / b.alpha_error);
      if (abs(exact.alpha[gate]) > alpha_max) alpha_max = abs(exact.alpha[gate]);
    }
    const Multi k = norm(exact.k_row(t), lane.K);
    Multi spectral = abs(1 - exact.beta[at] * k * k);
    if (spectral < 1) spectral = 1;
    worst.above += Multi(b.alpha_max) < alpha_max ? 1 : 0;
    worst.above += Multi(b.k_norm) < k ? 1 : 0;
    worst.above += Multi(b.q_norm) < norm(exact.q_row(t), lane.K) ? 1 : 0;
    worst.above += Multi(b.spectral) < spectral ? 1 : 0;
    worst.above += Multi(b.spectral) > spectral * (1 + Multi(0x1p-40)) ? 1 : 0;  // and is tight
    ++worst.tokens;
  }
}

template <class S>
void check_suite(const std::string& suite) {
  constexpr std::int64_t kTokens = 12;
  Worst worst;
  for (const cases::Case& c : cases::load_suite(suite).cases) {
    if (cases::token_count(c) == 0 || cases::token_count(c) > 4096) continue;
    const call::Record record = cases::make_record(c);
    const call::Plan plan = call::make_plan(record, false);
    const CallInputs inputs(record);
    const call::Sequence& s = plan.sequences.front();
    const std::int64_t count = std::min(s.token_count, kTokens);
    const std::int64_t head = plan.dims.HV - 1;
    CAPTURE(record.case_line);
    Worst here;
    examine(prepare_lane<S>(record, plan.dims, inputs, s.first_token, count, head),
            prepare_lane<Multi>(record, plan.dims, inputs, s.first_token, count, head), here);
    CHECK(here.k <= 1.0);
    CHECK(here.q <= 1.0);
    CHECK(here.beta <= 1.0);
    CHECK(here.alpha <= 1.0);
    CHECK(here.above == 0);
    worst = {std::fmax(worst.k, here.k),
             std::fmax(worst.q, here.q),
             std::fmax(worst.beta, here.beta),
             std::fmax(worst.alpha, here.alpha),
             0,
             worst.tokens + here.tokens};
  }
  MESSAGE(suite, ", ", std::string(Tier<S>::kName), ": ", worst.tokens,
          " tokens, largest error of its bound: k ", worst.k, ", q ", worst.q, ", beta ",
          worst.beta, ", alpha ", worst.alpha);
}

using goldenrule::cases::record_of;

template <class S>
Lane<S> first_lane(const call::Record& record, std::int64_t head) {
  const call::Plan plan = call::make_plan(record, false);
  return prepare_lane<S>(record, plan.dims, CallInputs(record), 0,
                         plan.sequences.front().token_count, head);
}

}  // namespace

TEST_CASE("lane: errors and upper bounds hold over the suites") {
  check_suite<double>("boundary");
  check_suite<double>("stress");
  check_suite<Quad>("stress");
}

TEST_CASE("lane: each gate is its formula") {
  for (const char* op : {"gdn", "kda"}) {
    for (const char* gate : {"softplus", "bounded", "log", "log2", "linear", "none"}) {
      CAPTURE(op);
      CAPTURE(gate);
      const call::Record record =
          record_of(std::string("op=") + op + " mode=decode B=1 H=1 HV=2 K=8 V=2 gate=" + gate +
                    " softplus_beta=" + (std::string(gate) == "softplus" ? "2" : "1"));
      const Lane<double> lane = first_lane<double>(record, 1);
      const bool has_gates = std::string(op) == "kda" && std::string(gate) != "none";
      REQUIRE(lane.gates == (has_gates ? 8 : 1));
      for (std::int64_t i = 0; i < lane.gates; ++i) {
        const auto in = [&](const char* name, std::int64_t at) {
          const call::Tensor* t = record.find_input(name);
          return t == nullptr ? 0.0 : (*t)[at];
        };
        const double x = in("a", lane.gates + i) + in("dt_bias", lane.gates + i);
        const double g = in("g", lane.gates + i);
        const double A = std::exp(in("A_log", 1));
        const std::string name = gate;
        const double expected = name == "softplus"  ? std::exp(-A * std::log1p(std::exp(2 * x)) / 2)
                                : name == "bounded" ? std::exp(-5.0 / (1 + std::exp(-A * x)))
                                : name == "log"     ? std::exp(g)
                                : name == "log2"    ? std::exp2(g)
                                : name == "linear"  ? g
                                                    : 1.0;
        CHECK(lane.alpha_at(0, i) == doctest::Approx(expected).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("lane: softplus beyond its threshold is the identity, and only there") {
  call::Record record = record_of("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=1 softplus_threshold=1");
  record.inputs.at("A_log").set(0, 0.0);
  record.inputs.at("dt_bias").set(0, 0.0);
  record.inputs.at("a").set(0, 1.0);
  CHECK(first_lane<double>(record, 0).alpha[0] ==
        doctest::Approx(1 / (1 + std::exp(1.0))).epsilon(1e-14));
  record.inputs.at("a").set(0, 1.0078125);  // the next bf16
  CHECK(first_lane<double>(record, 0).alpha[0] ==
        doctest::Approx(std::exp(-1.0078125)).epsilon(1e-14));
}

TEST_CASE("lane: the norms, and where eps enters") {
  const double eps = 0.25;
  for (const char* norm : {"none", "rsqrt_sum_eps", "max_norm_eps", "norm_plus_eps"}) {
    CAPTURE(norm);
    call::Record record = record_of(
        std::string("op=gdn mode=decode B=1 H=1 HV=1 K=2 V=1 scale=0.5 l2_eps=0.25 qk_l2norm=") +
        norm);
    record.inputs.at("k").set(0, 3.0);
    record.inputs.at("k").set(1, 4.0);
    record.inputs.at("q").set(0, 0.0);
    record.inputs.at("q").set(1, 0.125);
    const Lane<double> lane = first_lane<double>(record, 0);
    const std::string name = norm;
    const auto divisor = [&](double n) {
      return name == "none"            ? 1.0
             : name == "rsqrt_sum_eps" ? std::sqrt(n * n + eps)
             : name == "max_norm_eps"  ? std::fmax(n, eps)
                                       : n + eps;
    };
    CHECK(lane.k[0] == doctest::Approx(3.0 / divisor(5.0)).epsilon(1e-14));
    CHECK(lane.q[0] == 0.0);
    CHECK(lane.q[1] == doctest::Approx(0.5 * 0.125 / divisor(0.125)).epsilon(1e-14));
  }
}

TEST_CASE("lane: gate_head chooses who owns A_log and dt_bias") {
  call::Record record =
      record_of("op=kda mode=decode B=1 H=2 HV=4 K=2 V=1 gate=bounded gate_head=qk head_map=tiled");
  for (std::int64_t i = 0; i < 16; ++i) {
    if (i < 8) record.inputs.at("a").set(i, 0.0);
    if (i < 4) record.inputs.at("dt_bias").set(i, static_cast<double>(i));
    if (i < 2) record.inputs.at("A_log").set(i, 0.0);
  }
  // Value head 3 reads q/k head 1 in the tiled map: dt_bias [1, :] = {2, 3}.
  const Lane<double> lane = first_lane<double>(record, 3);
  CHECK(lane.alpha_at(0, 0) == doctest::Approx(std::exp(-5 / (1 + std::exp(-2.0)))));
  CHECK(lane.alpha_at(0, 1) == doctest::Approx(std::exp(-5 / (1 + std::exp(-3.0)))));
}

TEST_CASE("lane: inputs that are not finite give bounds that are not finite") {
  for (const char* name : {"q", "k", "a", "b"}) {
    for (const double bad : {std::nan(""), HUGE_VAL}) {
      CAPTURE(name);
      call::Record record = record_of("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=1");
      record.inputs.at(name).set(0, bad);
      const Lane<double> lane = first_lane<double>(record, 0);
      const TokenBounds& b = lane.bounds[0];
      const double all = b.alpha_max + b.alpha_error + b.spectral + b.beta + b.k_norm + b.q_norm;
      // A gate of +inf is alpha = 0 and a beta logit of +inf is beta = 1: both are numbers.
      const bool limit = std::isinf(bad) && (name[0] == 'a' || name[0] == 'b');
      CHECK(std::isfinite(all) == limit);
    }
  }
}
