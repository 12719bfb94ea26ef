// SPDX-License-Identifier: Apache-2.0
//
// What a call writes to its rings (call/plan.hpp). Of each of its tokens goes to the place behind
// the tokens before it
//
//   d      the correction beta (v - S'^T k^), which the walk over the tiles stores,
//   k      k^, once per query/key head,
//   g      log alpha, whatever form the gate is given in. It is not defined of a linear gate below
//          2^-126: 0, negative and subnormal numbers. Kernels have -inf or NaN there, or clamp.
//
// Every other place keeps its content bit for bit.
#pragma once

#include "fixtures/call/plan.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::delta {

/// Whether `head` is the first value head that reads its keys, and so the one that stores them.
[[nodiscard]] bool stores_keys(const call::Record& record, const call::Dims& dims,
                               std::int64_t head);

/// Whether fp32 has a logarithm of the given gate: of 0, of negative numbers and, where they are
/// flushed, of subnormal ones it has none that a sum can take.
template <class S>
[[nodiscard]] bool has_logarithm(const call::Convention& c, const S& alpha) {
  return c.gate != call::Gate::kLinear || !(scalar::to_double(alpha) < 0x1p-126);
}

/// Adds ring_d, ring_k and ring_g as they were before the call, with the places marked that it
/// writes. Returns ring_d.
verdict::Exact* add_rings(const call::Record& record, const call::Plan& plan, bool certify,
                          verdict::Expectations& expected);

/// Stores k and g of the tokens of the call.
template <class S>
void evaluate_rings(const call::Record& record, const call::Plan& plan, const CallInputs& inputs,
                    bool certify, verdict::Expectations& expected);

extern template void evaluate_rings<double>(const call::Record&, const call::Plan&,
                                            const CallInputs&, bool, verdict::Expectations&);
extern template void evaluate_rings<scalar::Quad>(const call::Record&, const call::Plan&,
                                                  const CallInputs&, bool, verdict::Expectations&);
extern template void evaluate_rings<scalar::Multi>(const call::Record&, const call::Plan&,
                                                   const CallInputs&, bool, verdict::Expectations&);

}  // namespace goldenrule::delta
