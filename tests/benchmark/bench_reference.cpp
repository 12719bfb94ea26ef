// SPDX-License-Identifier: Apache-2.0
//
// Speed of the recurrent form per precision tier on one core, K = V = 128: token-heads per second
// and the fraction of this core's double-precision FMA peak, measured in the same run.
//
// A token-head is one token of one value head: per state element one product (decay), two for the
// prediction, two for the update and two for the output, so 7 K V operations that any
// implementation of the definition must do; the operations of error bounds and of wider arithmetic
// do not count. The reference multiplies and adds separately (no contraction), so without bounds it
// cannot exceed half of an FMA peak by much: 3 of its 7 operations could have been the second half
// of an FMA.
//
// `error_maps` is the cost of the maps of a failing decode call as a part of its verdict; the goal
// is 5 % (OMP_NUM_THREADS=1 for one core).
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "fixtures/call/record.hpp"
#include "fixtures/cases/case.hpp"
#include "reference/delta/budget/running.hpp"
#include "reference/delta/oracle/certificate.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/delta/rule/recurrent.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/error_map.hpp"

namespace {

using namespace goldenrule;

constexpr std::int64_t kK = 128;
constexpr std::int64_t kV = 128;

// 16 independent chains of FMAs keep two pipes of latency 4 busy at any vector width.
GOLDENRULE_VECTOR_CLONES double fma_chains(std::int64_t n, double a, double b) {
  constexpr int kChains = 16;
  scalar::Pack x[kChains];
  const scalar::Pack factor = scalar::broadcast(a);
  const scalar::Pack term = scalar::broadcast(b);
  for (int c = 0; c < kChains; ++c) x[c] = scalar::broadcast(1.0 + c);
  for (std::int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) x[c] = scalar::fused_multiply_add(x[c], factor, term);
  }
  double sum = 0.0;
  for (int c = 0; c < kChains; ++c) {
    for (int lane = 0; lane < scalar::kPackWidth; ++lane) sum += x[c][lane];
  }
  return sum;
}

double& peak() {
  static double flops_per_second = 0.0;
  return flops_per_second;
}

void fma_peak(benchmark::State& state) {
  std::int64_t n = 1 << 16;
  double a = 0.999999;
  double b = 1e-7;
  const double flops = 2.0 * 16 * scalar::kPackWidth * static_cast<double>(n);
  double best = 0.0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(n);
    benchmark::DoNotOptimize(a);
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(fma_chains(n, a, b));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, flops / seconds.count());
  }
  peak() = best;
  state.counters["GFLOP/s"] = best * 1e-9;
}

// Random keys, production-like decay; T tokens of one head.
call::Record make_call(std::int64_t T, bool kda) {
  call::Record record;
  record.op = kda ? call::Op::kKda : call::Op::kGatedDeltaRule;
  record.mode = call::Mode::kPrefill;
  record.convention.gate = call::Gate::kLog;
  record.convention.beta = call::BetaForm::kDirect;
  std::uint64_t bits = 0x9e3779b97f4a7c15U;
  const auto fill = [&](call::Shape shape, double low, double high) {
    call::Tensor t(call::DType::kF32, std::move(shape));
    for (std::int64_t i = 0; i < t.size(); ++i) {
      bits = bits * 6364136223846793005U + 1442695040888963407U;
      t.set(i, low + (high - low) * static_cast<double>(bits >> 11) * 0x1p-53);
    }
    return t;
  };
  record.inputs["q"] = fill({T, 1, kK}, -1.0, 1.0);
  record.inputs["k"] = fill({T, 1, kK}, -1.0, 1.0);
  record.inputs["v"] = fill({T, 1, kV}, -1.0, 1.0);
  record.inputs["g"] = fill(kda ? call::Shape{T, 1, kK} : call::Shape{T, 1}, -0.1, 0.0);
  record.inputs["beta"] = fill({T, 1}, 0.0, 1.0);
  call::Tensor lengths(call::DType::kI64, {2});
  lengths.set(1, static_cast<double>(T));
  record.inputs["cu_seqlens"] = std::move(lengths);
  return record;
}

enum class Bounds { kNone, kCertificate, kBudget };  // kBudget: in double only

