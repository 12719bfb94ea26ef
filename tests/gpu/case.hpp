// SPDX-License-Identifier: Apache-2.0
//
// One GPU test case as data: shape, types, conventions, the use of slots, and where the inputs
// come from. A case and its seed determine every byte.
#pragma once

#include <cstdint>
#include <string>

#include "fixtures/call/convention.hpp"
#include "fixtures/call/dtype.hpp"

namespace goldenrule::test {

using call::BetaForm;
using call::DType;
using call::Gate;
using call::GateHead;
using call::HeadMap;
using call::QkNorm;
using call::StateLayout;

enum class Slots {
  kIdentity,      ///< no index tensor
  kPermuted,      ///< state_indices, a permutation into a larger pool
  kPadded,        ///< likewise, every third row the pad slot
  kStray,         ///< likewise, every third row outside the pool
  kOutput,        ///< state_indices and other output_state_indices
  kOutputPadded,  ///< every second output slot the pad slot
  kScatter,       ///< ssm_state_indices with num_accepted_tokens, some slots padded
};

enum class Values {
  kGaussian,    ///< unit variance, decay .7 to 1
  kCorrelated,  ///< keys of cosine .99, v close to S^T k
  kExact,       ///< small integers and powers of two: every operation is exact in fp32
  kExtreme,     ///< gate logits of +-100, -17, alpha = 0, tiny norms
};

struct Case {
  bool kda = false;
  StateLayout layout = StateLayout::kVK;
  DType state = DType::kF32;
  DType io = DType::kBF16;    ///< q, k, v, o
  DType gates = DType::kF32;  ///< a or g, b, A_log, dt_bias
  std::int64_t B = 2, T = 1, H = 2, HV = 4, K = 128, V = 128;
  Gate gate = Gate::kSoftplus;
  BetaForm beta = BetaForm::kSigmoid;
  QkNorm norm = QkNorm::kRsqrtSumEps;
  HeadMap head_map = HeadMap::kGrouped;
  GateHead gate_head = GateHead::kV;
  double scale = 0;  ///< 0: K^-0.5
  double l2_eps = 1e-6;
  std::int64_t pad_slot = -1;
  Slots slots = Slots::kIdentity;
  bool wide_indices = false;  ///< int64
  bool intermediates = false;
  std::int64_t extra_rows = 0;  ///< rows of intermediate_states beyond T
  bool accepted = false;        ///< accepted_tokens, 0..T over the rows
  bool disable_update = false;
  bool separate_final = false;
  std::int64_t gap = 0;    ///< elements of padding behind every outer axis
  std::int64_t shift = 0;  ///< elements by which all data are off their alignment
  bool dependent = false;  ///< programmatic dependent launch
  Values values = Values::kGaussian;
  std::uint64_t seed = 1;

  [[nodiscard]] std::string name() const;
};

}  // namespace goldenrule::test
