// SPDX-License-Identifier: Apache-2.0
#include "gpu/recurrent/check_args.hpp"

#include <cmath>

namespace goldenrule::gpu::recurrent {
namespace {

void check_choices(const Args& a, Problem& problem) {
  if (a.struct_size != sizeof(Args)) {
    problem.invalid("struct_size", std::to_string(sizeof(Args)), std::to_string(a.struct_size));
    return;  // nothing behind it can be trusted
  }
  for (const Choice& choice : kChoices) {
    const std::int32_t value = a.*choice.field.member;
    if (value < 0 || value >= choice.count) {
      problem.invalid(choice.field.name, "0 to " + std::to_string(choice.count - 1), value);
    }
  }
  if ((a.flags & ~static_cast<std::uint32_t>(GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH)) != 0) {
    problem.invalid("flags", "only GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH", a.flags);
  }
  if (a.reserved != 0) problem.invalid("reserved", "0", a.reserved);
}

void check_extents(const Args& a, Problem& problem) {
  for (const Extent& extent : kExtents) {
    const std::int64_t value = a.*extent.field.member;
    if (value < extent.low || value > extent.high) {
      problem.invalid(extent.field.name,
                      std::to_string(extent.low) + " to " + std::to_string(extent.high), value);
    }
  }
  if (problem.ok() && a.HV % a.H != 0) {
    problem.invalid("HV", "a multiple of H=" + std::to_string(a.H), a.HV);
  }
  const bool own_slots = a.state_indices.data == nullptr && a.ssm_state_indices.data == nullptr;
  if (problem.ok() && own_slots && a.slots < a.B) {
    problem.invalid("slots", "at least B=" + std::to_string(a.B) + " (no state_indices)", a.slots);
  }
  if (a.intermediate_states.data != nullptr && a.intermediate_rows < a.T) {
    problem.invalid("intermediate_rows", "at least T=" + std::to_string(a.T), a.intermediate_rows);
  }
  // The lowest blocks have 16 rows; the grid is one-dimensional and below 2^31 blocks.
  if (problem.ok() && a.B > kInt32Max / (a.HV * ((a.V + 15) / 16))) {
    problem.invalid("B", "B * HV * ceil(V/16) below 2^31", a.B);
  }
}

void check_numbers(const Args& a, Problem& problem) {
  for (const Number& number : kNumbers) {
    if (number.gate >= 0 && number.gate != a.gate_kind) continue;
    const double value = a.*number.field.member;
    const bool positive = number.sign == Number::Sign::kPositive;
    if (!std::isfinite(value) || (positive && value <= 0.0)) {
      problem.invalid(number.field.name, positive ? "a finite number above 0" : "a finite number",
                      std::to_string(value));
    }
    if (number.sign == Number::Sign::kNotNegative && value < 0.0) {
      problem.invalid(number.field.name, "0 or more", std::to_string(value));
    }
  }
}

}  // namespace

Problem check_scalars(const Args& args) {
  Problem problem;
  check_choices(args, problem);
  if (problem.ok()) check_extents(args, problem);
  if (problem.ok()) check_numbers(args, problem);
  return problem;
}

}  // namespace goldenrule::gpu::recurrent
