// SPDX-License-Identifier: Apache-2.0
//
// The C entry points of the recurrent call. Nothing here allocates device memory or waits.
#include "gpu/delta/recurrent/check_indices.hpp"
#include "gpu/delta/recurrent/resolve.hpp"
#include "gpu/delta/recurrent/table.hpp"
#include "gpu/launch/entry_points.hpp"

namespace goldenrule::gpu::recurrent {
namespace {

Problem launch_call(const Args* args) {
  ResolvedCall call;
  Problem problem = resolve(args, call);
  if (!problem.ok() || call.plan.blocks == 0) return problem;
  return kernels().launch(call.entry, call.plan, &call.params, call.stream);
}

Problem launch_check_of(const CheckedCall<Group>& call, goldenrule_gpu_index_report* report) {
  const Args& a = call.args;
  const bool in_place = a.final_state.data == nullptr || a.final_state.data == a.state.data;
  const int version = call.given_size < Group::kSecondSize ? 1
                      : call.given_size < sizeof(Args)     ? 2
                                                           : 3;
  return launch_check(call.params, static_cast<int>(a.B), in_place, version, report, a.stream);
}

}  // namespace
}  // namespace goldenrule::gpu::recurrent

extern "C" {

GOLDENRULE_GPU_ENTRY_POINTS(recurrent, goldenrule_gpu_index_report)

size_t goldenrule_gpu_recurrent_workspace_size(const goldenrule_gpu_recurrent_args* /*args*/) {
  return 0;
}

}  // extern "C"
