// SPDX-License-Identifier: Apache-2.0
//
// The recurrent, the chunk and the closed form are one function. They share only the prepared lane,
// so their agreement to the last places of the widest tier leaves no room for a wrong term in any
// of them. Distances are reported in units of u max|tensor| and asserted against form_bounds.hpp,
// which follows from operation counts and the data; nothing here is a tuned number.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "fixtures/parallel/for_each_index.hpp"
#include "tests/delta/rule/form_bounds.hpp"
#include "tests/delta/rule/lane_jobs.hpp"
#include "tests/delta/rule/random_lane.hpp"

using namespace goldenrule;
using namespace goldenrule::delta;
using namespace goldenrule::delta::test;
using scalar::Multi;
using scalar::Quad;
using scalar::Tier;

namespace {

// State elements that the closed form of a lane may visit: 77 tokens at K = 64, 37 at K = 128; for
// the narrower tiers 172 and 92.
constexpr std::int64_t kCost = 700'000;
constexpr std::int64_t kCheapCost = 2'600'000;

struct Distance {
  double units = 0.0;          // largest |x - y| / (u max|y|)
  double ratio = 0.0;          // largest |x - y| / bound
  double allowed_units = 0.0;  // largest bound / (u max|y|)
};

void merge(Distance& to, const Distance& from) {
  const auto raise = [](double& x, double y) {
    if (!(y <= x)) x = y;  // keeps a NaN
  };
  raise(to.units, from.units);
  raise(to.ratio, from.ratio);
  raise(to.allowed_units, from.allowed_units);
}

Multi widen(double x) { return Multi(x); }
Multi widen(const Quad& x) { return Multi(x.hi) + Multi(x.lo); }
Multi widen(const Multi& x) { return x; }

/// The same lane, exactly, in the widest tier.
template <class S>
Lane<Multi> widen(const Lane<S>& lane) {
  const auto all = [](const std::vector<S>& from) {
    std::vector<Multi> to;
    to.reserve(from.size());
    for (const S& x : from) to.push_back(widen(x));
    return to;
  };
  Lane<Multi> wide;
  wide.tokens = lane.tokens;
  wide.K = lane.K;
  wide.gates = lane.gates;
  wide.q = all(lane.q);
  wide.k = all(lane.k);
  wide.alpha = all(lane.alpha);
  wide.beta = all(lane.beta);
  wide.bounds = lane.bounds;
  return wide;
}

template <class S>
Distance distance(const Matrix<S>& x, const Matrix<Multi>& y, const Matrix<double>& bound,
                  const Matrix<double>& bound_of_y) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    largest = std::fmax(largest, std::fabs(scalar::to_double(y.data()[i])));
  }
  const double unit = Tier<S>::kUnitRoundoff * largest;
  Distance result;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const auto difference = static_cast<double>(abs(widen(x.data()[i]) - y.data()[i]));
    const double allowed = bound.data()[i] + bound_of_y.data()[i];
    merge(result,
          {difference == 0.0 ? 0.0 : difference / unit,
           difference == 0.0 ? 0.0 : difference / allowed, largest == 0.0 ? 0.0 : allowed / unit});
  }
  return result;
}

template <class S>
Distance distance(const FormResult<S>& x, const FormResult<Multi>& y, const FormBound& bound,
                  const FormBound& bound_of_y) {
  Distance result = distance(x.o, y.o, bound.o, bound_of_y.o);
  merge(result, distance(x.state, y.state, bound.state, bound_of_y.state));
  return result;
}

/// Recurrent, closed, and the chunk form with C = 1, 16, 64 and all tokens.
constexpr std::size_t kForms = 6;
constexpr std::array<const char*, kForms> kFormNames{"recurrent", "closed",   "chunk 1",
                                                     "chunk 16",  "chunk 64", "chunk T"};
using Distances = std::array<Distance, kForms>;

template <class S>
Distances compare(const Lane<S>& lane, const Matrix<double>& v, const Matrix<double>& initial,
                  const FormResult<Multi>& exact, const FormBound& exact_bound) {
  Distances all;
  all[0] = distance(recurrent_form<S>(lane, v, initial), exact, recurrent_bound(lane, v, initial),
                    exact_bound);
  all[1] = distance(closed_form<S>(lane, v, initial), exact, closed_bound(lane, v, initial),
                    exact_bound);
  const std::array<std::int64_t, 4> chunks{1, 16, 64, lane.tokens};
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    ChunkStages<S> stages;
    const FormResult<S> result = chunk_form<S>(lane, v, initial, chunks[i], &stages);
    all[2 + i] = distance(result, exact, chunk_bound(lane, v, initial, chunks[i], result, stages),
                          exact_bound);
  }
  return all;
}

template <class S>
Distances compare(const LaneInputs& in) {
  const Lane<S> lane = in.prepare<S>();
  const Lane<Multi> wide = widen(lane);
  return compare<S>(lane, in.v, in.initial, recurrent_form<Multi>(wide, in.v, in.initial),
                    recurrent_bound<Multi>(wide, in.v, in.initial));
}

template <class S>
void check_suite(const std::string& suite, std::int64_t cost) {
  const std::vector<LaneJob> jobs = lane_jobs(suite);
  std::vector<Distances> results(jobs.size());
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    results[at] = compare<S>(lane_inputs(jobs[at], cost));
  });
  Distances total;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    CAPTURE(cases::canonical(jobs[i].origin));
    CAPTURE(jobs[i].sequence);
    CAPTURE(jobs[i].head);
    for (std::size_t f = 0; f < kForms; ++f) {
      CAPTURE(kFormNames[f]);
      CHECK(results[i][f].ratio <= 1.0);
      merge(total[f], results[i][f]);
    }
  }
  for (std::size_t f = 0; f < kForms; ++f) {
    MESSAGE(suite, ", ", std::string(Tier<S>::kName), " ", std::string(kFormNames[f]), ": ",
            jobs.size(), " lanes, largest distance ", total[f].units, " u max|tensor| (",
            total[f].ratio, " of its bound; bounds up to ", total[f].allowed_units, ")");
  }
}

