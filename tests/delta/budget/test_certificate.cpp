// SPDX-License-Identifier: Apache-2.0
//
// The certificate encloses. Every case of the boundary and the stress suite is computed in double
// and in 106 bits, and all elements must agree within the sum of both radii; one lane of every
// case, in four of its value columns, is computed in 168 bits as well, and there
//
//   |double - multi| <= radius        |quad - multi| <= radius
//
// element by element. How tight the radius is, is printed: error over radius, by quantile.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/delta/oracle/certificate.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "tests/delta/rule/lane_jobs.hpp"

using namespace goldenrule;
using delta::test::LaneInputs;
using delta::test::LaneJob;
using scalar::Multi;
using scalar::Precision;

namespace {

struct Tally {
  std::int64_t both = 0;       // elements compared between double and quad
  std::int64_t exact = 0;      // elements compared with multi
  std::int64_t outside = 0;    // not enclosed
  std::int64_t unbounded = 0;  // values within the range of float that have no radius
  std::int64_t broken = 0;     // would not be enclosed by a radius of 1e-4 of it
  std::vector<float> ratios;   // |double - multi| / radius
};

void add(Tally& to, const Tally& from) {
  to.both += from.both;
  to.exact += from.exact;
  to.outside += from.outside;
  to.unbounded += from.unbounded;
  to.broken += from.broken;
  to.ratios.insert(to.ratios.end(), from.ratios.begin(), from.ratios.end());
}

// All elements of the two narrower tiers against each other.
void compare_tiers(const verdict::Expectations& d, const verdict::Expectations& q, Tally& tally) {
  for (const auto& [name, x] : d.outputs) {
    const verdict::Expected& y = q.outputs.at(name);
    for (std::size_t i = 0; i < x.exact.golden.size(); ++i) {
      if (!std::isfinite(y.exact.golden[i]) && !std::isfinite(x.exact.golden[i])) continue;
      ++tally.both;
      const double allowed =
          static_cast<double>(x.exact.radius[i]) + static_cast<double>(y.exact.radius[i]);
      // Radii are stored as float: beyond its range there is none, as for the outputs themselves.
      const bool in_range = std::fabs(y.exact.golden[i]) < 0x1p127;
      tally.unbounded += in_range && !std::isfinite(allowed) ? 1 : 0;
      if (!(std::fabs(x.exact.golden[i] - y.exact.golden[i]) <= allowed)) ++tally.outside;
    }
  }
}

// One element of an output against its 168-bit value.
void compare_exact(const verdict::Expectations& d, const verdict::Expectations& q, const char* name,
                   std::int64_t index, const Multi& exact, Tally& tally) {
  const auto i = static_cast<std::size_t>(index);
  const verdict::Expected& x = d.outputs.at(name);
  const verdict::Expected& y = q.outputs.at(name);
  const Multi error = abs(Multi(x.exact.golden[i]) - exact);
  const Multi radius(x.exact.radius[i]);
  ++tally.exact;
  tally.outside += error <= radius ? 0 : 1;
  tally.outside += abs(Multi(y.exact.golden[i]) - exact) <= Multi(y.exact.radius[i]) ? 0 : 1;
  tally.broken += error <= radius * 1e-4 ? 0 : 1;
  tally.ratios.push_back(error == 0 ? 0.0F : static_cast<float>(error / radius));
}

// One lane in the widest tier, token by token, at the positions where the plan puts its results.
void compare_lane(const LaneInputs& in, const call::Sequence& sequence,
                  const verdict::Expectations& d, const verdict::Expectations& q, Tally& tally) {
  const delta::Lane<Multi> lane = in.prepare<Multi>();
  const auto columns = delta::test::spread_columns(in.dims.V);
  delta::RecurrentTile<Multi> tile(lane, in.v.data(), in.v.cols(), 0,
                                   static_cast<int>(in.v.cols()));
  for (std::int64_t i = 0; i < in.dims.K; ++i) {
    for (int c = 0; c < tile.columns(); ++c) tile.set_state(i, c, Multi(in.initial(i, c)));
  }
  const bool vk = in.record.convention.state_layout == call::StateLayout::kVK;
  auto snapshot = sequence.snapshots.begin();
  for (std::int64_t t = 0;; ++t) {
    for (; snapshot != sequence.snapshots.end() && snapshot->after == t; ++snapshot) {
      const std::string output(call::name_of(snapshot->target));
      const std::int64_t base = (snapshot->block * in.dims.HV + in.head) * in.dims.state_size();
      for (std::int64_t i = 0; i < in.dims.K; ++i) {
        for (int c = 0; c < tile.columns(); ++c) {
          const std::int64_t column = columns[static_cast<std::size_t>(c)];
          compare_exact(d, q, output.c_str(),
                        base + (vk ? column * in.dims.K + i : i * in.dims.V + column),
                        tile.state(i, c), tally);
        }
      }
    }
    if (t == sequence.token_count) break;
    tile.advance(t, t + 1, delta::Detail::kValues);
    for (int c = 0; c < tile.columns(); ++c) {
      compare_exact(d, q, "o",
                    ((in.first + t) * in.dims.HV + in.head) * in.dims.V +
                        columns[static_cast<std::size_t>(c)],
                    tile.output(0, c), tally);
    }
  }
}

Tally examine(const LaneInputs& in, std::int64_t sequence) {
  Tally tally;
  const verdict::EvaluationOptions options;
  const verdict::Expectations d = delta::evaluate(in.record, Precision::kDouble, options);
  const verdict::Expectations q = delta::evaluate(in.record, Precision::kQuad, options);
  compare_tiers(d, q, tally);
  const call::Plan plan = call::make_plan(in.record, true);
  const call::Sequence& s = plan.sequences[static_cast<std::size_t>(sequence)];
  if (!s.padded) compare_lane(in, s, d, q, tally);
  return tally;
}

void report(const std::string& what, std::size_t count, Tally& total) {
  std::ranges::sort(total.ratios);
  const auto quantile = [&](double p) {
    return total.ratios[static_cast<std::size_t>(p * static_cast<double>(total.ratios.size() - 1))];
  };
  MESSAGE(what, ": ", count, " cases; ", total.exact, " elements enclose the 168-bit result, ",
          total.both, " agree between double and 106 bits; error / radius: median ", quantile(0.5),
          ", 90 % ", quantile(0.9), ", 99.9 % ", quantile(0.999), ", largest ", quantile(1.0));
  CHECK(total.outside == 0);
  CHECK(total.unbounded == 0);
  CHECK(quantile(1.0) > 1e-3F);
  // The comparison has power: a certificate 10^4 times smaller does not enclose.
  CHECK(total.broken > 0);
}

void check_suite(const std::string& suite) {
  const std::vector<LaneJob> jobs = delta::test::lane_jobs(suite);
  Tally total;
  for (const LaneJob& job : jobs) {
    CAPTURE(cases::canonical(job.origin));
    const LaneInputs in = delta::test::lane_inputs(job, delta::test::kWhole);
    const Tally tally = examine(in, job.sequence);
    CHECK(tally.outside == 0);
    add(total, tally);
  }
  report(suite, jobs.size(), total);
}

}  // namespace

