// SPDX-License-Identifier: Apache-2.0
//
// The table of decode and MTP times calls behind calls of the same kind, and there a dependent
// launch gains most: the kernel in front triggers when it begins. An engine has other kernels in
// front, so here a graph is neighbour, call, neighbour, call, .. and a time is that of such a pair
// less that of the neighbour alone in a graph of its own. It can be less than the call takes by
// itself: the start of the call lies beside the neighbour.
#include "tools/bench_gpu/neighbours.hpp"

#include <cstdio>

#include "tools/bench_gpu/neighbour.hpp"
#include "tools/bench_gpu/timing.hpp"
#include "tools/bench_gpu/workload.hpp"

namespace goldenrule::bench {
namespace {

constexpr double kNeighbourUs = 3;
constexpr std::uint32_t kWaits = GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH;
// The kernel in front of a call is the neighbour, which writes nothing.
constexpr std::uint32_t kTakesEarly = kWaits | GOLDENRULE_GPU_FLAG_STATE_READY;

struct Neighbour {
  Trigger trigger;
  const char* name;
};
constexpr Neighbour kNeighbours[] = {
    {Trigger::kNever, "never"}, {Trigger::kLate, "late"}, {Trigger::kAtOnce, "at once"}};

std::vector<Row> rows() {
  std::vector<Row> rows;
  for (const std::int64_t B : {1, 4, 8, 16, 64}) {
    rows.push_back({.B = B});
    rows.push_back({.kv = true, .B = B});
    rows.push_back({.bf16 = true, .B = B});
    rows.push_back({.kda = true, .bf16 = true, .B = B, .H = 32});
  }
  for (const std::int64_t B : {1, 8, 64}) rows.push_back({.B = B, .T = 8, .update = false});
  return rows;
}

void print_behind_neighbours(const Options& options, cudaStream_t stream,
                             const cudaDeviceProp& device) {
  int kilohertz = 0;
  gpu::check_cuda(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0), "clock rate");
  const auto cycles = static_cast<long long>(kNeighbourUs * 1e-3 * kilohertz);
  const auto neighbour = [&](Trigger trigger, cudaStream_t s) {
    launch_neighbour(trigger, device.multiProcessorCount, cycles, s);
  };
  const double alone = time_graph(stream, 1, options.replays, [&](int, cudaStream_t s) {
                         neighbour(Trigger::kNever, s);
                       }).median_us;
  std::printf(
      "us of a call behind a neighbour of %.2f us (pair less neighbour), plain / with the flag "
      "dependent launch /\nand with that of ready states; the neighbour lets the call begin never, "
      "late or at once\n%-34s",
      alone, "call");
  for (const auto& [trigger, name] : kNeighbours) std::printf(" %26s", name);
  std::printf("\n");
  for (const Row& row : rows()) {
    if (!options.selects(row.name())) continue;
    const Workload workload(row, stream);
    std::printf("%-34s", row.name().c_str());
    for (const Neighbour& n : kNeighbours) {
      const auto us = [&](std::uint32_t flags) {
        return time_graph(stream, workload.sets(), options.replays,
                          [&](int i, cudaStream_t s) {
                            neighbour(n.trigger, s);
                            workload.launch(i, s, flags);
                          })
                   .median_us -
               alone;
      };
      std::printf(" %8.2f/%8.2f", us(0), us(kWaits));
      if (row.T == 1) {
        std::printf("/%8.2f", us(kTakesEarly));
      } else {
        std::printf(" %8s", "");
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

/// MTP without states and, behind it, the same tokens again up to the accepted one. The
/// goal is that of fp32 GDN.
void print_pairs(const Options& options, cudaStream_t stream) {
  std::printf("\nmtp and commit, half of the tokens accepted: us of the pair\n");
  for (const bool kda : {false, true}) {
    for (const bool bf16 : {false, true}) {
      for (const std::int64_t B : {8, 64}) {
        const Row row{
            .kda = kda, .bf16 = bf16, .B = B, .T = 8, .H = kda ? 32 : 16, .update = false};
        const std::string name = row.name() + " and commit";
        if (!options.selects(name)) continue;
        const Workload workload(row, stream);
        const Timing plain =
            time_graph(stream, workload.sets(), options.replays, [&](int i, cudaStream_t s) {
              workload.launch(i, s, 0);
              workload.launch_commit(i, s, 0);
            });
        std::printf("%-44s %8.2f (%7.2f-%7.2f)", name.c_str(), plain.median_us, plain.low_us,
                    plain.high_us);
        if (!kda && !bf16 && B == 64) {
          constexpr double kGoal = 125;
          std::printf("  goal %.0f %s", kGoal, plain.median_us <= kGoal ? "met" : "MISSED");
        }
        std::printf("\n");
      }
    }
  }
}

}  // namespace

void run_neighbours(const Options& options, cudaStream_t stream, const cudaDeviceProp& device) {
  print_behind_neighbours(options, stream, device);
  print_pairs(options, stream);
}

}  // namespace goldenrule::bench
