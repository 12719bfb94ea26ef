// SPDX-License-Identifier: Apache-2.0
//
// What the two variants for sm_90a ask of a call, whichever rule they serve: K = 128 and everything
// in bf16, in rows that the copy engine can address; and how they cut sequences into segments.
#pragma once

#include "gpu/delta/prefill/sm90/tile_maps.hpp"
#include "gpu/delta/prefill/tile.cuh"
#include "gpu/delta/prefill/variants.hpp"

namespace goldenrule::gpu::prefill::sm90 {

inline bool runs_on(const Device& device) { return device.capability == 90; }

template <class Function>
Kernel described(Function* function, int threads, std::size_t shared_bytes, const char* name) {
  return {.function = reinterpret_cast<const void*>(function),
          .threads = threads,
          .shared_bytes = static_cast<int>(shared_bytes),
          .name = name,
          .runs_on = runs_on};
}

inline bool serves(const Params& p, const Device& device) {
  const bool tiles = is_tileable(p.q, p.q_unit) && is_tileable(p.k, p.k_unit) &&
                     is_tileable(p.v, p.v_unit) && is_tileable(p.o, p.o_unit);
  const bool bf16 =
      p.qk_type == Element::kBF16 && p.v_type == Element::kBF16 && p.o_type == Element::kBF16;
  return runs_on(device) && p.precise == 0 && p.vector_state != 0 && p.K == kHeadKeys &&
         p.V % kTileColumns == 0 && tiles && bf16;
}

/// Whether a call of these sizes may be served, so that it needs a workspace.
inline bool may_serve(const Sizes& s) {
  return !s.precise && s.K == kHeadKeys && s.V % kTileColumns == 0 && s.N > 0;
}

/// Values of a block that finds maps.
inline constexpr int kMapValues = 2 * kTileColumns;

/// Which sequences are cut into how many segments (segments.hpp). Checkpoints end chunks, so a call
/// that asks for them cuts nothing.
inline SplitRule split_rule_of(const Sizes& s) {
  if (s.never_split || s.checkpoint_rows > 0 || s.V % kMapValues != 0) return {};
  return split_rule(s.HV * (s.V / kMapValues));
}
inline Sizes sizes_of(const Params& p) {
  return {.never_split = p.never_split != 0,
          .total = p.total,
          .N = p.N,
          .HV = p.HV,
          .V = p.V,
          .checkpoint_rows = p.checkpoint_rows};
}

inline bool may_cut(const Params& p) {
  return most_segments(split_rule_of(sizes_of(p)), p.total, p.N) > 0;
}

/// Bytes of the list of segments, and of it and what is kept of them.
inline std::size_t list_bytes(std::int64_t segments) {
  const std::size_t bytes =
      sizeof(SegmentListHead) + static_cast<std::size_t>(segments) * sizeof(SegmentPlace);
  return segments == 0 ? 0 : (bytes + 255) / 256 * 256;
}
inline std::size_t segments_bytes(const Sizes& s) {
  const std::int64_t segments = most_segments(split_rule_of(s), s.total, s.N);
  return list_bytes(segments) + static_cast<std::size_t>(segments * s.HV * segment_bytes(s.V));
}
/// Sets what a call needs to cut its sequences, from `offset` of the workspace on.
inline void place_segments(Params& p, std::size_t offset) {
  p.split = split_rule_of(sizes_of(p));
  p.most_segments = static_cast<std::int32_t>(most_segments(p.split, p.total, p.N));
  char* at = static_cast<char*>(p.workspace) + (offset + 255) / 256 * 256;
  p.segments = reinterpret_cast<SegmentListHead*>(at);
  p.maps = at + list_bytes(p.most_segments);
}

/// The kernel that finds maps takes the parameters of the scan but for its items.
inline void set_map_items(Params& p) {
  p.tiles = p.V / kMapValues + 1;
  p.by_tiles = Divisor::of(p.tiles);
  p.items = p.most_segments * p.HV * p.tiles;
}
/// The items of a scan: segments and sequences.
inline void set_items(Params& p, int block_values) {
  p.tiles = p.V / block_values;
  p.by_tiles = Divisor::of(p.tiles);
  p.items = (p.most_segments + p.N) * p.HV * p.tiles;
}
/// Halves of heads that there is work for: the segments of a sequence take its place.
inline std::int64_t working_halves(const Params& p) {
  const std::int64_t cut = p.most_segments / p.split.parts;
  return (p.N - cut + std::int64_t{p.most_segments}) * p.HV * (p.V / kTileColumns);
}

}  // namespace goldenrule::gpu::prefill::sm90
