// SPDX-License-Identifier: Apache-2.0
//
// goldenrule_bench: the decode and MTP kernels, with `prefill` those of prefill (prefill.hpp), with
// `neighbours` calls behind other kernels (neighbours.hpp), beside the streaming ceiling of the
// same device in the same run. Floor = bytes that must move / ceiling at 2 GiB; a goal or peer of
// another run is printed for orientation (absolute times drift between machines).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "tools/bench_gpu/attention.hpp"
#include "tools/bench_gpu/ceilings.hpp"
#include "tools/bench_gpu/neighbours.hpp"
#include "tools/bench_gpu/options.hpp"
#include "tools/bench_gpu/prefill.hpp"
#include "tools/bench_gpu/run_facts.hpp"
#include "tools/bench_gpu/timing.hpp"
#include "tools/bench_gpu/workload.hpp"

namespace goldenrule::bench {
namespace {

// With the update of the state, every format.
void add_updates(std::vector<Row>& rows) {
  for (const bool kda : {false, true}) {
    for (const bool kv : {false, true}) {
      for (const bool bf16 : {false, true}) {
        rows.push_back({.kda = kda,
                        .kv = kv,
                        .bf16 = bf16,
                        .B = 64,
                        .T = 8,
                        .H = kda ? 32 : 16,
                        .goal_us = !kda   ? 0.
                                   : bf16 ? 60.
                                          : 95.});
      }
    }
  }
  // GDN with bf16 states, of which every one is kept.
  struct Kept {
    std::int64_t B, T;
  };
  for (const Kept& k : {Kept{1, 8}, Kept{8, 8}, Kept{64, 2}, Kept{64, 4}, Kept{64, 8}}) {
    rows.push_back({.bf16 = true, .B = k.B, .T = k.T, .intermediates = true, .update = false});
  }
  // KDA: other batches and tokens, and every state kept.
  for (const bool bf16 : {false, true}) {
    for (const std::int64_t B : {1, 8}) {
      rows.push_back({.kda = true, .bf16 = bf16, .B = B, .T = 8, .H = 32});
    }
    for (const std::int64_t T : {2, 4}) {
      rows.push_back({.kda = true, .bf16 = bf16, .B = 64, .T = T, .H = 32});
    }
    rows.push_back({.kda = true, .bf16 = bf16, .B = 64, .T = 8, .H = 32, .update = false});
    rows.push_back({.kda = true,
                    .bf16 = bf16,
                    .B = 64,
                    .T = 8,
                    .H = 32,
                    .intermediates = true,
                    .update = false});
  }
}

// An MTP call by replay, and the commit that goes with it: every row flushes as often as the
// ring is full, about every fourth step where four of eight tokens are accepted and 16 wait. The
// last one is a commit alone.
void add_replay(std::vector<Row>& rows) {
  struct Replay {
    std::int64_t B, T, pending, flush_every;
    double goals[2][2] = {};  // of GDN and KDA with states in f32 and bf16
  };
  for (const bool kda : {false, true}) {
    for (const Replay& r :
         {Replay{8, 8, 8, 4}, Replay{64, 8, 0, 0}, Replay{64, 8, 8, 0},
          Replay{64, 8, 8, 4, {{70, 0}, {110, 80}}}, Replay{64, 8, 16, 4}, Replay{64, 8, 16, 1},
          Replay{64, 4, 8, 4}, Replay{64, 1, 8, 8}, Replay{64, 0, 16, 1}}) {
      for (const bool bf16 : {false, true}) {
        rows.push_back({.kda = kda,
                        .bf16 = bf16,
                        .B = r.B,
                        .T = r.T,
                        .H = kda ? 32 : 16,
                        .pending = r.pending,
                        .flush_every = r.flush_every,
                        .goal_us = r.goals[kda][bf16]});
      }
    }
  }
}

// The rows of the measured peers, K = V = 128; goal_us and peer_us as measured or set there.
std::vector<Row> table() {
  std::vector<Row> rows;
  struct Decode {
    std::int64_t B;
    double gdn_vk, gdn_kv, gdn_goal, gdn_dep, kda_vk, kda_kv, kda_goal;
  };
  for (const Decode& d :
       {Decode{1, 5.84, 4.58, 3.0, 2.3, 5.36, 6.06, 3.2},
        Decode{4, 8.31, 7.65, 5.6, 5.2, 8.11, 8.71, 5.8}, Decode{8, 0, 0, 0, 0, 0, 0, 0},
        Decode{16, 24.5, 22.3, 18.5, 17.8, 26.8, 27.2, 19.0},
        Decode{64, 81.7, 81.7, 70.0, 0, 96.5, 92.9, 71.0},
        Decode{256, 304.0, 314.0, 275.0, 0, 388.0, 420.0, 280.0}}) {
    for (const bool bf16 : {false, true}) {
      for (const bool kv : {false, true}) {
        const double share = bf16 ? 0.0 : 1.0;
        rows.push_back({.kv = kv,
                        .bf16 = bf16,
                        .B = d.B,
                        .peer_us = share * (kv ? d.gdn_kv : d.gdn_vk),
                        .goal_us = bf16 && d.B >= 64 ? 0.55 * d.gdn_goal : share * d.gdn_goal,
                        .goal_dep_us = share * d.gdn_dep});
        rows.push_back({.kda = true,
                        .kv = kv,
                        .bf16 = bf16,
                        .B = d.B,
                        .H = 32,
                        .peer_us = share * (kv ? d.kda_kv : d.kda_vk),
                        .goal_us = bf16 && d.B >= 64 ? 0.55 * d.kda_goal : share * d.kda_goal,
                        .goal_dep_us = bf16 && !kv && d.B == 1 ? 2.4 : 0});
      }
    }
  }
  for (const std::int64_t B : {8, 64, 256}) rows.push_back({.B = B, .random_slots = true});
  struct Mtp {
    std::int64_t B, T;
    double without, with, goal_without, goal_with;
  };
  for (const Mtp& m :
       {Mtp{1, 2, 6.5, 6.4, 0, 0}, Mtp{1, 4, 9.8, 12.1, 0, 0}, Mtp{1, 8, 16.2, 21.8, 6, 10},
        Mtp{8, 2, 14.6, 22.4, 0, 0}, Mtp{8, 4, 22.6, 34.2, 0, 0}, Mtp{8, 8, 38.1, 59.7, 8.6, 46},
        Mtp{64, 2, 67.0, 143.8, 0, 105}, Mtp{64, 4, 116.7, 210.6, 0, 0},
        Mtp{64, 8, 215.6, 386.4, 70, 295}}) {
    for (const bool states : {false, true}) {
      for (const bool kv : {false, true}) {
        if (kv && m.T != 8) continue;
        rows.push_back({.kv = kv,
                        .B = m.B,
                        .T = m.T,
                        .intermediates = states,
                        .update = false,
                        .peer_us = states ? m.with : m.without,
                        .goal_us = states ? m.goal_with : m.goal_without});
      }
    }
  }
  add_updates(rows);
  add_replay(rows);
  return rows;
}

constexpr const char* kLegend =
    "Two numbers a call: bytes that must move over the ceiling at 2 GiB (a read that no write\n"
    "balances at the rate of reading, a write that no read balances at that of writing), and fp32 "
    "operations over their rate. The larger is the "
    "floor;\n"
    "gap = us / floor. dep.: each launch waits for the one in front and "
    "lets the one behind begin at once (both flags); behind\n"
    "other kernels it gains less (`neighbours`), so rate, gap and peer are those of plain "
    "launches. "
    "Of the in-place ceiling:\n"
    "TB/s over that of 2 GiB. early: dep. with states that are vouched for (FLAG_STATE_READY).\n"
    "goal, peer: of another run, for orientation.\n\n";

void print_goal(double us, double goal) {
  if (goal > 0) {
    std::printf(" %8.2f %s", goal, us <= goal ? "met   " : "MISSED");
  } else {
    std::printf(" %8s %6s", "-", "");
  }
}

void print_row(const Row& row, cudaStream_t stream, int replays, const Ceilings& ceilings) {
  const Workload workload(row, stream);
  constexpr std::uint32_t kChained =
      GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH | GOLDENRULE_GPU_FLAG_TRIGGER_EARLY;
  const auto time = [&](std::uint32_t flags) {
    return time_graph(stream, workload.sets(), replays,
                      [&](int i, cudaStream_t s) { workload.launch(i, s, flags); });
  };
  const Timing plain = time(0), dependent = time(kChained);
  const std::int64_t bytes = row.bytes_read() + row.bytes_written();
  const double bytes_us = ceilings.bytes_us(row.bytes_read(), row.bytes_written());
  const double operations_us = static_cast<double>(row.operations()) / ceilings.fma * 1e-6;
  const double us = plain.median_us;
  const double rate = terabytes(bytes, us);
  std::printf("%-34s %8.2f (%7.2f-%7.2f) %8.2f (%7.2f-%7.2f) %6.2f %6.3f %8.2f %8.2f %6.2f",
              row.name().c_str(), plain.median_us, plain.low_us, plain.high_us, dependent.median_us,
              dependent.low_us, dependent.high_us, rate, rate / ceilings.in_place, bytes_us,
              operations_us, us / std::max(bytes_us, operations_us));
  print_goal(us, row.goal_us);
  print_goal(dependent.median_us, row.goal_dep_us);
  if (row.peer_us > 0) std::printf(" %8.2f %5.2fx", row.peer_us, row.peer_us / us);
  if (row.T == 1 && row.B <= 4) {
    std::printf("  early %.2f", time(kChained | GOLDENRULE_GPU_FLAG_STATE_READY).median_us);
  }
  std::printf("\n");
}

int run(const Options& options) {
  if (gpu::device_count() == 0) {
    std::printf("SKIPPED: no CUDA device\n");
    return 0;
  }
  cudaDeviceProp device{};
  gpu::check_cuda(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::printf("%s, %d multiprocessors, %d MiB L2\n", device.name, device.multiProcessorCount,
              device.l2CacheSize >> 20);
  print_run_facts();
  const gpu::Stream stream = gpu::make_stream();
  char message[256];
  if (goldenrule_gpu_initialize(message, sizeof message) != GOLDENRULE_GPU_OK) {
    throw Error(ErrorKind::kArgument, "goldenrule_gpu_initialize", "ok", message);
  }
  if (options.attention) {
    run_attention(options, stream.get(), device.multiProcessorCount);
    return 0;
  }
  if (options.neighbours) {
    run_neighbours(options, stream.get(), device);
    print_clocks();
    return 0;
  }
  if (options.prefill) {
    run_prefill(options, stream.get(), device.multiProcessorCount);
    return 0;
  }
  if (options.profile) {
    for (const Row& row : table()) {
      if (!options.selects(row.name())) continue;
      const Workload workload(row, stream.get());
      workload.launch(0, stream.get(), 0);
      gpu::check_cuda(cudaStreamSynchronize(stream.get()), "profiled launch");
    }
    return 0;
  }
  const Ceilings ceilings =
      print_ceilings(stream.get(), options.replays, device.multiProcessorCount);
  std::printf("%s%-34s %8s %17s %8s %17s %6s %6s %8s %8s %6s %8s %6s %8s %6s %8s\n", kLegend,
              "call", "us", "(10%-90%)", "dep. us", "(10%-90%)", "TB/s", "of c.", "bytes us",
              "ops us", "gap", "goal us", "", "dep.", "", "peer us");
  for (const Row& row : table()) {
    if (options.selects(row.name())) print_row(row, stream.get(), options.replays, ceilings);
  }
  print_clocks();
  return 0;
}

}  // namespace
}  // namespace goldenrule::bench

int main(int argc, char** argv) {
  goldenrule::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    if (i == 1 && std::strcmp(argv[i], "prefill") == 0) {
      options.prefill = true;
    } else if (i == 1 && std::strcmp(argv[i], "attention") == 0) {
      options.attention = true;
    } else if (i == 1 && std::strcmp(argv[i], "neighbours") == 0) {
      options.neighbours = true;
    } else if (std::strcmp(argv[i], "--filter") == 0 && i + 1 < argc) {
      options.filters.emplace_back(argv[++i]);
    } else if (std::strcmp(argv[i], "--replays") == 0 && i + 1 < argc) {
      options.replays = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--profile") == 0) {
      options.profile = true;
    } else {
      std::fprintf(stderr,
                   "usage: goldenrule_bench [prefill | attention | neighbours] [--filter TEXT]... "
                   "[--replays N] [--profile]\n");
      return 2;
    }
  }
  try {
    return goldenrule::bench::run(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "goldenrule_bench: %s\n", e.what());
    return 2;
  }
}
