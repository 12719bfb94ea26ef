// SPDX-License-Identifier: Apache-2.0
//
// The stages of the chunk form are what chunk_form.cpp defines, each checked against its own
// definition rather than against the code that made it.
//
// Length: each of ten stages has its definition here.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/oracle/stages.hpp"
#include "tests/delta/rule/form_bounds.hpp"
#include "tests/delta/rule/lane_jobs.hpp"

using namespace goldenrule;
using namespace goldenrule::delta;
using namespace goldenrule::delta::test;
using scalar::Multi;
using scalar::Quad;

namespace {

constexpr std::int64_t kC = 16;

LaneInputs lane_of(const std::string& line) {
  return lane_inputs({cases::parse(line), 0, 0}, kWhole);
}

struct Chunked {
  Lane<Multi> lane;
  LaneInputs in;
  FormResult<Multi> result;
  ChunkStages<Multi> stages;
};

Chunked chunked(const std::string& line) {
  Chunked c{.lane = {}, .in = lane_of(line), .result = {}, .stages = {}};
  c.lane = c.in.prepare<Multi>();
  c.result = chunk_form<Multi>(c.lane, c.in.v, c.in.initial, kC, &c.stages);
  return c;
}

double size(const Multi& x) { return static_cast<double>(abs(x)); }

// No erased states here: G is finite, so the definitions with exp(G_i - G_j) can be used as they
// stand.
const std::initializer_list<const char*> kLines{
    "op=gdn mode=prefill lens=37 H=1 HV=1 K=24 V=4 gate=log h0=1 pattern=A",
    "op=kda mode=prefill lens=37 H=1 HV=1 K=24 V=4 gate=bounded h0=1 pattern=Dmixed",
    "op=gdn mode=prefill lens=37 H=1 HV=1 K=24 V=4 gate=softplus h0=1 pattern=B95",
    "op=kda mode=prefill lens=37 H=1 HV=1 K=24 V=4 gate=log2 beta=sigmoid2 h0=1 pattern=C190"};

// exp and log are within kFunctionError, sums of c logarithms within c u of their size.
double gate_tolerance(const Chunked& c) {
  double size_of_G = 0.0;
  for (std::int64_t i = 0; i < c.stages.G.size(); ++i) {
    size_of_G = std::fmax(size_of_G, size(c.stages.G.data()[i]));
  }
  return 4 * (1 + size_of_G) * (scalar::Tier<Multi>::kFunctionError + kC * 0x1p-168);
}

}  // namespace

TEST_CASE("stages: G is the running sum of log alpha from the start of the chunk") {
  for (const char* line : kLines) {
    const Chunked c = chunked(line);
    const double tolerance = gate_tolerance(c);
    for (std::int64_t t = 0; t < c.lane.tokens; ++t) {
      for (std::int64_t x = 0; x < c.lane.gates; ++x) {
        const Multi before = t % kC == 0 ? Multi(0) : c.stages.G(t - 1, x);
        const Multi alpha = exp(Multi(c.stages.G(t, x) - before));
        CHECK(size(alpha - c.lane.alpha_at(t, x)) <= tolerance * size(alpha));
      }
    }
  }
}

