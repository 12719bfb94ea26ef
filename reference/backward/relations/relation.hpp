// SPDX-License-Identifier: Apache-2.0
//
// What must hold between the gradients that one backward pass returns in related calls, without an
// exact gradient (delta/relations/relation.hpp says what a relation demands, and of whom the same
// bits). The gradients are a linear function of what the caller gives them, (do, dfinal_state), and
// causal against time; the forward pass is linear in (v, initial_state). Relations are about what
// the kernel returns: an output that it leaves out is not compared.
//
//   power_of_two, linearity   linear.cpp
//   euler, query_scale, key_scale, state_scale, rotation   symmetry.cpp
//   parameters                parameters.cpp
//   rows_alone, later_zero, truncated   pieces.cpp
//   split                     split.cpp
#pragma once

#include <span>
#include <vector>

#include "reference/delta/relations/relation.hpp"

namespace goldenrule::backward {

/// Whether they are about this operation.
[[nodiscard]] bool has_relations(call::Op op);

/// Every relation, in the order of the documentation.
[[nodiscard]] std::span<const relations::Relation> relation_table();

/// As relations::check. Outputs that are there have the shape that the call says.
[[nodiscard]] relations::Outcome check_relation(const relations::Relation& relation,
                                                const call::Record& record,
                                                const calls::Kernel& kernel,
                                                const contract::Contract& contract,
                                                relations::Options options = {});

/// Every relation that applies.
[[nodiscard]] std::vector<relations::Outcome> check_relations(const call::Record& record,
                                                              const calls::Kernel& kernel,
                                                              const contract::Contract& contract,
                                                              relations::Options options = {});

/// Rows of the table, by file.
std::span<const relations::Relation> linear_relations();
std::span<const relations::Relation> piece_relations();
std::span<const relations::Relation> split_relations();
std::span<const relations::Relation> symmetry_relations();
std::span<const relations::Relation> parameter_relations();

}  // namespace goldenrule::backward
