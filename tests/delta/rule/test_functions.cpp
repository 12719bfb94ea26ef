// SPDX-License-Identifier: Apache-2.0
//
// The elementary functions of every tier against 100-digit ones, in the unit that Tier<S> claims:
//
//   |f^(x) - f(x)| <= kFunctionError |f(x)| + kUnderflow
//
// and what gate.hpp builds from them. The arguments are those that the rule can form: any for exp,
// exp2, sigmoid and softplus, positive ones for log1p and log.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/math/special_functions/log1p.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "reference/delta/rule/gate.hpp"
#include "reference/scalar/tier.hpp"
#include "tests/delta/rule/random_lane.hpp"

using namespace goldenrule;
using delta::test::Uniform;
using scalar::Multi;
using scalar::Quad;
using scalar::Tier;

namespace {

using Wide = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<100>,
                                           boost::multiprecision::et_off>;

Wide widen(double x) { return Wide(x); }
Wide widen(const Quad& x) { return Wide(x.hi) + Wide(x.lo); }
Wide widen(const Multi& x) { return Wide(x); }

Wide wide_log1p(const Wide& x) { return boost::math::log1p(x); }
Wide wide_softplus(const Wide& x) {
  return x > 0 ? Wide(x + wide_log1p(exp(Wide(-x)))) : wide_log1p(exp(x));
}
Wide wide_sigmoid(const Wide& x) { return 1 / (1 + exp(Wide(-x))); }

/// Largest error in units of the claimed bound.
template <class S>
class Ratio {
 public:
  Ratio(std::string name, double claimed) : name_(std::move(name)), claimed_(claimed) {}

  // `argument_error` is what the function is allowed on top, for a cut of its argument.
  void add(const S& computed, const Wide& exact, const Wide& argument_error = 0) {
    const Wide allowed = claimed_ * abs(exact) + 8 * Tier<S>::kUnderflow +
                         Wide(std::numeric_limits<double>::denorm_min()) + argument_error;
    // Beyond the range of double an infinity is right for the tiers that have its exponents.
    if (Tier<S>::kPrecision != scalar::Precision::kMulti && exact > Wide(1.7e308)) return;
    const auto ratio = static_cast<double>(abs(widen(computed) - exact) / allowed);
    if (!(ratio <= largest_)) largest_ = ratio;
  }
  ~Ratio() {
    MESSAGE(std::string(Tier<S>::kName), " ", name_, ": largest error ", largest_,
            " of the claimed bound");
    CHECK(largest_ <= 1.0);
    CHECK(largest_ > 0.0);
  }

