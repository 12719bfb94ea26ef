// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/prefill/sm90/gdn.cuh"

#include <algorithm>

#include "gpu/delta/prefill/sm90/variant.cuh"
#include "gpu/launch/tuning.hpp"

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
  kMaps,
  kScanHalfOfSegments,
  kScanWholeOfSegments,
  kPlaces
};

using Half = ScanConfig<1, Walk::kSequences>;
using Whole = ScanConfig<2, Walk::kSequences>;
using HalfWithCheckpoints = ScanConfig<1, Walk::kCheckpoints>;
using HalfOfSegments = ScanConfig<1, Walk::kSegments>;
using WholeOfSegments = ScanConfig<2, Walk::kSegments>;
using Maps = ScanConfig<2, Walk::kMaps>;

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
    case kScanWithCheckpoints:
      return scan<HalfWithCheckpoints>("prefill_gdn_scan_v64_checkpoints");
    case kMaps:
      return scan<Maps>("prefill_gdn_maps");
    case kScanHalfOfSegments:
      return scan<HalfOfSegments>("prefill_gdn_scan_v64_segments");
    default:
      return scan<WholeOfSegments>("prefill_gdn_scan_v128_segments");
  }
}

bool serves(const Params& p, const Device& device) {
  return p.channel_gate == 0 && sm90::serves(p, device);
}

/// Whether sequences are sorted by length, which takes N^2 / 32 steps.
bool is_sorted(std::int64_t N) { return N > 1 && N <= 1024; }

/// Bytes before the order of the sequences, and before what segments need.
std::size_t order_offset(std::int64_t records) {
  return sizeof(Tickets) + static_cast<std::size_t>(records) * kRecordBytes;
}
std::size_t segments_offset(std::int64_t records, std::int64_t N) {
  return order_offset(records) +
         (is_sorted(N) ? sizeof(std::int32_t) * static_cast<std::size_t>(N) : 0);
}

std::size_t workspace(const Sizes& s) {
  if (s.kda || !sm90::may_serve(s)) return 0;
  const std::int64_t records = record_count(s.total, s.N, s.checkpoint_rows) * s.HV;
  const std::size_t segments = sm90::segments_bytes(s);
  return segments_offset(records, s.N) + (segments > 0 ? 255 + segments : 0);
}

/// 128 values per block where there are heads enough for every multiprocessor, else 64: the bits of
/// a value are the same.
bool takes_whole_heads(const Params& p, const Device& device) {
  return p.checkpoints.data == nullptr && p.V % Whole::kBlockValues == 0 &&
         sm90::working_halves(p) > device.multiprocessors;
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
/// else all, and the scan begins where they end, with the records that they made last. What is
/// chosen changes no bit.
int preparing_blocks(GdnCall& call, int multiprocessors) {
  const Params& p = call.params;
  const int free = p.most_segments > 0 ? 0 : multiprocessors - p.items;
  const double work = kH200.gdn.preparation * p.HV * call.records;
  const double scan = kH200.gdn.scan * call.records / p.N;
  const bool beside = free > 0 && work / free < work / multiprocessors + scan;
  call.units.first = beside || p.most_segments > 0 ? 0 : call.units.count / 2;
  return std::min(beside ? free : multiprocessors, call.units.count);
}

Problem launch(Launch& call) {
  GdnCall gdn{};
  gdn.params = call.params;
  Params& p = gdn.params;
  const bool with_checkpoints = p.checkpoints.data != nullptr;
  gdn.records =
      static_cast<int>(record_count(p.total, p.N, with_checkpoints ? p.checkpoint_rows : 0));
  gdn.units = units_of(p, gdn.records);
  const std::int64_t records = std::int64_t{gdn.records} * p.HV;
  sm90::place_segments(p, segments_offset(records, p.N));
  const bool whole = takes_whole_heads(p, call.device);
  sm90::set_items(p, whole ? Whole::kBlockValues : Half::kBlockValues);
  const bool cuts = p.most_segments > 0;
  Problem problem;
  if (p.total > 0) {
    problem = make_tile_maps(p, kChunk, gdn.maps);
    if (is_sorted(p.N)) {
      p.order = reinterpret_cast<const std::int32_t*>(static_cast<const char*>(p.workspace) +
                                                      order_offset(records));
    }
    const std::int64_t warps = records + (is_sorted(p.N) || cuts ? p.N : 0);
    if (problem.ok()) {
      problem = call.kernel(with_checkpoints ? kGatesWithCheckpoints : kGates,
                            (warps + kGateWarps - 1) / kGateWarps, &gdn, call.dependent);
    }
    const int preparing = preparing_blocks(gdn, call.device.multiprocessors);
    if (problem.ok()) problem = call.kernel(kPrepare, preparing, &gdn, true);
    if (problem.ok() && cuts) {
      GdnCall maps = gdn;
      sm90::set_map_items(maps.params);
      problem =
          call.kernel(kMaps, std::min(maps.params.items, call.device.multiprocessors), &maps, true);
    }
  }
  if (!problem.ok()) return problem;
  const int items = std::min(p.items, call.device.multiprocessors);
  const int walk = with_checkpoints ? kScanWithCheckpoints
                   : cuts           ? (whole ? kScanWholeOfSegments : kScanHalfOfSegments)
                   : whole          ? kScanWhole
                                    : kScanHalf;
  return call.kernel(walk, items, &gdn, p.total > 0);
}

}  // namespace

const Variant kGdnChunk64 = {
    .name = "gdn_chunk64",
    .contracts = {.f32_state = "chunk64_bf16_direct",
                  .bf16_state = "chunk64_bf16_direct_bf16_state"},
    .contracts_of_segments = {.f32_state = "chunk64_bf16_direct_segments",
                              .bf16_state = "chunk64_bf16_direct_bf16_state_segments"},
    .serves = serves,
    .may_cut = sm90::may_cut,
    .workspace = workspace,
    .kernels = kPlaces,
    .kernel = kernel,
    .launch = launch};

}  // namespace goldenrule::gpu::prefill
