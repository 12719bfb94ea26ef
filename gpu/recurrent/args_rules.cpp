// SPDX-License-Identifier: Apache-2.0
//
// What the recurrent call has of its own among the checks and the parameters.
#include "gpu/launch/check_args.hpp"
#include "gpu/launch/pack_call.hpp"
#include "gpu/recurrent/args_fields.hpp"

namespace goldenrule::gpu::recurrent {

std::int64_t Group::extent_of(const Args& a, Axis axis) {
  switch (axis) {
    case kRow:
      return a.B;
    case kToken:
      return a.T;
    case kStep:
      return a.intermediate_rows;
    default:
      return -1;
  }
}

NeedAndWhy Group::need_of(const Args& a, Presence presence) {
  const bool scatter = a.ssm_state_indices.data != nullptr;
  switch (presence) {
    case Presence::kOutput: {
      const bool none = (a.flags & GOLDENRULE_GPU_FLAG_NO_OUTPUT) != 0;
      return {none ? Need::kForbidden : Need::kRequired, none ? " (flag NO_OUTPUT)" : ""};
    }
    case Presence::kOwnSlots:
      return {scatter ? Need::kForbidden : Need::kOptional,
              " (ssm_state_indices already names every slot that is written)"};
    default: {
      const bool counted = scatter && a.state_indices.data == nullptr;
      return {counted ? Need::kRequired : Need::kForbidden,
              counted   ? " (ssm_state_indices without state_indices)"
              : scatter ? " (state_indices already names the start slots)"
                        : " (no ssm_state_indices)"};
    }
  }
}

void Group::check_sizes(const Args& a, Problem& problem) {
  const bool own_slots = a.state_indices.data == nullptr && a.ssm_state_indices.data == nullptr;
  if (own_slots && a.slots < a.B) {
    problem.invalid("slots", "at least B=" + std::to_string(a.B) + " (no state_indices)", a.slots);
  }
  if (a.intermediate_states.data != nullptr && a.intermediate_rows < a.T) {
    problem.invalid("intermediate_rows", "at least T=" + std::to_string(a.T), a.intermediate_rows);
  }
  if (a.ssm_state_indices.data != nullptr && a.T == 0) {
    problem.invalid("T", "1 or more (ssm_state_indices)", a.T);
  }
  check_grid(a, "B", a.B, problem);
}

void Group::pack_rest(const Args& a, const TensorStrides<Group>& strides, Params& p) {
  const auto step = [&](Tensor Args::*member) { return narrow(strides[member][0]); };
  const Strides& m = strides[&Args::intermediate_states];
  p.intermediate = state_view(a.intermediate_states, m[0], m[2], m[3]);
  p.intermediate_token = m[1];
  p.vector_state =
      p.vector_state && by_vectors(p.intermediate, p.intermediate_token, a.state.dtype);
  p.dense_heads = p.dense_heads && is_dense(a, p.intermediate);
  p.start_step = step(&Args::state_indices);
  p.output_step = step(&Args::output_state_indices);
  p.num_accepted_step = step(&Args::num_accepted_tokens);
  p.accepted_step = step(&Args::accepted_tokens);
  p.accepted_tokens = a.accepted_tokens.data;
  p.wide_accepted = is_wide(a.accepted_tokens);
  p.num_accepted_tokens = a.num_accepted_tokens.data;
  p.wide_num_accepted = is_wide(a.num_accepted_tokens);
  p.ssm_state_indices = a.ssm_state_indices.data;
  p.wide_ssm = is_wide(a.ssm_state_indices);
  p.ssm_row = narrow(strides[&Args::ssm_state_indices][0]);
  p.ssm_token = narrow(strides[&Args::ssm_state_indices][1]);
  p.T = narrow(a.T);
}

}  // namespace goldenrule::gpu::recurrent
