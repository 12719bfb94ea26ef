// SPDX-License-Identifier: Apache-2.0
//
// A captured call as an explanation sees it: what went in, what came out, what is expected; and a
// smaller capture cut out of it.
//
// Cuts. Value channels, heads and sequences of a prefill call do not influence each other, and a
// token not the ones before it: the expectation of the remaining elements stays as it was, and
// nothing is computed anew. That is a property of the right function. A mistake may join what is
// apart (a state transposed at K = V, a stale row of the next sequence), so that a cut hides it or
// changes what it does: what a cut suggests is confirmed on the whole capture.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/verdict/verdict.hpp"

namespace goldenrule::explain {

struct Capture {
  const verdict::Slice* slice = nullptr;
  call::Record call;  ///< without outputs
  call::TensorMap outputs;
  verdict::Expectations expected;  ///< of these outputs only
  const contract::Contract* contract = nullptr;
};

/// Outputs that the contract gives no budget are left out. The judgement must outlive it.
[[nodiscard]] Capture make_capture(const verdict::Judgement& judgement);

/// What a cut keeps; nothing is cut by default.
struct Cut {
  std::vector<std::int64_t> values;  ///< value channels, ascending; empty: all
  std::int64_t sequences = -1;       ///< prefill: the first of them; -1: all
  std::int64_t tokens = -1;          ///< prefill: the first of each sequence; -1: all
};

/// Whether a call is cut by sequences and tokens as well as by value channels: a prefill of the
/// delta rule without a pool. A pool binds the rows of a call together, and the keys of a request
/// its queries.
[[nodiscard]] bool is_cut_by_tokens(const call::Record& call);

/// The part of a capture. final_state is left out where a sequence loses tokens, and so are the
/// checkpoints behind the last token that it keeps.
[[nodiscard]] Capture cut(const Capture& capture, const Cut& what);

}  // namespace goldenrule::explain