// Half an ulp of double is most of the radius of the wider tiers: rounded to the nearest f32, about
// every second radius would lie below it.
TEST_CASE("certificate: radii are rounded up") {
  const call::Record record =
      cases::make_record(cases::parse("op=gdn mode=prefill lens=9 H=1 HV=2 K=16 V=8 gate=log"));
  const verdict::Expectations e = delta::evaluate(record, Precision::kQuad, {});
  std::int64_t below = 0;
  for (const auto& [name, x] : e.outputs) {
    for (std::size_t i = 0; i < x.exact.golden.size(); ++i) {
      below +=
          static_cast<double>(x.exact.radius[i]) < std::fabs(x.exact.golden[i]) * 0x1p-53 ? 1 : 0;
    }
  }
  CHECK(below == 0);
}

TEST_CASE("certificate: encloses every case of the boundary suite") { check_suite("boundary"); }
TEST_CASE("certificate: encloses every case of the stress suite") { check_suite("stress"); }

TEST_CASE("certificate: encloses where errors grow") {
  // Keys longer than the contraction allows (beta ||k||^2 > 2) and decay factors above 1.
  Tally total;
  std::size_t count = 0;
  for (const char* op : {"gdn", "kda"}) {
    for (const char* call :
         {"mode=decode B=3 slots=permuted", "mode=mtp B=2 T=5", "mode=prefill lens=40,3 h0=1"}) {
      for (const char* pattern : {"A", "C190", "Derase"}) {
        for (const double length : {1.25, 2.0}) {
          const std::string line = std::string("op=") + op + " " + call +
                                   " H=1 HV=2 K=48 V=20 gate=linear beta=direct qk_l2norm=none "
                                   "scale=1 pattern=" +
                                   pattern;
          CAPTURE(line);
          CAPTURE(length);
          LaneJob job{cases::parse(line), 0, 1};
          LaneInputs in = delta::test::lane_inputs(job, delta::test::kWhole);
          for (const char* name : {"k", "g"}) {
            call::Tensor& t = in.record.inputs.at(name);
            for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, t[i] * length);
          }
          const Tally tally = examine(in, 0);
          CHECK(tally.outside == 0);
          add(total, tally);
          ++count;
        }
      }
    }
  }
  report("beyond the contraction", count, total);
}

TEST_CASE("certificate: without its gate term it would not enclose") {
  // beta = 0 and one token: z = alpha s, so the error is that of alpha and two roundings.
  const call::Record record = cases::make_record(cases::parse(
      "op=gdn mode=decode B=256 H=1 HV=1 K=1 V=1 gate=softplus beta=direct pattern=C000 io=f32"));
  const call::Plan plan = call::make_plan(record, false);
  const delta::CallInputs inputs(record);
  int outside = 0;
  int outside_without = 0;
  for (const call::Sequence& s : plan.sequences) {
    const auto exact = delta::prepare_lane<Multi>(record, plan.dims, inputs, s.first_token, 1, 0);
    const double v = inputs.v[static_cast<std::size_t>(s.first_token)];
    const double start = inputs.initial_state[static_cast<std::size_t>(s.start_block)];
    const Multi truth = Multi(start) * exact.alpha[0];
    for (const bool with : {true, false}) {
      auto lane = delta::prepare_lane<double>(record, plan.dims, inputs, s.first_token, 1, 0);
      if (!with) lane.bounds[0].alpha_error = 0.0;
      delta::RecurrentTile<double> tile(lane, &v, 1, 0, 1);
      tile.set_state(0, 0, start);
      delta::Certificate<double>::Row norm2{};
      norm2[0] = start * start;
      delta::Certificate<double> certificate(lane, norm2);
      tile.advance(0, 1, delta::Detail::kNorms);
      certificate.advance(0, tile.norms()[0]);
      const bool encloses =
          abs(Multi(tile.state(0, 0)) - truth) <= Multi(certificate.state_radius(0));
      (with ? outside : outside_without) += encloses ? 0 : 1;
    }
  }
  CHECK(outside == 0);
  CHECK(outside_without > 0);
}
