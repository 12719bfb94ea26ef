// SPDX-License-Identifier: Apache-2.0
#include "gpu/recurrent/select.hpp"

namespace goldenrule::gpu::recurrent {

Key select(const Params& p, const Load& load, int device) {
  const auto there = [&](const Key& key) {
    return device < 0 || kernels().is_loaded(table_index(key), device);
  };
  Key key{.format = {.bf16 = p.bf16_state != 0, .kv = p.kv_layout != 0}};
  const bool exact_k = p.K == kExactK && p.vector_state && p.dense_heads;
  if (p.ring.d.data != nullptr) {
    key.replay = key.exact = true;
    if (exact_k && replays_few(p) && p.V % table_entry(table_index(key)).rows == 0) return key;
    key.exact = false;
    while (kGeneralK[key.general] < p.K) ++key.general;
    return key;
  }
  if (exact_k) {
    Key exact = key;
    exact.exact = true;
    exact.channel_gate = p.channel_gate != 0;
    for (const Variant& variant : kVariants) {
      if (!variant.serves(p, load)) continue;
      exact.work = variant.work;
      for (const bool large : {true, false}) {
        exact.large = large;
        const int rows = table_entry(table_index(exact)).rows;
        // Below two tiles of 64 rows per multiprocessor, low ones spread the rows over more of
        // them.
        const bool enough = load.rows * p.HV * p.V >= std::int64_t{128} * load.multiprocessors;
        if (p.V % rows == 0 && (enough || !large) && there(exact)) return exact;
      }
    }
  }
  key.drafts = p.draft.wanted != 0;
  while ((key.drafts ? kDraftK[key.general] : kGeneralK[key.general]) < p.K) ++key.general;
  return key;
}

}  // namespace goldenrule::gpu::recurrent
