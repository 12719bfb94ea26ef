// SPDX-License-Identifier: Apache-2.0
#include "gpu/prefill/gdn.cuh"

#include <algorithm>

#include "gpu/prefill/sm90_variant.cuh"

namespace goldenrule::gpu::prefill {
namespace {

/// The kernels of the variant, in the order of kernel().
enum Place : int {
  kGates,
  kPrepare,
  kScanHalf,
  kScanWhole,
  kGatesWithCheckpoints,
  kScanWithCheckpoints,
  kPlaces
};

using Half = ScanConfig<1, false>;
using Whole = ScanConfig<2, false>;
using HalfWith = ScanConfig<1, true>;

using sm90::described;

template <class C>
Kernel scan(const char* name) {
  return described(prefill_gdn_scan<C>, C::kThreads, sizeof(ScanStorage<C>), name);
}

Kernel kernel(int i) {
  constexpr int kGateThreads = 32 * kGateWarps;
  constexpr std::size_t kShared = kPreparationGroups * sizeof(PreparationStorage);
  switch (i) {
    case kGates:
      return described(prefill_gdn_gates<false>, kGateThreads, 0, "prefill_gdn_gates");
    case kPrepare:
      return described(prefill_gdn_prepare, kPreparationThreads, kShared, "prefill_gdn_prepare");
    case kScanHalf:
      return scan<Half>("prefill_gdn_scan_v64");
    case kScanWhole:
      return scan<Whole>("prefill_gdn_scan_v128");
    case kGatesWithCheckpoints:
      return described(prefill_gdn_gates<true>, kGateThreads, 0, "prefill_gdn_gates_checkpoints");
    default:
      return scan<HalfWith>("prefill_gdn_scan_v64_checkpoints");
  }
}

bool serves(const Params& p, const Device& device) {
  return p.channel_gate == 0 && sm90::serves(p, device);
}

/// Whether sequences are sorted by length, which takes N^2 / 32 steps.
bool is_sorted(std::int64_t N) { return N > 1 && N <= 1024; }

std::size_t workspace(const Sizes& s) {
  if (s.kda || !sm90::may_serve(s)) return 0;
  const std::int64_t records = record_count(s.total, s.N, s.checkpoint_rows) * s.HV;
  return sizeof(Tickets) + static_cast<std::size_t>(records) * kRecordBytes +
         (is_sorted(s.N) ? sizeof(std::int32_t) * static_cast<std::size_t>(s.N) : 0);
}

/// 128 values per block where there are heads enough for every multiprocessor, else 64: the bits of
/// a value are the same.
bool takes_whole_heads(const Params& p, const Device& device) {
  const std::int64_t halves = std::int64_t{p.N} * p.HV * (p.V / kTileColumns);
  return p.checkpoints.data == nullptr && p.V % Whole::kBlockValues == 0 &&
         halves > device.multiprocessors;
}

PreparationUnits units_of(const Params& p, int records) {
  PreparationUnits units{};
  units.group = p.HV / p.H;
  units.in_head = (units.group + kPair - 1) / kPair;
  units.in_record = p.H * units.in_head;
  units.count = records * units.in_record;
  units.per_head = Divisor::of(units.in_head);
  units.per_record = Divisor::of(units.in_record);
  return units;
}

/// How many blocks prepare. Those that the scan leaves free, if that is enough to stay ahead of it;
/// else all, and the scan begins where they end. Times per chunk in cycles of a multiprocessor
/// (H200); what is chosen changes no bit.
int preparing_blocks(const GdnCall& call, int multiprocessors) {
  constexpr double kPreparation = 1400, kScan = 1900;
  const Params& p = call.params;
  const int free = multiprocessors - p.items;
  const double work = kPreparation * p.HV * call.records;
  const double scan = kScan * call.records / p.N;
  const bool beside = free > 0 && work / free < work / multiprocessors + scan;
  return std::min(beside ? free : multiprocessors, call.units.count);
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
  gdn.units = units_of(p, gdn.records);
  Problem problem;
  if (p.total > 0) {
    problem = make_tile_maps(p, kChunk, gdn.maps);
    const std::int64_t records = std::int64_t{gdn.records} * p.HV;
    if (is_sorted(p.N)) {
      p.order = reinterpret_cast<const std::int32_t*>(static_cast<const char*>(p.workspace) +
                                                      sizeof(Tickets) + records * kRecordBytes);
    }
    const std::int64_t warps = records + (is_sorted(p.N) ? p.N : 0);
    if (problem.ok()) {
      problem = call.kernel(with_checkpoints ? kGatesWithCheckpoints : kGates,
                            (warps + kGateWarps - 1) / kGateWarps, &gdn, call.dependent);
    }
    if (problem.ok()) {
      problem =
          call.kernel(kPrepare, preparing_blocks(gdn, call.device.multiprocessors), &gdn, true);
    }
  }
  if (!problem.ok()) return problem;
  const int items = std::min(p.items, call.device.multiprocessors);
  return call.kernel(with_checkpoints ? kScanWithCheckpoints
                     : whole          ? kScanWhole
                                      : kScanHalf,
                     items, &gdn, p.total > 0);
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
