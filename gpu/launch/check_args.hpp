// SPDX-License-Identifier: Apache-2.0
//
// The checks of everything in an aggregate but its tensors, by the lists of its group.
#pragma once

#include <cmath>

#include "gpu/launch/args_lists.hpp"
#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu {

template <class Group>
void check_choices(const typename Group::Args& a, Problem& problem) {
  for (const auto& choice : Group::kChoices) {
    const std::int32_t value = a.*choice.field.member;
    if (value < 0 || value >= choice.count) {
      problem.invalid(choice.field.name, "0 to " + std::to_string(choice.count - 1), value);
    }
  }
  if ((a.flags & ~static_cast<std::uint32_t>(Group::kKnownFlags)) != 0) {
    problem.invalid("flags", std::string("only ") + Group::kFlagNames, a.flags);
  }
  if constexpr (requires { Group::kReserved; }) {
    if (a.reserved != 0) problem.invalid("reserved", "0", a.reserved);
  }
}

template <class Group>
void check_extents(const typename Group::Args& a, Problem& problem) {
  for (const auto& extent : Group::kExtents) {
    const std::int64_t value = a.*extent.field.member;
    if (value < extent.low || value > extent.high) {
      problem.invalid(extent.field.name,
                      std::to_string(extent.low) + " to " + std::to_string(extent.high), value);
    }
  }
  if (problem.ok() && a.HV % a.H != 0) {
    problem.invalid("HV", "a multiple of H=" + std::to_string(a.H), a.HV);
  }
}

/// `count` rows of the grid of all heads, called `name`: the lowest blocks have 16 rows of value,
/// and the grid is one-dimensional and below 2^31 blocks.
template <class Args>
void check_grid(const Args& a, const char* name, std::int64_t count, Problem& problem) {
  if (problem.ok() && count > kInt32Max / (a.HV * ((a.V + 15) / 16))) {
    problem.invalid(name, std::string(name) + " * HV * ceil(V/16) below 2^31", count);
  }
}

template <class Group>
void check_numbers(const typename Group::Args& a, Problem& problem) {
  for (const auto& number : Group::kNumbers) {
    if constexpr (DeltaArgs<typename Group::Args>) {
      if (number.gate >= 0 && number.gate != a.gate_kind) continue;
    }
    const double value = a.*number.field.member;
    const bool positive = number.sign == Sign::kPositive;
    if (!std::isfinite(value) || (positive && value <= 0.0)) {
      problem.invalid(number.field.name, positive ? "a finite number above 0" : "a finite number",
                      std::to_string(value));
    }
    if (number.sign == Sign::kNotNegative && value < 0.0) {
      problem.invalid(number.field.name, "0 or more", std::to_string(value));
    }
  }
}

/// In the order of the aggregate; the first complaint wins.
template <class Group>
[[nodiscard]] Problem check_scalars(const typename Group::Args& args) {
  Problem problem;
  check_choices<Group>(args, problem);
  if (problem.ok()) check_extents<Group>(args, problem);
  if (problem.ok()) Group::check_sizes(args, problem);
  if (problem.ok()) check_numbers<Group>(args, problem);
  return problem;
}

}  // namespace goldenrule::gpu