template <class S>
void recurrent(benchmark::State& state, Bounds bounds, bool kda, std::int64_t T) {
  const call::Record record = make_call(T, kda);
  const call::Dims dims = call::validate(record);
  const delta::CallInputs inputs(record);
  const auto lane = delta::prepare_lane<S>(record, dims, inputs, 0, T, 0);
  const std::vector<double> v = record.inputs.at("v").to_doubles();
  const delta::Detail detail = bounds == Bounds::kNone          ? delta::Detail::kValues
                               : bounds == Bounds::kCertificate ? delta::Detail::kNorms
                                                                : delta::Detail::kSums;
  for (auto _ : state) {
    for (std::int64_t first = 0; first < kV; first += delta::kTileColumns<S>) {
      delta::RecurrentTile<S> tile(lane, v.data(), kV, first, delta::kTileColumns<S>);
      delta::Certificate<S> certificate(lane, {});
      std::optional<delta::RunningError> spread;
      if constexpr (std::is_same_v<S, double>) {
        spread.emplace(contract::find_contract("recurrent_f32"), lane, tile);
      }
      // The running error reads the state after each token.
      const std::int64_t kBlock = bounds == Bounds::kBudget ? 1 : 64;
      for (std::int64_t t = 0; t < T; t += kBlock) {
        const std::int64_t end = std::min(T, t + kBlock);
        tile.advance(t, end, detail);
        for (std::int64_t i = t; i < end && bounds != Bounds::kNone; ++i) {
          const auto& norms = tile.norms()[static_cast<std::size_t>(i - t)];
          certificate.advance(i, norms);
          if constexpr (std::is_same_v<S, double>) {
            if (bounds == Bounds::kBudget) spread->advance(i, norms, tile);
          }
        }
      }
      benchmark::DoNotOptimize(tile.output(0, 0));
      benchmark::DoNotOptimize(certificate.state_radius(0));
    }
  }
  const double token_heads = static_cast<double>(state.iterations() * T);
  state.counters["token-heads/s"] = benchmark::Counter(token_heads, benchmark::Counter::kIsRate);
  if (peak() > 0.0) {
    state.counters["of FMA peak"] =
        benchmark::Counter(token_heads * 7.0 * kK * kV / peak(), benchmark::Counter::kIsRate);
  }
}

// Preparation alone: gates, norms and betas of a lane.
template <class S>
void prepare(benchmark::State& state, bool kda, std::int64_t T) {
  const call::Record record = make_call(T, kda);
  const call::Dims dims = call::validate(record);
  const delta::CallInputs inputs(record);
  for (auto _ : state) {
    benchmark::DoNotOptimize(delta::prepare_lane<S>(record, dims, inputs, 0, T, 0));
  }
  state.counters["token-heads/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * T), benchmark::Counter::kIsRate);
}

// A decode call whose last value head is wrong.
void error_maps(benchmark::State& state) {
  call::Record record = cases::make_record(
      cases::parse("op=gdn mode=decode B=8 H=16 HV=32 K=128 V=128 slots=padded"));
  const verdict::Slice& slice = delta::slice();
  const verdict::Expectations expected = verdict::expect(
      slice, record, contract::find_contract("recurrent_f32"), scalar::Precision::kDouble);
  for (const auto& [name, e] : expected.outputs) {
    std::vector<double> values = e.exact.golden;
    const std::size_t step = name == "o" ? kV : kK * kV;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += i / step % 32 == 31 ? 1.0 : 0.0;
    record.outputs[name] = call::Tensor(call::DType::kF32, e.exact.shape, values);
  }
  using Seconds = std::chrono::duration<double>;
  Seconds judging{};
  Seconds mapping{};
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    const verdict::Judgement judgement = verdict::judgement(slice, record, {});
    const auto judged = std::chrono::steady_clock::now();
    for (const verdict::TensorReport& report : judgement.report.tensors) {
      benchmark::DoNotOptimize(verdict::error_maps(judgement, report));
    }
    judging += judged - begin;
    mapping += std::chrono::steady_clock::now() - judged;
  }
  state.counters["of verdict"] = mapping / judging;
}

template <class S>
void add(const std::string& name, Bounds bounds, bool kda, std::int64_t T) {
  benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { recurrent<S>(state, bounds, kda, T); });
}

template <class S>
void add_prepare(const std::string& name, bool kda, std::int64_t T) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { prepare<S>(state, kda, T); });
}

}  // namespace

int main(int argc, char** argv) {
  using scalar::Multi;
  using scalar::Quad;
  // First: the others report fractions of it.
  benchmark::RegisterBenchmark("fma_peak", fma_peak);
  add<double>("double", Bounds::kNone, false, 1024);
  add<double>("double/certificate", Bounds::kCertificate, false, 1024);
  add<double>("double/certificate+budget", Bounds::kBudget, false, 1024);
  add<double>("double/kda/certificate", Bounds::kCertificate, true, 1024);
  add<Quad>("quad", Bounds::kNone, false, 128);
  add<Quad>("quad/certificate", Bounds::kCertificate, false, 128);
  add<Multi>("multi", Bounds::kNone, false, 4);
  add<Multi>("multi/certificate", Bounds::kCertificate, false, 4);
  benchmark::RegisterBenchmark("error_maps", error_maps);
  add_prepare<double>("prepare/gdn/double", false, 1024);
  add_prepare<double>("prepare/kda/double", true, 256);
  add_prepare<Quad>("prepare/kda/quad", true, 16);
  add_prepare<Multi>("prepare/kda/multi", true, 4);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