TEST_CASE("stages: A, w and u by their definitions") {
  for (const char* line : kLines) {
    CAPTURE(line);
    const Chunked c = chunked(line);
    const Lane<Multi>& lane = c.lane;
    const double tolerance = gate_tolerance(c) + g<Multi>(lane.K + 2 * kC);
    const auto G = [&](std::int64_t t, std::int64_t x) {
      return c.stages.G(t, lane.gates == 1 ? 0 : x);
    };
    double worst = 0.0;
    for (std::int64_t t = 0; t < lane.tokens; ++t) {
      const std::int64_t first = t / kC * kC;
      const Multi& beta = lane.beta[static_cast<std::size_t>(t)];
      for (std::int64_t j = 0; j < kC; ++j) {
        Multi sum(0);
        double scale = 0.0;
        for (std::int64_t x = 0; x < lane.K && first + j < t; ++x) {
          const Multi term = beta * lane.k_row(t)[x] * exp(Multi(G(t, x) - G(first + j, x))) *
                             lane.k_row(first + j)[x];
          sum += term;
          scale += size(term);
        }
        worst = std::fmax(worst, size(c.stages.A(t, j) - sum) / (tolerance * scale + 0x1p-1000));
      }
      // Row t of w and u solves (I + A) w = beta k^ e^G: no inverse is needed to check it.
      for (std::int64_t x = 0; x < lane.K; ++x) {
        const Multi right = beta * lane.k_row(t)[x] * exp(G(t, x));
        Multi left = c.stages.w(t, x);
        double scale = size(right) + size(left);
        for (std::int64_t j = 0; first + j < t; ++j) {
          left += c.stages.A(t, j) * c.stages.w(first + j, x);
          scale += size(c.stages.A(t, j)) * size(c.stages.w(first + j, x));
        }
        // The computed inverse enters w: its residual is g(c) |A| |T| |beta k^|.
        worst = std::fmax(worst, size(left - right) / (tolerance * kC * (scale + 1)));
      }
      for (std::int64_t y = 0; y < c.in.v.cols(); ++y) {
        const Multi right = beta * Multi(c.in.v(t, y));
        Multi left = c.stages.u(t, y);
        double scale = size(right) + size(left);
        for (std::int64_t j = 0; first + j < t; ++j) {
          left += c.stages.A(t, j) * c.stages.u(first + j, y);
          scale += size(c.stages.A(t, j)) * size(c.stages.u(first + j, y));
        }
        worst = std::fmax(worst, size(left - right) / (tolerance * kC * (scale + 1)));
      }
    }
    CHECK(worst <= 1.0);
  }
}

TEST_CASE("stages: T is the inverse of I + A") {
  for (const char* line : kLines) {
    const Chunked c = chunked(line);
    for (std::int64_t first = 0; first < c.lane.tokens; first += kC) {
      const std::int64_t n = std::min(kC, c.lane.tokens - first);
      double worst = 0.0;
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          Multi sum = c.stages.T(first + i, j);
          double scale = size(sum);
          for (std::int64_t l = 0; l < i; ++l) {
            const Multi term = c.stages.A(first + i, l) * c.stages.T(first + l, j);
            sum += term;
            scale += size(term);
          }
          const double residual = size(sum - (i == j ? 1 : 0));
          // Both the product here and the substitution round at most n times.
          if (residual > 0.0) worst = std::fmax(worst, residual / (g<Multi>(2 * n + 2) * scale));
        }
        for (std::int64_t j = n; j < kC; ++j) {
          CHECK(c.stages.T(first + i, j) == 0);
          CHECK(c.stages.A(first + i, j) == 0);
        }
      }
      CHECK(worst <= 1.0);
    }
  }
}

