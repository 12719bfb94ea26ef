// SPDX-License-Identifier: Apache-2.0
#include "gpu/prefill/kda.cuh"

#include <algorithm>

#include "gpu/prefill/variants.hpp"

namespace goldenrule::gpu::prefill {
namespace {

/// The kernels of the variant, in the order of kernel().
enum Place : int {
  kPrepareByLevels,
  kPrepareByAnchors,
  kScanHalf,
  kScanWhole,
  kPrepareByLevelsWithCheckpoints,
  kPrepareByAnchorsWithCheckpoints,
  kScanWithCheckpoints,
  kPlaces
};

using Half = KdaScanConfig<1, false>;
using Whole = KdaScanConfig<2, false>;
using HalfWith = KdaScanConfig<1, true>;

bool runs_on(const Device& device) { return device.capability == 90; }

template <class Function>
Kernel described(Function* function, int threads, std::size_t shared_bytes, const char* name) {
  return {.function = reinterpret_cast<const void*>(function),
          .threads = threads,
          .shared_bytes = static_cast<int>(shared_bytes),
          .name = name,
          .runs_on = runs_on};
}

template <bool kAnchored, bool kCheckpoints>
Kernel preparation(const char* name) {
  return described(prefill_kda_prepare<kAnchored, kCheckpoints>, 128,
                   kKdaPreparationBytes<kAnchored>, name);
}

Kernel kernel(int i) {
  switch (i) {
    case kPrepareByLevels:
      return preparation<false, false>("prefill_kda_prepare_levels");
    case kPrepareByAnchors:
      return preparation<true, false>("prefill_kda_prepare_anchors");
    case kPrepareByLevelsWithCheckpoints:
      return preparation<false, true>("prefill_kda_prepare_levels_checkpoints");
    case kPrepareByAnchorsWithCheckpoints:
      return preparation<true, true>("prefill_kda_prepare_anchors_checkpoints");
    case kScanHalf:
      return described(prefill_kda_scan<Half>, Half::kThreads, sizeof(ScanStorage<Half>),
                       "prefill_kda_scan_v64");
    case kScanWhole:
      return described(prefill_kda_scan<Whole>, Whole::kThreads, sizeof(ScanStorage<Whole>),
                       "prefill_kda_scan_v128");
    default:
      return described(prefill_kda_scan<HalfWith>, HalfWith::kThreads,
                       sizeof(ScanStorage<HalfWith>), "prefill_kda_scan_v64_checkpoints");
  }
}

/// Everything in bf16, in rows that the copy engine can address.
bool serves(const Params& p, const Device& device) {
  const bool tiles = is_tileable(p.q, p.q_unit) && is_tileable(p.k, p.k_unit) &&
                     is_tileable(p.v, p.v_unit) && is_tileable(p.o, p.o_unit);
  const bool bf16 =
      p.qk_type == Element::kBF16 && p.v_type == Element::kBF16 && p.o_type == Element::kBF16;
  return runs_on(device) && p.channel_gate != 0 && p.precise == 0 && p.K == kHeadKeys &&
         p.V % kTileColumns == 0 && tiles && bf16;
}

std::size_t workspace(const Sizes& s) {
  if (!s.kda || s.precise || s.K != kHeadKeys || s.V % kTileColumns != 0 || s.N == 0) return 0;
  return sizeof(Tickets) +
         static_cast<std::size_t>(record_count<kKdaChunk>(s.total, s.N, s.checkpoint_rows) * s.HV) *
             kKdaRecordBytes;
}

/// 128 values per block where there are heads enough for every multiprocessor, else 64: the bits of
/// a value are the same.
bool takes_whole_heads(const Params& p, const Device& device) {
  const std::int64_t halves = std::int64_t{p.N} * p.HV * (p.V / kTileColumns);
  return p.checkpoints.data == nullptr && p.V % Whole::kBlockValues == 0 &&
         halves > device.multiprocessors;
}

/// What kda_anchors.cuh asks for: no token decays by more than e^-5, and |k| <= 1 when it is
/// normalized.
bool is_anchored(const Params& p) {
  return p.gate_kind == GOLDENRULE_GPU_GATE_BOUNDED && p.lower_bound >= kLeastAnchoredBound &&
         p.lower_bound <= 0.f && p.norm_kind != GOLDENRULE_GPU_NORM_NONE;
}

int preparation_of(const Params& p, bool with_checkpoints) {
  if (is_anchored(p))
    return with_checkpoints ? kPrepareByAnchorsWithCheckpoints : kPrepareByAnchors;
  return with_checkpoints ? kPrepareByLevelsWithCheckpoints : kPrepareByLevels;
}

Problem launch(Launch& call) {
  KdaCall kda{};
  kda.params = call.params;
  Params& p = kda.params;
  const bool with_checkpoints = p.checkpoints.data != nullptr;
  const bool whole = takes_whole_heads(p, call.device);
  p.tiles = p.V / (whole ? Whole::kBlockValues : Half::kBlockValues);
  p.by_tiles = Divisor::of(p.tiles);
  p.items = p.N * p.HV * p.tiles;
  bool dependent = call.dependent;
  Problem problem;
  if (p.total > 0) {
    problem = make_tile_maps(p, kKdaChunk, kda.maps);
    const std::int64_t records =
        record_count<kKdaChunk>(p.total, p.N, with_checkpoints ? p.checkpoint_rows : 0);
    if (problem.ok()) {
      problem = call.kernel(preparation_of(p, with_checkpoints), records * p.HV, &kda, dependent);
    }
    dependent = true;
  }
  if (!problem.ok()) return problem;
  const int items = std::min(p.items, call.device.multiprocessors);
  return call.kernel(with_checkpoints ? kScanWithCheckpoints
                     : whole          ? kScanWhole
                                      : kScanHalf,
                     items, &kda, dependent);
}

}  // namespace

const Variant kKdaChunk32 = {.name = "kda_chunk32",
                             .contract = "chunk32_bf16_direct",
                             .bf16_state_contract = "chunk32_bf16_direct_bf16_state",
                             .serves = serves,
                             .workspace = workspace,
                             .kernels = kPlaces,
                             .kernel = kernel,
                             .launch = launch};

}  // namespace goldenrule::gpu::prefill
