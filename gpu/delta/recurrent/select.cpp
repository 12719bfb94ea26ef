// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/recurrent/select.hpp"

#include "gpu/launch/tuning.hpp"

namespace goldenrule::gpu::recurrent {
namespace {

/// The share of the resident blocks that have work, over the waves of a decode launch with this
/// key: the last wave is rarely full.
double used(const Key& key, const Params& p, const Load& load) {
  const Shape& shape = kShapes[index_of(key.format)].one[key.large ? 1 : 0];
  const std::int64_t tiles = load.rows * p.HV * (p.V / table_entry(table_index(key)).rows);
  const std::int64_t wave = std::int64_t{shape.min_blocks} * load.multiprocessors;
  const std::int64_t places = (tiles + wave - 1) / wave * wave;
  return static_cast<double>(tiles) / static_cast<double>(places);
}

/// Whether low tiles fill the waves of a decode launch so much better that they are faster.
bool prefers_low_tiles(Key large, const Params& p, const Load& load) {
  Key low = large;
  low.large = false;
  return large.work == Work::kOneToken &&
         used(low, p, load) > kH200.tiles.low_fill_better * used(large, p, load);
}

}  // namespace

Key select(const Params& p, const Load& load, int device) {
  // Whether the large or the small entry of a key serves, the large one first.
  const auto takes = [&](Key& exact, bool has_large) {
    for (const bool large : {true, false}) {
      if (large && !has_large) continue;
      exact.large = large;
      const int entry = table_index(exact);
      const bool enough =
          load.rows * p.HV * p.V >= kH200.tiles.rows_for_tall * load.multiprocessors;
      const bool there = device < 0 || kernels().is_loaded(entry, device);
      if (p.V % table_entry(entry).rows != 0 || (large && !enough) || !there) continue;
      if (!large || !prefers_low_tiles(exact, p, load)) return true;
    }
    return false;
  };
  Key key{.format = {.bf16 = p.bf16_state != 0, .kv = p.kv_layout != 0}};
  const bool exact_k = p.K == kExactK && p.vector_state && p.dense_heads;
  Key exact = key;
  exact.exact = true;
  exact.channel_gate = p.channel_gate != 0;
  if (p.ring.d.data != nullptr) {
    exact.replay = key.replay = true;
    if (exact_k && replays_few(p) && takes(exact, exact.channel_gate)) return exact;
    while (kGeneralK[key.general] < p.K) ++key.general;
    return key;
  }
  if (exact_k) {
    for (const Variant& variant : kVariants) {
      if (!variant.serves(p, load)) continue;
      exact.work = variant.work;
      if (takes(exact, true)) return exact;
    }
  }
  key.drafts = p.draft.wanted != 0;
  while ((key.drafts ? kDraftK[key.general] : kGeneralK[key.general]) < p.K) ++key.general;
  return key;
}

}  // namespace goldenrule::gpu::recurrent
