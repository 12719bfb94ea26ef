// SPDX-License-Identifier: Apache-2.0
//
// Speed and memory of the judge of chains: calls of R requests, decode in fp32 with HV heads of
// K = V = D, whose states are stored in every n-th call (0: in none, and every call has its o).
// Prints seconds, seconds of all its threads (which a busy machine changes less), states and
// resident memory; the goal is 2,000 calls of the first line in 60 s on two cores, in memory that
// does not depend on the number of calls.
// Usage: goldenrule_bench_chain [CALLS] [STORED_EVERY] [R] [HV] [D], 2000 50 64 8 64 by default.
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

struct Sizes {
  std::int64_t calls = 2000, every = 50, requests = 64, heads = 8, D = 64;
};

call::Tensor draw(const std::string& name, std::int64_t index, call::Shape shape, double low,
                  double high) {
  const random::Stream stream(static_cast<std::uint64_t>(index), name);
  call::Tensor tensor(call::DType::kBF16, std::move(shape));
  for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, stream.uniform(i, low, high));
  return tensor;
}

call::Tensor count_up(std::int64_t count, double step, std::int64_t first) {
  call::Tensor tensor(call::DType::kI64, {count});
  for (std::int64_t i = 0; i < count; ++i) {
    tensor.set(i, static_cast<double>(first) + step * static_cast<double>(i));
  }
  return tensor;
}

call::Record make_call(const Sizes& s, std::int64_t index, call::Tensor pool) {
  call::Record r;
  r.mode = call::Mode::kDecode;
  r.convention.gate = call::Gate::kLog;
  r.convention.beta = call::BetaForm::kDirect;
  r.inputs["q"] = draw("q", index, {s.requests, 1, s.heads / 2, s.D}, -1, 1);
  r.inputs["k"] = draw("k", index, {s.requests, 1, s.heads / 2, s.D}, -1, 1);
  r.inputs["v"] = draw("v", index, {s.requests, 1, s.heads, s.D}, -1, 1);
  r.inputs["g"] = draw("g", index, {s.requests, 1, s.heads}, -0.1, -0.001);
  r.inputs["beta"] = draw("beta", index, {s.requests, 1, s.heads}, 0.2, 1.0);
  r.inputs["initial_state"] = std::move(pool);
  r.inputs["state_indices"] = count_up(s.requests, 1, 0);
  r.inputs["request_ids"] = count_up(s.requests, 1, 0);
  r.inputs["positions"] = count_up(s.requests, 0, index);
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  Sizes s;
  int at = 1;
  for (std::int64_t* size : {&s.calls, &s.every, &s.requests, &s.heads, &s.D}) {
    if (at < argc) *size = std::atoll(argv[at++]);
  }
  const verdict::Slice& slice = delta::slice();
  chain::Judge judge([](call::Op) -> const verdict::Slice& { return delta::slice(); },
                     {.only_chain = true});
  call::Tensor pool(call::DType::kF32, {s.requests, s.heads, s.D, s.D});
  const call::Tensor none(call::DType::kF32, {0, s.heads, s.D, s.D});
  double seconds = 0.0;
  double cpu = 0.0;
  for (std::int64_t i = 0; i < s.calls; ++i) {
    call::Record r = make_call(s, i, pool);
    const auto out = slice.evaluate(r, scalar::Precision::kDouble, {.certify = false});
    pool =
        call::Tensor(call::DType::kF32, pool.shape(), out.outputs.at("final_state").exact.golden);
    if (s.every == 0) {
      r.outputs["o"] = call::Tensor(call::DType::kF32, r.inputs.at("v").shape(),
                                    out.outputs.at("o").exact.golden);
    }
    if (s.every > 0 && i % s.every == s.every - 1) {
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
      static_cast<long long>(s.calls), static_cast<long long>(s.requests), seconds, cpu,
      static_cast<long long>(summary.judged), static_cast<long long>(summary.states),
      std::string(verdict::name_of(summary.verdict)).c_str(),
      static_cast<double>(usage.ru_maxrss) / 1024.0);
  return summary.findings == 0 ? 0 : 1;
}
