// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/recurrent/resolve.hpp"

#include "gpu/delta/recurrent/select.hpp"
#include "gpu/launch/tuning.hpp"

namespace goldenrule::gpu::recurrent {
namespace {

/// B = 0 has no effect, T = 0 only where a state moves elsewhere or takes the tokens of its ring,
/// and a call that is to write nothing has none.
bool has_effect(const Args& args) {
  const bool updates = args.disable_state_update == 0;
  const bool rings = args.ring_d.data != nullptr;
  if (args.B == 0) return false;
  if (args.T > 0) {
    return rings || updates || args.o.data != nullptr || args.intermediate_states.data != nullptr;
  }
  if (rings) return updates && args.ring_flush.data != nullptr;
  return updates && (args.final_state.data != nullptr || args.output_state_indices.data != nullptr);
}

/// Decode is bound by the memory, so the states of later blocks are asked for ahead. MTP computes
/// longer than it reads: nothing to gain.
int blocks_ahead(const Params& params, const Entry& entry) {
  constexpr Tuning::Waves kWaves = kH200.waves;
  const std::int64_t element = params.bf16_state != 0 ? 2 : 4;
  const std::int64_t bytes = std::int64_t{params.wave} * entry.rows * params.K * element;
  if (params.T != 1 || bytes > kWaves.prefetched_bytes) return 0;
  return static_cast<int>(kWaves.ahead * params.wave);
}

/// Whether a call and its neighbours gain from lying beside each other.
bool gains_beside_others(const Params& params, unsigned blocks) {
  const std::int64_t wave = params.wave;
  return params.T == 1 || kH200.waves.alone_least_part * blocks < wave ||
         std::int64_t{blocks} > kH200.waves.alone_most * wave;
}

}  // namespace

Problem resolve(const Args* given, ResolvedCall& call) {
  CheckedCall<Group> checked;
  Problem problem = check_call(given, checked);
  const Args& args = checked.args;
  if (!problem.ok() || !has_effect(args)) return problem;
  problem = kernels().prepare(checked.device);
  if (!problem.ok()) return problem;
  const int multiprocessors = checked.device.multiprocessors;
  Params& p = checked.params;
  const int device = checked.device.id;
  call.entry = table_index(select(p, {.rows = args.B, .multiprocessors = multiprocessors}, device));
  const Entry& entry = table_entry(call.entry);
  const bool wanted = (args.flags & GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH) != 0;
  call.plan.device = device;
  call.plan.dependent = wanted && kernels().can_depend(call.entry, device);
  p.tiles = (p.V + entry.rows - 1) / entry.rows;
  p.by_tiles = Divisor::of(p.tiles);
  p.wave = kernels().resident_blocks(call.entry, device) * multiprocessors;
  p.ahead = blocks_ahead(p, entry);
  call.plan.blocks = static_cast<unsigned>(args.B * args.HV * p.tiles);
  const bool beside = gains_beside_others(p, call.plan.blocks);
  p.dependent = call.plan.dependent && beside ? 1 : 0;
  // A start slot that hangs on an accepted count is nobody's to vouch for.
  const bool knows_slot = p.state_indices != nullptr || p.ssm_state_indices == nullptr;
  const bool vouched = (args.flags & GOLDENRULE_GPU_FLAG_STATE_READY) != 0;
  p.state_ready = p.dependent != 0 && vouched && knows_slot ? 1 : 0;
  p.triggers = (args.flags & GOLDENRULE_GPU_FLAG_TRIGGER_EARLY) != 0 && beside ? 1 : 0;
  call.stream = args.stream;
  call.params = p;
  return problem;
}

}  // namespace goldenrule::gpu::recurrent