 private:
  std::string name_;
  double claimed_;
  double largest_ = 0.0;
};

// A random argument in [-range, range], small ones as likely as large ones.
template <class S>
S argument(Uniform& uniform, double range) {
  const S x = delta::test::number<S>(uniform) * S(range);
  return uniform.bits() % 2 == 0 ? x : x * S(std::exp2(-60 * std::fabs(uniform())));
}

template <class S>
void check_functions(int count) {
  constexpr double f = Tier<S>::kFunctionError;
  Uniform uniform(11);
  Ratio<S> exp("exp", f), exp2("exp2", f), log("log", f), log1p("log1p", f);
  const auto at = [&](const S& x) {
    const Wide wide = widen(x);
    exp.add(scalar::exp(x), boost::multiprecision::exp(wide));
    exp2.add(scalar::exp2(x), boost::multiprecision::exp2(wide));
    const S y = x < S(0) ? S(-x) : x;
    log1p.add(scalar::log1p(y), wide_log1p(abs(wide)));
    // Quad goes through binary128, which cuts an argument near 1 at 2^-113: log alpha of the
    // stages, to which alpha itself brings its unit roundoff of 2^-102.
    const Wide cut = Tier<S>::kPrecision == scalar::Precision::kQuad ? Wide(0x1p-113) : Wide(0);
    if (y > S(0)) log.add(scalar::log(y), boost::multiprecision::log(abs(wide)), cut);
  };
  for (int i = 0; i < count; ++i) at(argument<S>(uniform, 720.0));
  for (int i = 0; i < count / 8; ++i) at(S(1.0) + argument<S>(uniform, 1e-3));
  for (const double x : {0.0, 1.0, -1.0, 0.5, 708.0, -708.0, -740.0, -745.0, -2661.0, 0x1p-60,
                         -0x1p-300, 0x1p-1022, 0.6931471805599453, 1024.0, -1022.0, -1074.0}) {
    at(S(x));
  }
}

// lane.hpp: rel(softplus) <= 2F + 4u, rel(sigmoid) <= F + 3u at an exact argument.
template <class S>
void check_logistic(double step) {
  constexpr double f = Tier<S>::kFunctionError;
  constexpr double u = Tier<S>::kUnitRoundoff;
  Uniform uniform(12);
  Ratio<S> softplus("softplus on [-2000, 2000]", 2 * f + 4 * u);
  Ratio<S> sigmoid("sigmoid on [-2000, 2000]", f + 3 * u);
  const auto at = [&](double x) {
    softplus.add(delta::softplus(S(x)), wide_softplus(Wide(x)));
    sigmoid.add(delta::sigmoid(S(x)), wide_sigmoid(Wide(x)));
  };
  for (double x = -2000; x <= 2000; x += step) {
    at(x);
    at(x + step * uniform());
    at(x * 0x1p-11);
  }
}

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::initializer_list<double> kExtremes{
    0.0, -0.0, 1.0, 1e30, -1e30, 3.4e38, -3.4e38, 1.7e308, -1.7e308, 5e-324, kInf, -kInf, kNaN};

template <class S>
double as_double(const S& x) {
  return scalar::to_double(x);
}

// Limits of the functions, where libraries throw or loop.
template <class S>
void check_extremes() {
  CAPTURE(Tier<S>::kName);
  for (const double x : {1e30, 1.7e308, kInf}) {
    CAPTURE(x);
    CHECK(as_double(scalar::exp(S(x))) == kInf);
    CHECK(as_double(scalar::exp(S(-x))) == 0.0);
    CHECK(as_double(scalar::exp2(S(x))) == kInf);
    CHECK(as_double(scalar::exp2(S(-x))) == 0.0);
    CHECK(as_double(delta::softplus(S(x))) == x);
    CHECK(as_double(delta::softplus(S(-x))) == 0.0);
    CHECK(as_double(delta::sigmoid(S(x))) == 1.0);
    CHECK(as_double(delta::sigmoid(S(-x))) == 0.0);
  }
  CHECK(as_double(scalar::log(S(0.0))) == -kInf);
  CHECK(as_double(scalar::log(S(kInf))) == kInf);
  CHECK(as_double(scalar::square_root(S(kInf))) == kInf);
  CHECK(as_double(scalar::log1p(S(kInf))) == kInf);
  CHECK(as_double(scalar::exp(S(0.0))) == 1.0);
  const S nan(kNaN);
  for (const S& y :
       {S(scalar::exp(nan)), S(scalar::exp2(nan)), S(scalar::log(nan)), S(scalar::log1p(nan)),
        S(scalar::square_root(nan)), delta::softplus(nan), delta::sigmoid(nan)}) {
    CHECK(std::isnan(as_double(y)));
  }
}

// Every gate form at every combination of extreme inputs: a value, whatever it is, and no throw.
template <class S>
void check_extreme_gates() {
  for (std::size_t g = 0; g < call::EnumNames<call::Gate>::kNames.size(); ++g) {
    call::Convention c;
    c.gate = static_cast<call::Gate>(g);
    for (const double x : kExtremes) {
      for (const double A_log : kExtremes) {
        for (const double dt_bias : kExtremes) {
          CHECK_NOTHROW((void)delta::gate<S>(c, x, A_log, dt_bias));
        }
      }
    }
  }
  for (const double x : kExtremes) {
    for (const auto form :
         {call::BetaForm::kSigmoid, call::BetaForm::kSigmoid2, call::BetaForm::kDirect}) {
      CHECK_NOTHROW((void)delta::beta_value<S>(form, x));
    }
    call::Convention c;
    for (std::size_t n = 0; n < call::EnumNames<call::QkNorm>::kNames.size(); ++n) {
      c.qk_l2norm = static_cast<call::QkNorm>(n);
      if (!(x < 0)) CHECK_NOTHROW((void)delta::norm_divisor<S>(c, S(x)));
    }
  }
}

}  // namespace

