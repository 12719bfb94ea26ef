// SPDX-License-Identifier: Apache-2.0
//
// Speed of the judge of chains: calls of 64 requests, HV = 8, K = V = 64, decode in fp32, whose
// states are stored in every n-th call. Prints seconds, seconds of all its threads (which a busy
// machine changes less), states and resident memory; the goal is 2,000 calls in 60 s on two cores,
// in memory that does not depend on the number of calls. Usage: goldenrule_bench_chain [CALLS]
// [STORED_EVERY].
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "fixtures/random/philox.hpp"
#include "reference/chain/judge.hpp"
#include "reference/delta/slice.hpp"

namespace {

using namespace goldenrule;

constexpr std::int64_t kRequests = 64, kH = 4, kHV = 8, kK = 64, kV = 64;

call::Tensor draw(const std::string& name, std::int64_t index, call::Shape shape, double low,
                  double high) {
  const random::Stream stream(static_cast<std::uint64_t>(index), name);
  call::Tensor tensor(call::DType::kBF16, std::move(shape));
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, stream.uniform(i, low, high));
  return tensor;
}

call::Tensor count_up(double step, std::int64_t first) {
  call::Tensor tensor(call::DType::kI64, {kRequests});
  for (std::int64_t i = 0; i < kRequests; ++i) {
    tensor.set(i, static_cast<double>(first) + step * static_cast<double>(i));
  }
  return tensor;
}

call::Record make_call(std::int64_t index, call::Tensor pool) {
  call::Record r;
  r.mode = call::Mode::kDecode;
  r.convention.gate = call::Gate::kLog;
  r.convention.beta = call::BetaForm::kDirect;
  r.inputs["q"] = draw("q", index, {kRequests, 1, kH, kK}, -1, 1);
  r.inputs["k"] = draw("k", index, {kRequests, 1, kH, kK}, -1, 1);
  r.inputs["v"] = draw("v", index, {kRequests, 1, kHV, kV}, -1, 1);
  r.inputs["g"] = draw("g", index, {kRequests, 1, kHV}, -0.1, -0.001);
  r.inputs["beta"] = draw("beta", index, {kRequests, 1, kHV}, 0.2, 1.0);
  r.inputs["initial_state"] = std::move(pool);
  r.inputs["state_indices"] = count_up(1, 0);
  r.inputs["request_ids"] = count_up(1, 0);
  r.inputs["positions"] = count_up(0, index);
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t calls = argc > 1 ? std::atoll(argv[1]) : 2000;
  const std::int64_t every = argc > 2 ? std::atoll(argv[2]) : 50;
  const verdict::Slice& slice = delta::slice();
  chain::Judge judge(slice, {.only_chain = true});
  call::Tensor pool(call::DType::kF32, {kRequests, kHV, kV, kK});
  const call::Tensor none(call::DType::kF32, {0, kHV, kV, kK});
  double seconds = 0.0;
  double cpu = 0.0;
  for (std::int64_t i = 0; i < calls; ++i) {
    call::Record r = make_call(i, pool);
    const auto out = slice.evaluate(r, scalar::Precision::kDouble, {.certify = false});
    pool =
        call::Tensor(call::DType::kF32, pool.shape(), out.outputs.at("final_state").exact.golden);
    if (i % every == every - 1) {
      r.outputs["final_state"] = pool;
    } else {
      r.inputs["initial_state"] = none;
    }
    const chain::Call call{.chain = "benchmark", .index = i, .record = std::move(r)};
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t began = std::clock();
    for (const chain::Finding& finding : judge.add(call)) std::puts(finding.text.c_str());
    cpu += static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const chain::Summary summary = judge.finish();
  std::printf(
      "%lld calls of %lld requests: %.1f s, CPU %.1f s, %lld of %lld states judged, %s, %.0f MiB\n",
      static_cast<long long>(calls), static_cast<long long>(kRequests), seconds, cpu,
      static_cast<long long>(summary.judged), static_cast<long long>(summary.states),
      std::string(verdict::name_of(summary.verdict)).c_str(),
      static_cast<double>(usage.ru_maxrss) / 1024.0);
  return summary.findings == 0 ? 0 : 1;
}
