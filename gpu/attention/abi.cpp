// SPDX-License-Identifier: Apache-2.0
//
// The C entry points of the attention call. Nothing here allocates device memory or waits.
#include "gpu/attention/args_fields.hpp"
#include "gpu/attention/check_requests.hpp"
#include "gpu/attention/table.hpp"
#include "gpu/launch/entry_points.hpp"

namespace goldenrule::gpu::attention {
namespace {

Problem launch_call(const Args* args) {
  CheckedCall<Group> call;
  Problem problem = check_call(args, call);
  if (!problem.ok() || call.args.N == 0 || call.args.total == 0) return problem;
  problem = kernels().prepare(call.device);
  if (!problem.ok()) return problem;
  const attention::Choice choice =
      choose(call.params, call.args.most_q, call.args.splits, call.device);
  const LaunchPlan plan{.device = call.device.id,
                        .blocks = static_cast<unsigned>(choice.blocks),
                        .dependent = (call.args.flags & GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH) != 0};
  return kernels().launch(choice.entry, plan, &call.params, call.args.stream);
}

Problem launch_check_of(const CheckedCall<Group>& call, goldenrule_gpu_attention_report* report) {
  return launch_check(call.params, report, call.args.stream);
}

}  // namespace
}  // namespace goldenrule::gpu::attention

extern "C" {

GOLDENRULE_GPU_ENTRY_POINTS(attention, goldenrule_gpu_attention_report)

}  // extern "C"
