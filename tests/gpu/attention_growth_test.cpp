// SPDX-License-Identifier: Apache-2.0
//
// The growing cache of tools/bench_gpu/growth.hpp. A kernel that was compiled for the width of its
// table (the fault that this test is for) would be compiled again at every page; here nothing is,
// and one entry of the table per size of the batch serves all.
//
// Nor does a call load, allocate, copy or wait: what the driver is asked for meanwhile is counted
// (driver_calls.hpp; on the host there is no driver, and nothing to count).
//
// Every step is judged in closed form: with n keys of equal weight, column c of every o is the
// number of t < n with t mod V = c, over n, and lse is log n. The weights are 1 exactly and their
// sums are whole numbers below 2^24, so o is off by the two roundings of n's reciprocal and its
// own: less than 2^-8 + 2^-22 of it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "gpu/attention/table.hpp"
#include "tests/gpu/driver_calls.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tools/bench_gpu/growth.hpp"

namespace goldenrule::test {
namespace {

using bench::Growth;
using Half = std::uint16_t;
constexpr int kHeads = Growth::kHeads, kDim = Growth::kDim;
constexpr Half kNaN = 0x7fc0;  // bf16
float from_bf16(Half x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

/// "" or the first element that is not what the lengths say.
std::string wrong_element(const bench::GrowthStep& step, const std::vector<Half>& o,
                          const std::vector<float>& lse) {
  constexpr std::size_t kRows = Growth::kRows;
  for (std::size_t n = 0; n < step.lengths.size(); ++n) {
    const int keys = step.lengths[n];
    for (std::size_t row = n * kRows; row < (n + 1) * kRows; ++row) {
      const double log_keys = std::log(static_cast<double>(keys));  // -inf for none
      const auto found = static_cast<double>(lse[row]);
      if (!(found == log_keys || std::abs(found - log_keys) <= 0x1p-22 * (log_keys + 1))) {
        return "lse of row " + std::to_string(row) + ": " + std::to_string(lse[row]);
      }
      for (int c = 0; c < kDim; ++c) {
        const int count = keys / kDim + (c < keys % kDim ? 1 : 0);
        const double expected = keys == 0 ? 0.0 : static_cast<double>(count) / keys;
        const double actual =
            static_cast<double>(from_bf16(o[row * kDim + static_cast<std::size_t>(c)]));
        if (!(std::abs(actual - expected) <= expected * (0x1p-8 + 0x1p-22))) {
          return "o of row " + std::to_string(row) + ", column " + std::to_string(c) +
                 ": expected " + std::to_string(expected) + ", actual " + std::to_string(actual);
        }
      }
    }
  }
  return "";
}

/// A table of kernels that were compiled for what a call holds: how often it has none.
class CompiledFor {
 public:
  void launch(std::int64_t value) { misses_ += known_.insert(value).second ? 1 : 0; }
  [[nodiscard]] int misses() const { return misses_; }

 private:
  std::set<std::int64_t> known_;
  int misses_ = 0;
};

/// What the steps asked for, and how long the host took for each.
struct Seen {
  std::vector<double> us;
  std::set<std::string> entries;  ///< predicted from the number of requests alone
  CompiledFor by_width, by_requests;
  DriverCalls asked, all;  ///< of the driver: by the calls, and by all that the loop does
};

std::string predicted_entry(std::int64_t requests) {
  return "attention_bf16_d64_r64_c" +
         std::to_string(gpu::attention::default_splits(requests, kHeads));
}

Seen grow(int steps) {
  Seen seen;
  const DriverCalls before = driver_calls();
  bench::GrowthLoop loop(steps);
  loop.run([&](const bench::GrowthStep& step) {
    const DriverCalls calls = driver_calls();
    seen.us.push_back(bench::timed_call(step.args));
    seen.asked.add(driver_calls().since(calls));
    const std::size_t taken = step.lengths.size() * Growth::kRows;
    std::vector<Half> o(taken * kDim, kNaN);
    std::vector<float> lse(taken);
    gpu::check_cuda(
        cudaMemcpy(o.data(), loop.o().get(), o.size() * sizeof o[0], cudaMemcpyDeviceToHost), "o");
    gpu::check_cuda(cudaMemcpy(lse.data(), loop.lse().get(), lse.size() * sizeof lse[0],
                               cudaMemcpyDeviceToHost),
                    "lse");
    REQUIRE_MESSAGE(wrong_element(step, o, lse) == "", "step " << step.number);
    seen.entries.insert(predicted_entry(step.args.N));
    seen.by_width.launch(step.width);
    seen.by_requests.launch(step.args.total);
  });
  seen.all = driver_calls().since(before);
  return seen;
}

void check_growth(int steps) {
  REQUIRE_GPU();
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  const std::uint64_t misses = goldenrule_gpu_dispatch_misses();
  const std::map<std::string, std::uint64_t> before = hits_by_name();
  const Seen growth = grow(steps);
  CHECK(goldenrule_gpu_dispatch_misses() == misses);
  std::uint64_t launches = 0;
  for (const auto& item : hits_by_name()) {
    const std::string& name = item.first;  // a binding, which CHECK captures, is none for clang
    launches += item.second - before.at(name);
    CHECK_MESSAGE((item.second != before.at(name)) == growth.entries.contains(name), name);
  }
  CHECK(launches == static_cast<std::uint64_t>(steps));
  CHECK(growth.asked.text() == "");
  if (watched_driver_functions() > 0) {
    // The test itself allocates and copies at every step, which shows that somebody counts.
    const auto least = static_cast<std::uint64_t>(steps);
    CHECK(growth.all[DriverCall::kAllocate] >= least);
    CHECK(growth.all[DriverCall::kCopy] >= least);
  }
  // The negative control: tables keyed by what the loop changes miss again and again.
  CHECK(growth.by_width.misses() >= steps / 4);
  CHECK(growth.by_requests.misses() == std::min(steps, Growth::kMostRequests));
  std::printf(
      "%d steps, %d widths of the table: %s\n", steps, growth.by_width.misses(),
      bench::text_of(bench::summary_of(growth.us), goldenrule_gpu_dispatch_misses() - misses)
          .c_str());
}

#ifdef GOLDENRULE_GPU_LEAST_SPLIT
TEST_CASE("attention: a benchmark of a growing cache counts its calls and misses") {
  REQUIRE_GPU();
  REQUIRE(goldenrule_gpu_initialize(nullptr, 0) == GOLDENRULE_GPU_OK);
  const bench::GrowthReport report = bench::measure_growth(5);
  CHECK(report.times.calls == 5);
  CHECK(report.launches == 5);
  CHECK(report.misses == 0);
  CHECK(report.times.median > 0);
  CHECK(report.times.median <= report.times.p99);
  CHECK(report.times.p99 <= report.times.max);
}
TEST_CASE("attention: a growing cache is never compiled for") { check_growth(40); }
#else
TEST_CASE("attention: 4,096 steps of a growing cache are never compiled for") {
  check_growth(4096);
}
#endif

}  // namespace
}  // namespace goldenrule::test
