// SPDX-License-Identifier: Apache-2.0
//
// What the recurrent call has of its own among the checks and the parameters.
#include "gpu/delta/recurrent/args_fields.hpp"
#include "gpu/launch/check_args.hpp"
#include "gpu/launch/pack_call.hpp"

namespace goldenrule::gpu::recurrent {

namespace {

void check_rings(const Args& a, Problem& problem) {
  const std::int64_t least = a.T > 0 ? a.T : 1;
  if (a.ring_places < least) {
    problem.invalid("ring_places", "at least " + std::to_string(least) + ": a place for each token",
                    a.ring_places);
  }
  if (a.ring_indices.data == nullptr && a.rings < a.B) {
    problem.invalid("rings", "at least B=" + std::to_string(a.B) + " (no ring_indices)", a.rings);
  }
}

RowList row_list(const Tensor& tensor, const Strides& strides) {
  return {.data = tensor.data, .step = narrow(strides[0]), .wide = is_wide(tensor)};
}

/// Rings, a place and a head as the tokens have rows, a token and a head.
TokenView ring_view(const Tensor& tensor, const Strides& s) {
  return token_view(tensor, {s[0], s[2], s[1]}, 2);
}

void pack_rings(const Args& a, const TensorStrides<Group>& strides, Rings& to) {
  to.d = ring_view(a.ring_d, strides[&Args::ring_d]);
  to.k = ring_view(a.ring_k, strides[&Args::ring_k]);
  to.g = ring_view(a.ring_g, strides[&Args::ring_g]);
  to.d_type = element(a.ring_d);
  to.k_type = element(a.ring_k);
  to.g_type = element(a.ring_g);
  to.d_unit = copy_unit(to.d, a.ring_d.dtype, a.V);
  to.k_unit = copy_unit(to.k, a.ring_k.dtype, a.K);
  to.g_unit = copy_unit(to.g, a.ring_g.dtype, a.K);
  to.indices = row_list(a.ring_indices, strides[&Args::ring_indices]);
  to.start = row_list(a.ring_start, strides[&Args::ring_start]);
  to.count = row_list(a.ring_count, strides[&Args::ring_count]);
  to.flush = row_list(a.ring_flush, strides[&Args::ring_flush]);
  to.rings = narrow(a.rings);
  to.places = narrow(a.ring_places);
}

bool is_packed(const Args& a) { return a.cu_seqlens.data != nullptr; }
/// Whether packed tokens keep their states where they stand.
bool is_kept_by_token(const Args& a) { return is_packed(a) && a.intermediate_slots == 0; }

void check_drafts(const Args& a, Problem& problem) {
  if (!is_packed(a) && a.tokens != 0) problem.invalid("tokens", "0 (no cu_seqlens)", a.tokens);
  const bool all_rows = a.intermediate_slots > 0 && a.intermediate_state_indices.data == nullptr;
  if (all_rows && a.intermediate_slots < a.B) {
    problem.invalid("intermediate_slots",
                    "at least B=" + std::to_string(a.B) + " (no intermediate_state_indices)",
                    a.intermediate_slots);
  }
  const std::int64_t least = is_kept_by_token(a) ? a.tokens : a.T;
  if (a.intermediate_states.data != nullptr && a.intermediate_rows < least) {
    problem.invalid(
        "intermediate_rows",
        (is_kept_by_token(a) ? "at least tokens=" : "at least T=") + std::to_string(least),
        a.intermediate_rows);
  }
}

void pack_drafts(const Args& a, const TensorStrides<Group>& strides, Params& p) {
  Drafts& to = p.draft;
  to.bounds = a.cu_seqlens.data;
  to.wide_bounds = is_wide(a.cu_seqlens);
  to.tokens = narrow(a.tokens);
  to.parents = a.parent_tokens.data;
  to.wide_parents = is_wide(a.parent_tokens);
  to.parent_row = narrow_bytes(strides[&Args::parent_tokens][0]);
  to.parent_token = narrow_bytes(strides[&Args::parent_tokens][1]);
  to.kept = row_list(a.intermediate_state_indices, strides[&Args::intermediate_state_indices]);
  to.kept_rows = narrow(a.intermediate_slots > 0 ? a.intermediate_slots : a.B);
  to.kept_by_token = is_kept_by_token(a);
  to.kept_type = static_cast<std::uint8_t>(a.intermediate_states.dtype);
  to.second_slot = row_list(a.checkpoint_state_indices, strides[&Args::checkpoint_state_indices]);
  to.second_after = row_list(a.checkpoint_tokens, strides[&Args::checkpoint_tokens]);
  const bool other_type =
      p.intermediate.data != nullptr && a.intermediate_states.dtype != a.state.dtype;
  to.beyond_rows = to.parents != nullptr || to.second_slot.data != nullptr || other_type;
  to.wanted = to.beyond_rows != 0 || is_packed(a) || to.kept.data != nullptr;
}

}  // namespace

void Group::settle(const Args& a, TensorStrides<Group>& strides) {
  if (!is_packed(a)) return;
  for (std::size_t i = 0; i < std::size(kTensors); ++i) {
    if (kTensors[i].axes[0] == Axis::kTokenRow) strides.at(i)[0] = 0;
  }
}

std::int64_t Group::extent_of(const Args& a, Axis axis) {
  switch (axis) {
    case kRow:
      return a.B;
    case kBound:
      return a.B + 1;
    case kTokenRow:
      return is_packed(a) ? 1 : a.B;
    case kToken:
      return is_packed(a) ? a.tokens : a.T;
    case kDraft:
      return a.T;
    case kKeptRow:
      return a.intermediate_slots > 0 ? a.intermediate_slots : is_packed(a) ? 1 : a.B;
    case kStep:
      return a.intermediate_rows;
    case kRing:
      return a.rings;
    case kPlace:
      return a.ring_places;
    case kRingChannel:
      return a.gate_kind == GOLDENRULE_GPU_GATE_NONE ? -1 : gpu::extent_of<Group>(a, kChannel);
    default:
      return -1;
  }
}

NeedAndWhy Group::need_of(const Args& a, Presence presence) {
  const bool scatter = a.ssm_state_indices.data != nullptr;
  const bool rings = a.ring_d.data != nullptr;
  constexpr const char* kBeside = " (rings keep tokens in the place of states)";
  constexpr const char* kWithout = " (no ring_d)";
  switch (presence) {
    case Presence::kOutput: {
      const bool none = (a.flags & GOLDENRULE_GPU_FLAG_NO_OUTPUT) != 0;
      return {none ? Need::kForbidden : Need::kRequired, none ? " (flag NO_OUTPUT)" : ""};
    }
    case Presence::kOwnSlots:
      return {scatter ? Need::kForbidden : Need::kOptional,
              " (ssm_state_indices already names every slot that is written)"};
    case Presence::kNoRings:
      return {rings ? Need::kForbidden : Need::kOptional, kBeside};
    case Presence::kAccepted:
      return rings ? NeedAndWhy{Need::kForbidden, " (ring_count already says how many)"}
                   : need_of(a, Presence::kOwnSlots);
    case Presence::kKeptChoice: {
      const bool buffer = a.intermediate_slots > 0 && a.intermediate_states.data != nullptr;
      return {buffer ? Need::kOptional : Need::kForbidden,
              " (no intermediate_slots, or no intermediate_states)"};
    }
    case Presence::kSecondOnly: {
      const bool second = a.checkpoint_state_indices.data != nullptr;
      return {second ? Need::kRequired : Need::kForbidden,
              second ? " (checkpoint_state_indices)" : " (no checkpoint_state_indices)"};
    }
    case Presence::kRings:
      return {rings ? Need::kRequired : Need::kForbidden, rings ? " (ring_d)" : kWithout};
    case Presence::kRingChoice:
      return {rings ? Need::kOptional : Need::kForbidden, kWithout};
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
  if (a.ssm_state_indices.data != nullptr && a.T == 0) {
    problem.invalid("T", "1 or more (ssm_state_indices)", a.T);
  }
  check_drafts(a, problem);
  if (a.ring_d.data != nullptr) check_rings(a, problem);
  check_grid(a, "B", a.B, problem);
}

void Group::pack_rest(const Args& a, const TensorStrides<Group>& strides, Params& p) {
  const auto step = [&](TensorStrides<Group>::Place tensor) { return narrow(strides[tensor][0]); };
  const Strides& m = strides[&Args::intermediate_states];
  p.intermediate = state_view(a.intermediate_states, m[0], m[2], m[3]);
  p.intermediate_token = m[1];
  p.vector_state = p.vector_state &&
                   by_vectors(p.intermediate, p.intermediate_token, a.intermediate_states.dtype);
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
  pack_rings(a, strides, p.ring);
  pack_drafts(a, strides, p);
}

}  // namespace goldenrule::gpu::recurrent
