// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/prefill/sm90/kda.cuh"

#include <algorithm>
#include <limits>

#include "gpu/delta/prefill/sm90/variant.cuh"
#include "gpu/launch/tuning.hpp"

namespace goldenrule::gpu::prefill {
namespace {

/// The kernels of the variant, in the order of kernel().
enum Place : int {
  kPlacesOfRecords,
  kPrepareUnbounded,
  kPrepareBounded,
  kScanHalf,
  kScanWhole,
  kPlacesWithCheckpoints,
  kScanWithCheckpoints,
  kMaps,
  kScanHalfOfSegments,
  kScanWholeOfSegments,
  kPlaces
};

using Half = KdaScanConfig<1, Walk::kSequences>;
using Whole = KdaScanConfig<2, Walk::kSequences>;
using HalfWithCheckpoints = KdaScanConfig<1, Walk::kCheckpoints>;
using HalfOfSegments = KdaScanConfig<1, Walk::kSegments>;
using WholeOfSegments = KdaScanConfig<2, Walk::kSegments>;
using Maps = KdaScanConfig<2, Walk::kMaps>;

using sm90::described;

template <class C>
Kernel scan(const char* name) {
  return described(prefill_kda_scan<C>, C::kThreads, sizeof(ScanStorage<C>), name);
}
template <bool kBounded>
Kernel preparation(const char* name) {
  return described(prefill_kda_prepare<kBounded>, kKdaPreparationThreads<kBounded>,
                   kKdaPreparationBytes<kBounded>, name);
}

Kernel kernel(int i) {
  switch (i) {
    case kPlacesOfRecords:
      return described(prefill_kda_places<false>, kPlacesThreads, 0, "prefill_kda_places");
    case kPrepareUnbounded:
      return preparation<false>("prefill_kda_prepare_unbounded");
    case kPrepareBounded:
      return preparation<true>("prefill_kda_prepare_bounded");
    case kScanHalf:
      return scan<Half>("prefill_kda_scan_v64");
    case kScanWhole:
      return scan<Whole>("prefill_kda_scan_v128");
    case kPlacesWithCheckpoints:
      return described(prefill_kda_places<true>, kPlacesThreads, 0,
                       "prefill_kda_places_checkpoints");
    case kScanWithCheckpoints:
      return scan<HalfWithCheckpoints>("prefill_kda_scan_v64_checkpoints");
    case kMaps:
      return scan<Maps>("prefill_kda_maps");
    case kScanHalfOfSegments:
      return scan<HalfOfSegments>("prefill_kda_scan_v64_segments");
    default:
      return scan<WholeOfSegments>("prefill_kda_scan_v128_segments");
  }
}

bool serves(const Params& p, const Device& device) {
  return p.channel_gate != 0 && sm90::serves(p, device);
}

std::size_t segments_offset(std::int64_t records) {
  return sizeof(Tickets) + static_cast<std::size_t>(records) * kKdaRecordBytes;
}

std::size_t workspace(const Sizes& s) {
  if (!s.kda || !sm90::may_serve(s)) return 0;
  const std::int64_t records = record_count<kKdaChunk>(s.total, s.N, s.checkpoint_rows) * s.HV;
  const std::size_t segments = sm90::segments_bytes(s);
  return segments_offset(records) + (segments > 0 ? 255 + segments : 0);
}

/// What kda_anchors.cuh asks for: no token decays by more than e^-5, and |k| <= 1 when it is
/// normalized.
bool is_bounded(const Params& p) {
  return p.gate_kind == GOLDENRULE_GPU_GATE_BOUNDED && p.lower_bound >= kLeastAnchoredBound &&
         p.lower_bound <= 0.f && p.norm_kind != GOLDENRULE_GPU_NORM_NONE;
}

/// Who does what at a time; it changes no bit.
struct Shares {
  bool whole = false;   ///< 128 values per block of the scan, else 64
  int scanning = 1;     ///< blocks of the scan
  int staying = 1;      ///< multiprocessors that prepare while it runs
  double together = 1;  ///< part of the records that all of them prepare before
};

/// The shares that take the least time. Either all multiprocessors prepare, then scan; or the scan
/// has some for itself as soon as the others can prepare the rest while it runs.
Shares shares_of(const Params& p, std::int64_t records, bool bounded, int multiprocessors) {
  if (p.most_segments > 0) {  // maps stand between preparation and scan
    return {.whole = sm90::working_halves(p) > multiprocessors, .staying = multiprocessors};
  }
  struct Scan {
    bool whole;
    double cycles;  ///< of a chunk
  };
  constexpr Tuning::Kda kCycles = kH200.kda;
  constexpr Scan kScans[] = {{false, kCycles.scan_half}, {true, kCycles.scan_whole}};
  const double preparation = (bounded      ? kCycles.preparation_of_bounded
                              : may_sum(p) ? kCycles.preparation_of_sums
                                           : kCycles.preparation_by_levels) *
                             static_cast<double>(records) * p.HV;
  const double chunks = static_cast<double>(records) / p.N;
  Shares best;
  double least = std::numeric_limits<double>::infinity();
  for (const Scan& scan : kScans) {
    const int values = scan.whole ? Whole::kBlockValues : Half::kBlockValues;
    if (scan.whole && (p.checkpoints.data != nullptr || p.V % values != 0)) continue;
    const int items = p.N * p.HV * (p.V / values);
    const auto scan_cycles = [&](int blocks) {
      return (items + blocks - 1) / blocks * chunks * scan.cycles;
    };
    const auto consider = [&](const Shares& shares, double cycles) {
      if (cycles >= least) return;
      least = cycles;
      best = shares;
    };
    const int all = std::min(items, multiprocessors);
    consider({scan.whole, all, multiprocessors, 1},
             preparation / multiprocessors + scan_cycles(all));
    const int sequence = items / p.N;  // whole sequences: their records become ready together
    for (int blocks = sequence; blocks <= std::min(items, multiprocessors - 1);
         blocks += sequence) {
      const int staying = multiprocessors - blocks;
      const double beside = scan_cycles(blocks);
      const double before = std::max(preparation - beside * staying, 0.);
      consider({scan.whole, blocks, staying, before / preparation},
               before / multiprocessors + std::max(beside, (preparation - before) / staying));
    }
  }
  return best;
}

Problem launch(Launch& call) {
  KdaCall kda{};
  kda.params = call.params;
  Params& p = kda.params;
  const bool with_checkpoints = p.checkpoints.data != nullptr;
  const bool bounded = is_bounded(p);
  const std::int64_t records =
      record_count<kKdaChunk>(p.total, p.N, with_checkpoints ? p.checkpoint_rows : 0);
  kda.records = static_cast<int>(records * p.HV);
  sm90::place_segments(p, segments_offset(records * p.HV));
  const bool cuts = p.most_segments > 0;
  const Shares shares = shares_of(p, records, bounded, call.device.multiprocessors);
  sm90::set_items(p, shares.whole ? Whole::kBlockValues : Half::kBlockValues);
  kda.first = static_cast<int>(shares.together * kda.records);
  const int preparing = std::min(call.device.multiprocessors, kda.records);
  kda.staying = std::min(shares.staying, preparing);
  Problem problem;
  if (p.total > 0) {
    problem = make_tile_maps(p, kKdaChunk, kda.maps);
    kda.record_blocks = (kda.records + kPlacesThreads - 1) / kPlacesThreads;
    constexpr int kWarps = kPlacesThreads / 32;
    const int list_blocks = cuts ? (p.N + kWarps - 1) / kWarps : 0;
    if (problem.ok()) {
      problem = call.kernel(with_checkpoints ? kPlacesWithCheckpoints : kPlacesOfRecords,
                            kda.record_blocks + list_blocks, &kda, call.dependent);
    }
    if (problem.ok()) {
      problem = call.kernel(bounded ? kPrepareBounded : kPrepareUnbounded, preparing, &kda, true);
    }
    if (problem.ok() && cuts) {
      KdaCall maps = kda;
      sm90::set_map_items(maps.params);
      problem =
          call.kernel(kMaps, std::min(maps.params.items, call.device.multiprocessors), &maps, true);
    }
  }
  if (!problem.ok()) return problem;
  const int scanning = cuts ? std::min(p.items, call.device.multiprocessors) : shares.scanning;
  const int walk = with_checkpoints ? kScanWithCheckpoints
                   : cuts           ? (shares.whole ? kScanWholeOfSegments : kScanHalfOfSegments)
                   : shares.whole   ? kScanWhole
                                    : kScanHalf;
  return call.kernel(walk, scanning, &kda, p.total > 0);
}

}  // namespace

const Variant kKdaChunk32 = {
    .name = "kda_chunk32",
    .contracts = {.f32_state = "chunk32_bf16_direct",
                  .bf16_state = "chunk32_bf16_direct_bf16_state"},
    .contracts_of_segments = {.f32_state = "chunk32_bf16_direct_segments",
                              .bf16_state = "chunk32_bf16_direct_bf16_state_segments"},
    .serves = serves,
    .may_cut = sm90::may_cut,
    .workspace = workspace,
    .kernels = kPlaces,
    .kernel = kernel,
    .launch = launch};

}  // namespace goldenrule::gpu::prefill
