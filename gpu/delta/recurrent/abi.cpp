// SPDX-License-Identifier: Apache-2.0
//
// The C entry points of the recurrent call. Nothing here allocates device memory or waits.
#include "gpu/delta/recurrent/check_indices.hpp"
#include "gpu/delta/recurrent/resolve.hpp"
#include "gpu/delta/recurrent/table.hpp"
#include "gpu/launch/describe.hpp"
#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu::recurrent {
namespace {

constexpr Description kDescription = describe<Group>();

Problem check_and_launch(const Args* args) {
  ResolvedCall call;
  Problem problem = resolve(args, call);
  if (!problem.ok() || call.plan.blocks == 0) return problem;
  return kernels().launch(call.entry, call.plan, &call.params, call.stream);
}

Problem check_slots(const Args* args, goldenrule_gpu_index_report* device_report) {
  if (device_report == nullptr) return null_problem("device_report");
  CheckedCall<Group> call;
  Problem problem = check_call(args, call);
  if (!problem.ok()) return problem;
  const Args& a = call.args;
  const bool in_place = a.final_state.data == nullptr || a.final_state.data == a.state.data;
  const int version = args->struct_size < Group::kSecondSize ? 1
                      : args->struct_size < sizeof(Args)     ? 2
                                                             : 3;
  return launch_check(call.params, static_cast<int>(a.B), in_place, version, device_report,
                      a.stream);
}

}  // namespace
}  // namespace goldenrule::gpu::recurrent

using goldenrule::gpu::guarded;
namespace recurrent = goldenrule::gpu::recurrent;

extern "C" {

void goldenrule_gpu_recurrent_defaults(goldenrule_gpu_recurrent_args* args, size_t struct_size) {
  goldenrule::gpu::give_defaults<recurrent::Group>(args, struct_size);
}

const char* goldenrule_gpu_recurrent_fields(void) { return recurrent::kDescription.text; }

goldenrule_gpu_status goldenrule_gpu_recurrent_validate(const goldenrule_gpu_recurrent_args* args,
                                                        char* message, size_t message_size) {
  return guarded(message, message_size, [&] {
    goldenrule::gpu::CheckedCall<recurrent::Group> call;
    return check_call(args, call);
  });
}

size_t goldenrule_gpu_recurrent_workspace_size(const goldenrule_gpu_recurrent_args* /*args*/) {
  return 0;
}

goldenrule_gpu_status goldenrule_gpu_recurrent(const goldenrule_gpu_recurrent_args* args,
                                               char* message, size_t message_size) {
  return guarded(message, message_size, [&] { return recurrent::check_and_launch(args); });
}

goldenrule_gpu_status goldenrule_gpu_recurrent_check(const goldenrule_gpu_recurrent_args* args,
                                                     goldenrule_gpu_index_report* device_report,
                                                     char* message, size_t message_size) {
  return guarded(message, message_size,
                 [&] { return recurrent::check_slots(args, device_report); });
}

}  // extern "C"
