// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a block in shared memory.
#pragma once

#include "gpu/common/shared_rows.cuh"
#include "gpu/delta/shared/config.cuh"

namespace goldenrule::gpu::recurrent {

/// Lifetime: k, q and v hold raw bytes from request() to finish(), fp32 from then on until the
/// block has done these tokens; a barrier at each change. Then, with channel gates, q is decayed
/// from the start, and v becomes d. Channels K..kPaddedK-1 of k, q and alpha are zero.
template <class C>
struct alignas(16) TokenStorage {
  static_assert(C::kBlockRows % kRowSpan == 0 && C::kPaddedK % kRowSpan == 0,
                "rows hold whole spans");
  float k[C::kTokensPerRound][C::kPaddedK];
  float q[C::kTokensPerRound][C::kPaddedK];
  float v[C::kTokensPerRound][C::kBlockRows];
  float alpha[C::kTokensPerRound][C::kChannelGate ? C::kPaddedK : 1];
  /// Channel gates only. The raw gate until alpha is made of it, then k^ decayed from the start.
  float decayed_k[C::kChannelGate ? C::kTokensPerRound : 1][C::kChannelGate ? C::kPaddedK : 4];
  float raw_dt_bias[C::kChannelGate ? C::kPaddedK : 4];
  float beta[C::kTokensPerRound];
  float decay[C::kTokensPerRound];  // head gates: alpha from the first to this token, else 1
  alignas(16) float weight[C::kTokensPerRound][2][C::kTokensPerRound];  // see token_weights.cuh
  float product[C::kTokensPerRound]
               [C::kProducts];  // of the state with k^ or q^: each thread its own
  int64_t
      slot[C::kTokensPerRound];  // scatter form: where the state after this token goes, or kNoSlot
};

}  // namespace goldenrule::gpu::recurrent
