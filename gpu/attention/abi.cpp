// SPDX-License-Identifier: Apache-2.0
//
// The C entry points of the attention call. Nothing here allocates device memory or waits.
#include "gpu/attention/args_fields.hpp"
#include "gpu/attention/check_requests.hpp"
#include "gpu/attention/table.hpp"
#include "gpu/launch/describe.hpp"
#include "gpu/launch/guard.hpp"
#include "gpu/launch/pack_call.hpp"

namespace goldenrule::gpu::attention {
namespace {

constexpr Description kDescription = describe<Group>();

Problem check_and_launch(const Args* args) {
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

Problem check_on_device(const Args* args, goldenrule_gpu_attention_report* device_report) {
  if (device_report == nullptr) return null_problem("device_report");
  CheckedCall<Group> call;
  Problem problem = check_call(args, call);
  if (!problem.ok()) return problem;
  return launch_check(call.params, device_report, call.args.stream);
}

}  // namespace
}  // namespace goldenrule::gpu::attention

using goldenrule::gpu::guarded;
namespace attention = goldenrule::gpu::attention;

extern "C" {

void goldenrule_gpu_attention_defaults(goldenrule_gpu_attention_args* args, size_t struct_size) {
  goldenrule::gpu::give_defaults<attention::Group>(args, struct_size);
}

const char* goldenrule_gpu_attention_fields(void) { return attention::kDescription.text; }

goldenrule_gpu_status goldenrule_gpu_attention_validate(const goldenrule_gpu_attention_args* args,
                                                        char* message, size_t message_size) {
  return guarded(message, message_size, [&] {
    goldenrule::gpu::CheckedCall<attention::Group> call;
    return check_call(args, call);
  });
}

goldenrule_gpu_status goldenrule_gpu_attention(const goldenrule_gpu_attention_args* args,
                                               char* message, size_t message_size) {
  return guarded(message, message_size, [&] { return attention::check_and_launch(args); });
}

goldenrule_gpu_status goldenrule_gpu_attention_check(const goldenrule_gpu_attention_args* args,
                                                     goldenrule_gpu_attention_report* device_report,
                                                     char* message, size_t message_size) {
  return guarded(message, message_size,
                 [&] { return attention::check_on_device(args, device_report); });
}

}  // extern "C"