TEST_CASE("stages: v_new = u - w h, and h is the state of the recurrence") {
  for (const char* line : kLines) {
    const Chunked c = chunked(line);
    REQUIRE(std::ssize(c.stages.h) == (c.lane.tokens + kC - 1) / kC);
    double worst = 0.0;
    for (std::int64_t t = 0; t < c.lane.tokens; ++t) {
      const Matrix<Multi>& h = c.stages.h[static_cast<std::size_t>(t / kC)];
      for (std::int64_t y = 0; y < h.cols(); ++y) {
        Multi expected = c.stages.u(t, y);
        double scale = size(expected);
        for (std::int64_t x = 0; x < c.lane.K; ++x) {
          const Multi term = c.stages.w(t, x) * h(x, y);
          expected -= term;
          scale += size(term);
        }
        worst = std::fmax(worst, size(c.stages.v_new(t, y) - expected) /
                                     (g<Multi>(2 * c.lane.K + 4) * scale + 0x1p-1000));
      }
    }
    CHECK(worst <= 1.0);
    RecurrentTile<Multi> tile(c.lane, c.in.v.data(), c.in.v.cols(), 0,
                              static_cast<int>(c.in.v.cols()));
    for (std::int64_t x = 0; x < c.lane.K; ++x) {
      for (int y = 0; y < tile.columns(); ++y) tile.set_state(x, y, Multi(c.in.initial(x, y)));
    }
    const FormBound recurrent = recurrent_bound(c.lane, c.in.v, c.in.initial);
    const FormBound chunk = chunk_bound(c.lane, c.in.v, c.in.initial, kC, c.result, c.stages);
    for (std::size_t i = 0; i < c.stages.h.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(i) * kC;
      for (std::int64_t x = 0; x < c.lane.K; ++x) {
        for (int y = 0; y < tile.columns(); ++y) {
          // Errors only add up, so the bounds at the end hold at every chunk's start.
          CHECK(size(c.stages.h[i](x, y) - tile.state(x, y)) <=
                recurrent.state(x, y) + chunk.state(x, y) + 0x1p-150);
        }
      }
      if (begin < c.lane.tokens) {
        tile.advance(begin, std::min(begin + kC, c.lane.tokens), Detail::kValues);
      }
    }
  }
}

TEST_CASE("stages: of a whole call, in both layouts") {
  for (const char* layout : {"vk", "kv"}) {
    CAPTURE(layout);
    const call::Record record = cases::make_record(
        cases::parse(std::string("op=kda mode=prefill lens=20,0,5 H=2 HV=4 K=8 V=6 gate=bounded "
                                 "head_map=tiled h0=1 state_layout=") +
                     layout));
    const call::TensorMap stages = delta::chunk_stages(record, kC);
    CHECK(stages.size() == 10);
    CHECK(stages.at("G").shape() == call::Shape{25, 4, 8});
    CHECK(stages.at("beta").shape() == call::Shape{25, 4});
    CHECK(stages.at("q").shape() == call::Shape{25, 2, 8});
    CHECK(stages.at("A").shape() == call::Shape{25, 4, kC});
    CHECK(stages.at("w").shape() == call::Shape{25, 4, 8});
    CHECK(stages.at("v_new").shape() == call::Shape{25, 4, 6});
    const bool vk = std::string(layout) == "vk";
    CHECK(stages.at("h").shape() == (vk ? call::Shape{3, 4, 6, 8} : call::Shape{3, 4, 8, 6}));
    // Chunks: two of sequence 0, none of sequence 1, one of sequence 2. The first starts from the
    // initial state of its sequence.
    const std::int64_t block = 4 * 6 * 8;
    const call::Tensor& start = record.inputs.at("initial_state");
    int wrong = 0;
    for (std::int64_t i = 0; i < block; ++i) {
      wrong += stages.at("h")[i] == start[i] ? 0 : 1;
      wrong += stages.at("h")[2 * block + i] == start[2 * block + i] ? 0 : 1;
    }
    CHECK(wrong == 0);
    // Head 3 of token 22 (the third of sequence 2) against its own lane.
    const call::Plan plan = call::make_plan(record, false);
    const auto lane = prepare_lane<Quad>(record, plan.dims, CallInputs(record), 20, 5, 3);
    CHECK(stages.at("beta")[22 * 4 + 3] == lane.beta[2].hi);
    for (std::int64_t x = 0; x < 8; ++x) {
      CHECK(stages.at("k")[(22 * 2 + 1) * 8 + x] == lane.k_row(2)[x].hi);
      CHECK(stages.at("q")[(22 * 2 + 1) * 8 + x] == lane.q_row(2)[x].hi);
    }
  }
}