TEST_CASE("functions: within the error that their tier claims") {
  check_functions<double>(8000);
  check_functions<Quad>(8000);
  check_functions<Multi>(4000);
}

TEST_CASE("functions: softplus and sigmoid keep their relative accuracy") {
  check_logistic<double>(1.0);
  check_logistic<Quad>(1.0);
  check_logistic<Multi>(4.0);
}

TEST_CASE("functions: limits") {
  check_extremes<double>();
  check_extremes<Quad>();
  check_extremes<Multi>();
}

TEST_CASE("functions: extreme gates neither throw nor hang") {
  check_extreme_gates<double>();
  check_extreme_gates<Quad>();
  check_extreme_gates<Multi>();
}

TEST_CASE("functions: alpha of extreme but meaningful gates") {
  const auto alpha = [](call::Gate gate, double x, double A_log) {
    call::Convention c;
    c.gate = gate;
    const double d = delta::gate<double>(c, x, A_log, 0.0).alpha;
    CHECK(d == scalar::to_double(delta::gate<Quad>(c, x, A_log, 0.0).alpha));
    CHECK(d == scalar::to_double(delta::gate<Multi>(c, x, A_log, 0.0).alpha));
    return d;
  };
  CHECK(alpha(call::Gate::kSoftplus, 1e30, 0.0) == 0.0);
  CHECK(alpha(call::Gate::kSoftplus, -1e30, 0.0) == 1.0);
  CHECK(alpha(call::Gate::kSoftplus, kInf, 0.0) == 0.0);
  CHECK(alpha(call::Gate::kSoftplus, -kInf, 0.0) == 1.0);
  CHECK(alpha(call::Gate::kBounded, -1e30, 0.0) == 1.0);
  CHECK(alpha(call::Gate::kLog, -kInf, 0.0) == 0.0);
  CHECK(alpha(call::Gate::kLog, -1e4, 0.0) == 0.0);
  CHECK(alpha(call::Gate::kLog2, -3.0, 0.0) == 0.125);
  CHECK(alpha(call::Gate::kLinear, 0.0, 0.0) == 0.0);
  CHECK(alpha(call::Gate::kNone, kNaN, kNaN) == 1.0);
}

// The statics of Boost's functions are filled by the first call, and a second thread must not see
// them half filled. Each child process is one whose first logarithms are taken by four threads.
TEST_CASE("functions: the first calls of a process may come from many threads") {
  constexpr int kChildren = 1000;
  constexpr int kThreads = 4;
  int wrong = 0;
  for (int child = 0; child < kChildren; ++child) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      std::atomic<int> ready{0};
      std::array<Multi, kThreads> first;
      std::vector<std::thread> threads;
      threads.reserve(kThreads);
      for (Multi& y : first) {
        threads.emplace_back([&] {
          const Multi x = Multi(73) / 100;
          ++ready;
          while (ready < kThreads) std::this_thread::yield();
          y = scalar::log(x) + scalar::exp(x) + scalar::log1p(x);
        });
      }
      for (std::thread& t : threads) t.join();
      const Multi x = Multi(73) / 100;
      const Multi again = scalar::log(x) + scalar::exp(x) + scalar::log1p(x);
      _exit(std::ranges::all_of(first, [&](const Multi& y) { return y == again; }) ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    wrong += status == 0 ? 0 : 1;
  }
  CHECK(wrong == 0);
}