// What the bounds of a lane would say of exact inputs.
void fill_bounds(Lane<Multi>& lane) {
  constexpr double kUp = 1.0 + 0x1p-40;
  for (const Multi& alpha : lane.alpha) {
    lane.log_alpha.push_back(std::log(std::fabs(scalar::to_double(alpha))));
  }
  for (std::int64_t t = 0; t < lane.tokens; ++t) {
    double q2 = 0.0, k2 = 0.0, alpha = 0.0;
    for (std::int64_t i = 0; i < lane.K; ++i) {
      q2 += std::pow(scalar::to_double(lane.q_row(t)[i]), 2);
      k2 += std::pow(scalar::to_double(lane.k_row(t)[i]), 2);
      alpha = std::fmax(alpha, std::fabs(scalar::to_double(lane.alpha_at(t, i))));
    }
    const double beta = scalar::to_double(lane.beta[static_cast<std::size_t>(t)]);
    TokenBounds& b = lane.bounds[static_cast<std::size_t>(t)];
    b.alpha_max = alpha * kUp;
    b.q_norm = std::sqrt(q2) * kUp;
    b.k_norm = std::sqrt(k2) * kUp;
    b.beta = std::fabs(beta);
    b.spectral = std::fmax(1.0, std::fabs(1.0 - beta * k2)) * kUp;
  }
}

// Lanes beyond what any call prepares: decay factors of both signs and above 1, beta ||k||^2 beyond
// 2, one key over and over, erased states.
Lane<Multi> hard_lane(int kind, std::int64_t gates) {
  constexpr std::int64_t kTokens = 81;
  constexpr std::int64_t kK = 20;
  Lane<Multi> lane =
      random_lane<Multi>(kTokens, kK, gates == 1 ? 1 : kK, static_cast<std::uint64_t>(kind));
  for (std::int64_t t = 0; t < kTokens; ++t) {
    Multi& alpha = lane.alpha[static_cast<std::size_t>(t * lane.gates)];
    Multi& beta = lane.beta[static_cast<std::size_t>(t)];
    switch (kind) {
      case 0:
        alpha = t % 2 == 0 ? -alpha : Multi(alpha * 2);
        break;
      case 1:
        beta *= 4;
        break;
      case 2:  // one key of length 1 and beta = 1: every write replaces the last one
        for (std::int64_t i = 0; i < kK; ++i) {
          lane.k[static_cast<std::size_t>(t * kK + i)] = sqrt(Multi(1) / kK);
        }
        beta = 1;
        break;
      default:
        if (t % 5 == 3) alpha = 0;
    }
  }
  fill_bounds(lane);
  return lane;
}

}  // namespace

TEST_CASE("forms: agree on lanes beyond the contraction") {
  for (int kind = 0; kind < 4; ++kind) {
    for (const std::int64_t gates : {1, 2}) {
      CAPTURE(kind);
      CAPTURE(gates);
      const Lane<Multi> lane = hard_lane(kind, gates);
      Matrix<double> v(lane.tokens, 3), initial(lane.K, 3);
      Uniform uniform(4);
      for (std::int64_t i = 0; i < v.size(); ++i) v.data()[i] = uniform();
      for (std::int64_t i = 0; i < initial.size(); ++i) initial.data()[i] = uniform();
      const Distances all = compare<Multi>(lane, v, initial, recurrent_form(lane, v, initial),
                                           recurrent_bound(lane, v, initial));
      for (std::size_t f = 0; f < kForms; ++f) {
        CAPTURE(kFormNames[f]);
        CHECK(all[f].ratio <= 1.0);
        CHECK(all[f].allowed_units < 0x1p100);  // the bound still says something
      }
    }
  }
}

TEST_CASE("forms: the bounds see an error in the last places") {
  // One alpha, beta, key or query off by 2^-140 relative, 2^28 units: every form must notice.
  for (int what = 0; what < 4; ++what) {
    CAPTURE(what);
    const Lane<Multi> lane = hard_lane(3, 1);
    Lane<Multi> off = lane;
    const Multi factor = 1 + ldexp(Multi(1), -140);
    const std::size_t last = static_cast<std::size_t>(lane.tokens) - 1;
    if (what == 0) off.alpha[last] *= factor;
    if (what == 1) off.beta[last] *= factor;
    if (what == 2) off.k[last * static_cast<std::size_t>(lane.K)] *= factor;
    if (what == 3) off.q[last * static_cast<std::size_t>(lane.K)] *= factor;
    const Matrix<double> v = Matrix<double>::Constant(lane.tokens, 1, 0.5);
    const Matrix<double> initial = Matrix<double>::Constant(lane.K, 1, -0.75);
    const Distances all = compare<Multi>(off, v, initial, recurrent_form(lane, v, initial),
                                         recurrent_bound(lane, v, initial));
    for (const Distance& d : all) CHECK(d.ratio > 1.0);
  }
}

TEST_CASE("forms: agree in the widest tier over the boundary suite") {
  check_suite<Multi>("boundary", kCost);
}
TEST_CASE("forms: agree in the widest tier over the stress suite") {
  check_suite<Multi>("stress", kCost);
}
TEST_CASE("forms: the 106-bit and the double tier are near the widest one") {
  check_suite<Quad>("stress", kCheapCost);
  check_suite<double>("stress", kCheapCost);
}
