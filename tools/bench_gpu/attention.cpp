// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/attention.hpp"

#include <cstdio>

#include "tools/bench_gpu/attention_workload.hpp"
#include "tools/bench_gpu/ceilings.hpp"
#include "tools/bench_gpu/growth.hpp"
#include "tools/bench_gpu/timing.hpp"

namespace goldenrule::bench {
namespace {

constexpr const char* kAttentionLegend =
    "us of a launch in a replayed graph; 32/8 heads of 128, bf16, pages of 64 in random order, "
    "one\n"
    "block of B tokens beside the cache. bytes us: every byte once at the rates above. gap: us "
    "over\n"
    "it. goal, peer (the better of FlashAttention 2 and cuDNN through torch, on dense keys with\n"
    "packed rows): of other runs, for orientation.\n\n";

constexpr const char* kGrowth = "attention growth";

std::vector<AttentionRow> attention_rows() {
  struct Goal {
    std::int64_t requests, context;
    double goal_us, peer_us;
  };
  constexpr std::int64_t kK = 1024;
  constexpr Goal kGoals[] = {
      {1, kK, 5, 12.1},  {1, 4 * kK, 9, 20.1},   {1, 16 * kK, 21, 34.3},  {1, 64 * kK, 68, 83.7},
      {8, kK, 12, 18.8}, {8, 4 * kK, 36, 46},    {8, 16 * kK, 128, 134},  {8, 64 * kK, 490, 484},
      {64, kK, 70, 74},  {64, 4 * kK, 255, 249}, {64, 16 * kK, 960, 944},
  };
  std::vector<AttentionRow> all;
  for (const Goal& g : kGoals) {
    all.push_back(
        {.requests = g.requests, .context = g.context, .goal_us = g.goal_us, .peer_us = g.peer_us});
  }
  const auto with_block = [&](std::int64_t block, const Goal& g) {
    all.push_back({.requests = g.requests,
                   .context = g.context,
                   .block = block,
                   .goal_us = g.goal_us,
                   .peer_us = g.peer_us});
  };
  // A block of 32: the goals of 16 and a tenth.
  with_block(32, {1, 64 * kK, 75, 140});
  with_block(32, {8, 64 * kK, 539, 798});
  with_block(32, {64, 16 * kK, 1056, 951});
  for (const std::int64_t context : {1 * kK, 16 * kK}) {
    with_block(4, {1, context, 0, 0});
    with_block(4, {8, context, 0, 0});
  }
  all.push_back({.requests = 8, .context = 16 * kK, .page = 16});
  for (const std::int64_t splits : {8, 9, 16}) {  // 9 is the default of one request
    for (const std::int64_t context : {1 * kK, 4 * kK, 64 * kK}) {
      all.push_back({.requests = 1, .context = context, .splits = splits});
    }
    for (const std::int64_t context : {1 * kK, 16 * kK}) {
      all.push_back({.requests = 2, .context = context, .splits = splits});
    }
  }
  for (const std::int64_t splits : {1, 2, 4, 8, 9, 16}) {
    all.push_back({.requests = 1, .context = 16 * kK, .splits = splits});
    all.push_back({.requests = 8, .context = 4 * kK, .splits = splits});
    all.push_back({.requests = 8, .context = 16 * kK, .splits = splits});
    all.push_back({.requests = 64, .context = 4 * kK, .splits = splits});
  }
  return all;
}

void print_row(const AttentionRow& row, cudaStream_t stream, int replays,
               const Ceilings& ceilings) {
  const AttentionWorkload workload(row);
  workload.launch(0, stream);
  workload.check_finite();
  const double bytes_us = ceilings.bytes_us(row.bytes_read(), row.bytes_written());
  const int least = bytes_us > 200 ? 4 : 32;
  const Timing timing = time_graph(
      stream, workload.sets(), replays, [&](int i, cudaStream_t s) { workload.launch(i, s); },
      least);
  const double us = timing.median_us;
  std::printf("%-30s %9.2f (%9.2f-%9.2f) %9.2f %6.2f %6.2f", row.name().c_str(), us, timing.low_us,
              timing.high_us, bytes_us, us / bytes_us,
              terabytes(row.bytes_read() + row.bytes_written(), us));
  if (row.goal_us > 0) {
    std::printf(" %8.0f %s %8.1f %5.2fx", row.goal_us, us <= row.goal_us ? "met   " : "MISSED",
                row.peer_us, row.peer_us / us);
  }
  std::printf("\n");
  std::fflush(stdout);
}

void print_rows(const std::vector<AttentionRow>& all, const Options& options, cudaStream_t stream,
                int multiprocessors) {
  const Ceilings ceilings = print_ceilings(stream, options.replays, multiprocessors);
  std::printf("%s%-30s %9s %21s %9s %6s %6s %8s %6s %8s\n", kAttentionLegend, "call", "us",
              "(10%-90%)", "bytes us", "gap", "TB/s", "goal us", "", "peer us");
  for (const AttentionRow& row : all) print_row(row, stream, options.replays, ceilings);
}

/// Rows of no kernel: what the host pays while everything that a call depends on changes.
void print_growth() {
  const GrowthReport report = measure_growth();
  std::printf("\n%s: %d widths of the table, %llu launches\n%s\n", kGrowth,
              static_cast<int>(Growth::width(Growth::context(Growth::kSteps - 1))),
              static_cast<unsigned long long>(report.launches),
              text_of(report.times, report.misses).c_str());
}

}  // namespace

void run_attention(const Options& options, cudaStream_t stream, int multiprocessors) {
  std::vector<AttentionRow> all = attention_rows();
  std::erase_if(all, [&](const AttentionRow& row) { return !options.selects(row.name()); });
  if (options.profile) {
    for (const AttentionRow& row : all) {
      const AttentionWorkload workload(row);
      workload.launch(0, stream);
      gpu::check_cuda(cudaStreamSynchronize(stream), "profiled launch");
    }
    return;
  }
  if (!all.empty()) print_rows(all, options, stream, multiprocessors);
  if (options.selects(kGrowth)) print_growth();
}

}  // namespace goldenrule::bench
