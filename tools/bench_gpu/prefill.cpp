// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/prefill.hpp"

#include <cmath>
#include <cstdio>
#include <set>

#include "tools/bench_gpu/ceilings.hpp"
#include "tools/bench_gpu/prefill_workload.hpp"
#include "tools/bench_gpu/timing.hpp"
#include "tools/bench_gpu/workload.hpp"

namespace goldenrule::bench {
namespace {

/// Dense bf16 products on an H200, as its peers are measured by.
constexpr double kTensorTeraflops = 790.0;

constexpr const char* kPrefillLegend =
    "us of a launch in a replayed graph; norm, gate, sigmoid and scale are in the call, fp32 "
    "states\n"
    "in and out. bytes us: what must move at the streaming rates above. tensor us: the operations "
    "of\nthe chunked form at 790 TFLOP/s. gap: us over the larger. goal, peer: of other runs, for\n"
    "orientation; the peer's norms and gates are partly made outside its time.\n\n";

PrefillRow uniform(bool kda, std::int64_t H, std::int64_t HV, std::int64_t count,
                   std::int64_t length) {
  const Gates gates = kda ? Gates::kFast : Gates::kSoftplus;
  PrefillRow row{.kda = kda, .H = H, .HV = HV, .lengths = "", .lens = {}, .gates = gates};
  row.lens.assign(static_cast<std::size_t>(count), length);
  if (count > 1) row.lengths = std::to_string(count) + "x";
  row.lengths += std::to_string(length);
  return row;
}

PrefillRow mixed(bool kda, std::int64_t H, std::int64_t HV) {
  PrefillRow row = uniform(kda, H, HV, 1, 8192);
  row.lens = {1300, 547, 2048, 963, 271, 3063};
  row.lengths = "mixed";
  return row;
}

/// The rows of the measured peers.
std::vector<PrefillRow> rows_of_peers() {
  std::vector<PrefillRow> rows;
  const auto add = [&](PrefillRow row, double peer_us, double goal_us) {
    row.peer_us = peer_us;
    row.goal_us = goal_us;
    rows.push_back(std::move(row));
  };
  add(uniform(false, 16, 32, 1, 8192), 232, 130);
  add(mixed(false, 16, 32), 196, 85);
  add(uniform(false, 16, 32, 8, 1024), 111, 75);
  add(uniform(false, 16, 32, 4, 2048), 103, 75);
  add(uniform(false, 16, 32, 1, 1024), 49, 25);
  add(uniform(false, 16, 32, 1, 32768), 684, 500);
  add(uniform(false, 16, 64, 1, 8192), 367, 140);
  add(uniform(false, 2, 8, 1, 8192), 114, 65);
  add(uniform(false, 2, 8, 1, 32768), 239, 180);
  for (const Gates gates : {Gates::kFast, Gates::kReal, Gates::kNone, Gates::kSoftplus}) {
    const std::size_t first = rows.size();
    add(uniform(true, 64, 64, 1, 8192), 1193, 240);
    add(mixed(true, 64, 64), 1013, 250);
    add(uniform(true, 64, 64, 8, 1024), 792, 250);
    add(uniform(true, 64, 64, 1, 32768), 6417, 850);
    for (std::size_t i = first; i < rows.size(); ++i) {
      rows[i].gates = gates;
      if (gates == Gates::kSoftplus) rows[i].peer_us = rows[i].goal_us = 0;  // others have bounds
    }
  }
  add(uniform(true, 64, 64, 1, 8192), 0, 0);
  rows.back().gates = Gates::kSteep;
  for (const std::int64_t heads : {8, 16}) add(uniform(true, heads, heads, 1, 8192), 0, 0);
  for (const bool kda : {false, true}) {  // what the flag costs: the first row of each op with it
    PrefillRow row = uniform(kda, kda ? 64 : 16, kda ? 64 : 32, 1, 8192);
    row.precise = true;
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Where chunks begin to pay, and the slope: what each further token costs.
std::vector<PrefillRow> rows_of_lengths() {
  std::vector<PrefillRow> rows;
  for (const bool kda : {false, true}) {
    for (const std::int64_t T : {1, 2, 8, 16, 32, 63, 64, 65, 128, 256, 1024, 4096, 16384, 65536}) {
      rows.push_back(uniform(kda, kda ? 64 : 16, kda ? 64 : 32, 1, T));
    }
  }
  return rows;
}

/// The cross-over: the same tokens of one sequence through the entry point of decode and MTP, where
/// that takes as many.
void print_recurrent(const PrefillRow& row, cudaStream_t stream, int replays) {
  constexpr std::int64_t kMostTokens = 16;  // of that entry point
  if (row.lens.size() != 1 || row.tokens() > kMostTokens) return;
  const Workload workload({.kda = row.kda, .T = row.tokens(), .H = row.H, .HV = row.HV}, stream);
  const Timing timing = time_graph(stream, workload.sets(), replays,
                                   [&](int i, cudaStream_t s) { workload.launch(i, s, 0); });
  std::printf("  as a call of decode or MTP: %.2f us (%.2f-%.2f)\n", timing.median_us,
              timing.low_us, timing.high_us);
}

double once_us(const PrefillWorkload& workload, cudaStream_t stream) {
  const gpu::Event begin = gpu::make_event(), end = gpu::make_event();
  workload.launch(0, stream);
  gpu::check_cuda(cudaEventRecord(begin.get(), stream), "record");
  workload.launch(1, stream);
  gpu::check_cuda(cudaEventRecord(end.get(), stream), "record");
  gpu::check_cuda(cudaEventSynchronize(end.get()), "launch");
  float ms = 0;
  gpu::check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "elapsed");
  return 1e3 * static_cast<double>(ms);
}

double print_row(const PrefillRow& row, cudaStream_t stream, int replays,
                 const Ceilings& ceilings) {
  constexpr double kGraphUs = 2e3, kRowUs = 3e6;  // of a graph at least, of a row at most
  const PrefillWorkload workload(row, stream);
  const double once = once_us(workload, stream);
  workload.check_finite();
  const int least = std::max(1, std::min(32, static_cast<int>(kGraphUs / once)));
  const double graph_us = once * std::max(least, workload.sets());
  const int most = std::max(3, static_cast<int>(kRowUs / graph_us));
  const Timing timing = time_graph(
      stream, workload.sets(), std::min(replays, most),
      [&](int i, cudaStream_t s) { workload.launch(i, s); }, least);
  const double bytes_us = ceilings.bytes_us(row.bytes_read(), row.bytes_written());
  const double tensor_us = static_cast<double>(row.operations()) / kTensorTeraflops * 1e-6;
  const double us = timing.median_us;
  std::printf("%-26s %9.2f (%9.2f-%9.2f) %8.2f %9.2f %7.2f", row.name().c_str(), us, timing.low_us,
              timing.high_us, bytes_us, tensor_us, us / std::max(bytes_us, tensor_us));
  if (row.goal_us > 0) {
    std::printf(" %8.0f %s %8.0f %5.2fx", row.goal_us, us <= row.goal_us ? "met   " : "MISSED",
                row.peer_us, row.peer_us / us);
  }
  std::printf("\n");
  std::fflush(stdout);
  return us;
}

}  // namespace

void run_prefill(const Options& options, cudaStream_t stream, int multiprocessors) {
  std::vector<PrefillRow> rows = rows_of_peers();
  for (PrefillRow& row : rows_of_lengths()) rows.push_back(std::move(row));
  std::erase_if(rows, [&](const PrefillRow& row) { return !options.selects(row.name()); });
  if (options.profile) {
    for (const PrefillRow& row : rows) {
      const PrefillWorkload workload(row, stream);
      workload.launch(0, stream);
      gpu::check_cuda(cudaStreamSynchronize(stream), "profiled launch");
    }
    return;
  }
  const Ceilings ceilings = print_ceilings(stream, options.replays, multiprocessors);
  std::printf("%s%-26s %9s %21s %8s %9s %7s %8s %6s %8s\n", kPrefillLegend, "call", "us",
              "(10%-90%)", "bytes us", "tensor us", "gap", "goal us", "", "peer us");
  std::string series;  // the lengths of one call shape, one behind the other
  double last_us = 0;
  std::int64_t last_tokens = 0;
  for (const PrefillRow& row : rows) {
    const double us = print_row(row, stream, options.replays, ceilings);
    const bool single = row.goal_us == 0;
    const std::string shape = row.name().substr(0, row.name().find(' ', 4));
    if (single && shape == series && row.tokens() >= 2 * last_tokens && last_tokens >= 64) {
      std::printf("  slope from %lld: %.2f us per 64 tokens\n", static_cast<long long>(last_tokens),
                  64.0 * (us - last_us) / static_cast<double>(row.tokens() - last_tokens));
    }
    if (single) print_recurrent(row, stream, options.replays);
    series = single ? shape : "";
    last_us = us;
    last_tokens = row.tokens();
  }
}

}  // namespace goldenrule::bench