TEST_CASE("stages: tiers agree within their radii, and a wide one is as good as exact") {
  std::vector<std::string> names;
  for (const verdict::StageRow& row : delta::stage_table()) names.emplace_back(row.name);
  for (const char* line :
       {"op=gdn mode=prefill lens=37,5 H=1 HV=2 K=24 V=4 io=f32 gate=softplus h0=1 pattern=B999",
        "op=kda mode=prefill lens=37 H=1 HV=1 K=24 V=4 gate=bounded h0=1 pattern=Dmixed",
        "op=gdn mode=prefill lens=37 H=1 HV=1 K=24 V=4 gate=log h0=1 pattern=Dhard",
        "op=gdn mode=prefill lens=37 H=1 HV=1 K=24 V=4 gate=softplus h0=1 pattern=production",
        "op=kda mode=prefill lens=37 H=1 HV=1 K=24 V=4 gate=log2 beta=sigmoid2 h0=1 "
        "pattern=C190"}) {
    CAPTURE(line);
    const call::Record record = cases::make_record(cases::parse(line));
    const auto in = [&](scalar::Precision tier) {
      return delta::evaluate_stages(record, kC, names, tier);
    };
    const auto narrow = in(scalar::Precision::kDouble);
    const auto middle = in(scalar::Precision::kQuad);
    const auto wide = in(scalar::Precision::kMulti);
    const auto difference = [](const verdict::Exact& a, const verdict::Exact& b) {
      double worst = 0.0;
      for (std::size_t i = 0; i < a.golden.size(); ++i) {
        if (!a.is_defined(i)) continue;
        const double radius = static_cast<double>(a.radius[i]) + static_cast<double>(b.radius[i]);
        const double error = std::fabs(a.golden[i] - b.golden[i]);
        CHECK(std::isfinite(a.golden[i]));
        if (error > 0.0) worst = std::fmax(worst, error / radius);
      }
      return worst;
    };
    for (const std::string& name : names) {
      CAPTURE(name);
      const verdict::Exact& exact = wide.at(name).expected.exact;
      CHECK(difference(narrow.at(name).expected.exact, exact) <= 1.0);
      CHECK(difference(middle.at(name).expected.exact, exact) <= 1.0);
      // Half an ulp of double, and for G the double logarithms of gates that it is summed from.
      for (std::size_t i = 0; i < exact.golden.size(); ++i) {
        const double size = std::fabs(middle.at(name).expected.exact.golden[i]) + 1e-6;
        const double least = name == "G" ? 0x1p-44 : 0x1.01p-53;
        CHECK(static_cast<double>(middle.at(name).expected.exact.radius[i]) <= least * size);
      }
    }
  }
}

TEST_CASE("stages: G is a number where its decay is none in double") {
  call::Record record = cases::make_record(
      cases::parse("op=gdn mode=prefill lens=3 H=1 HV=1 K=4 V=2 io=f32 gate=log"));
  record.inputs.at("g") =
      call::Tensor(call::DType::kF32, {3, 1}, std::vector<double>{-2000.0, -1.0, -2661.0});
  const call::TensorMap stages = delta::chunk_stages(record, 4);
  CHECK(stages.at("G")[0] == -2000.0);
  CHECK(stages.at("G")[1] == -2001.0);
  CHECK(stages.at("G")[2] == -4662.0);
}

TEST_CASE("stages: padded rows are zero and chunk sizes are positive") {
  const call::Record record =
      cases::make_record(cases::parse("op=gdn mode=mtp B=3 T=4 H=1 HV=1 K=4 V=2 slots=padded"));
  const call::TensorMap stages = delta::chunk_stages(record, 4);
  for (std::int64_t i = 8 * 2; i < 12 * 2; ++i) CHECK(stages.at("u")[i] == 0.0);
  CHECK(stages.at("u")[0] != 0.0);
  CHECK_THROWS_WITH_AS((void)delta::chunk_stages(record, 0),
                       "stages: expected a chunk size >= 1, actual 0", Error);
}
