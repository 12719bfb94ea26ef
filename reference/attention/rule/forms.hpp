// SPDX-License-Identifier: Apache-2.0
//
// Two more forms of the rule, structurally unlike the two-pass form. They are not certified and
// serve the tests: three forms that agree in the widest tier are right or share their reading of
// the plan.
//
// Merge tree. A set A of keys has the state (m, l, acc): m = max s_t, l = sum exp(s_t - m), acc =
// sum exp(s_t - m) v_t. Two disjoint sets merge as
//
//   m = max(m_1, m_2),  l = l_1 exp(m_1 - m) + l_2 exp(m_2 - m),  acc likewise,
//
// the state of no key is the neutral element, and any binary tree over the keys gives o = acc / l.
// A comb is streaming, a bush is split-KV; half of the inner nodes are first turned into (o, lse) =
// (acc / l, m + log l), as splits hand them over, and read again as (m, l, acc) = (lse, 1, o).
//
// Reciprocal form. No maximum and no quotient of sums, O(n^2):
//
//   w_t = 1 / sum_{t'} exp(s_t' - s_t),   o = sum w_t v_t,   lse = s_t - log w_t for any t.
#pragma once

#include <cstdint>

#include "reference/attention/rule/rule.hpp"

namespace goldenrule::attention {

inline constexpr std::size_t kMostReciprocal = 256;  ///< keys that the reciprocal form is meant for

/// By a random binary tree over the visible keys, which `seed` chooses.
template <class S>
[[nodiscard]] RowValue<S> by_merge_tree(const Tensors& tensors, const Plan& plan,
                                        const Request& request, const RowPlace& row,
                                        std::uint64_t seed);

template <class S>
[[nodiscard]] RowValue<S> by_reciprocals(const Tensors& tensors, const Plan& plan,
                                         const Request& request, const RowPlace& row);

extern template RowValue<double> by_merge_tree<double>(const Tensors&, const Plan&, const Request&,
                                                       const RowPlace&, std::uint64_t);
extern template RowValue<scalar::Multi> by_merge_tree<scalar::Multi>(const Tensors&, const Plan&,
                                                                     const Request&,
                                                                     const RowPlace&,
                                                                     std::uint64_t);
extern template RowValue<double> by_reciprocals<double>(const Tensors&, const Plan&, const Request&,
                                                        const RowPlace&);
extern template RowValue<scalar::Multi> by_reciprocals<scalar::Multi>(const Tensors&, const Plan&,
                                                                      const Request&,
                                                                      const RowPlace&);

}  // namespace goldenrule::attention
