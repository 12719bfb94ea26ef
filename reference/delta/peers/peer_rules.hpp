// SPDX-License-Identifier: Apache-2.0
//
// What passes in the tests of other projects (peers.hpp says which): one PeerRule each. A NaN or an
// infinity fails every one of them.
#pragma once

#include "fixtures/call/tensor.hpp"

namespace goldenrule::peers::peer {

using call::TensorMap;

/// RMSE over RMS below .005, of whole tensors; anything within 1e-6 passes.
bool fla(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);
bool fla_output_only(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);

/// |y - x| <= atol + rtol |x|; for the first two o and states have tolerances of their own.
bool flashinfer_prefill_bf16(const TensorMap& outputs, const TensorMap& exact,
                             const TensorMap& right);
bool flashinfer_prefill_fp16(const TensorMap& outputs, const TensorMap& exact,
                             const TensorMap& right);
bool flashinfer_decode(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);
bool one_percent(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);
bool sglang(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);
bool vllm(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);

/// One normalised mean square error over output and state together.
bool ggml(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);

/// 1 - 2 <x, y> / (x^2 + y^2) < 1e-5, of each tensor.
bool deep_gemm(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);

/// Every bit is that of `right`.
bool same_bits(const TensorMap& outputs, const TensorMap& exact, const TensorMap& right);

}  // namespace goldenrule::peers::peer
