// SPDX-License-Identifier: Apache-2.0
#include "gpu/prefill/gdn.cuh"

#include <algorithm>

#include "gpu/prefill/variants.hpp"

namespace goldenrule::gpu::prefill {
namespace {

/// The kernels of the variant, in the order of kernel().
enum Place : int {
  kGates,
  kPrepare,
  kScanHalf,
  kScanWhole,
  kGatesWithCheckpoints,
  kPrepareWithCheckpoints,
  kScanWithCheckpoints,
  kPlaces
};

using Half = ScanConfig<1, false>;
using Whole = ScanConfig<2, false>;
using HalfWith = ScanConfig<1, true>;

bool runs_on(const Device& device) { return device.capability == 90; }

template <class Function>
Kernel described(Function* function, int threads, std::size_t shared_bytes, const char* name) {
  return {.function = reinterpret_cast<const void*>(function),
          .threads = threads,
          .shared_bytes = static_cast<int>(shared_bytes),
          .name = name,
          .runs_on = runs_on};
}

Kernel kernel(int i) {
  constexpr int kGateThreads = 32 * kGateWarps;
  constexpr std::size_t kShared = sizeof(PreparationStorage);
  switch (i) {
    case kGates:
      return described(prefill_gdn_gates<false>, kGateThreads, 0, "prefill_gdn_gates");
    case kPrepare:
      return described(prefill_gdn_prepare<false>, 128, kShared, "prefill_gdn_prepare");
    case kScanHalf:
      return described(prefill_gdn_scan<Half>, Half::kThreads, sizeof(ScanStorage<Half>),
                       "prefill_gdn_scan_v64");
    case kScanWhole:
      return described(prefill_gdn_scan<Whole>, Whole::kThreads, sizeof(ScanStorage<Whole>),
                       "prefill_gdn_scan_v128");
    case kGatesWithCheckpoints:
      return described(prefill_gdn_gates<true>, kGateThreads, 0, "prefill_gdn_gates_checkpoints");
    case kPrepareWithCheckpoints:
      return described(prefill_gdn_prepare<true>, 128, kShared, "prefill_gdn_prepare_checkpoints");
    default:
      return described(prefill_gdn_scan<HalfWith>, HalfWith::kThreads,
                       sizeof(ScanStorage<HalfWith>), "prefill_gdn_scan_v64_checkpoints");
  }
}

/// Everything in bf16, in rows that the copy engine can address.
bool serves(const Params& p, const Device& device) {
  const bool tiles = is_tileable(p.q, p.q_unit) && is_tileable(p.k, p.k_unit) &&
                     is_tileable(p.v, p.v_unit) && is_tileable(p.o, p.o_unit);
  const bool bf16 =
      p.qk_type == Element::kBF16 && p.v_type == Element::kBF16 && p.o_type == Element::kBF16;
  return runs_on(device) && p.channel_gate == 0 && p.precise == 0 && p.K == kHeadKeys &&
         p.V % kTileColumns == 0 && tiles && bf16;
}

std::size_t workspace(const Sizes& s) {
  if (s.kda || s.precise || s.K != kHeadKeys || s.V % kTileColumns != 0 || s.N == 0) return 0;
  return static_cast<std::size_t>(record_count(s.total, s.N, s.checkpoint_rows) * s.HV) *
         kRecordBytes;
}

/// 128 values per block where there are heads enough for every multiprocessor, else 64: the bits of
/// a value are the same.
bool takes_whole_heads(const Params& p, const Device& device) {
  const std::int64_t halves = std::int64_t{p.N} * p.HV * (p.V / kTileColumns);
  return p.checkpoints.data == nullptr && p.V % Whole::kBlockValues == 0 &&
         halves > device.multiprocessors;
}

Problem launch(Launch& call) {
  GdnCall gdn{};
  gdn.params = call.params;
  Params& p = gdn.params;
  const bool with_checkpoints = p.checkpoints.data != nullptr;
  const bool whole = takes_whole_heads(p, call.device);
  p.tiles = p.V / (whole ? Whole::kBlockValues : Half::kBlockValues);
  p.by_tiles = Divisor::of(p.tiles);
  p.items = p.N * p.HV * p.tiles;
  gdn.records =
      static_cast<int>(record_count(p.total, p.N, with_checkpoints ? p.checkpoint_rows : 0));
  bool dependent = call.dependent;
  Problem problem;
  if (p.total > 0) {
    problem = make_tile_maps(p, kChunk, gdn.maps);
    const std::int64_t blocks = std::int64_t{gdn.records} * p.HV;
    if (problem.ok()) {
      problem = call.kernel(with_checkpoints ? kGatesWithCheckpoints : kGates,
                            (blocks + kGateWarps - 1) / kGateWarps, &gdn, dependent);
    }
    if (problem.ok()) {
      problem =
          call.kernel(with_checkpoints ? kPrepareWithCheckpoints : kPrepare, blocks, &gdn, true);
    }
    dependent = true;
  }
  if (!problem.ok()) return problem;
  const int items = std::min(p.items, call.device.multiprocessors);
  return call.kernel(with_checkpoints ? kScanWithCheckpoints
                     : whole          ? kScanWhole
                                      : kScanHalf,
                     items, &gdn, dependent);
}

}  // namespace

const Variant kGdnChunk64 = {.name = "gdn_chunk64",
                             .contract = "chunk64_bf16_direct",
                             .bf16_state_contract = "chunk64_bf16_direct_bf16_state",
                             .serves = serves,
                             .workspace = workspace,
                             .kernels = kPlaces,
                             .kernel = kernel,
                             .launch = launch};

}  // namespace goldenrule::gpu::prefill
