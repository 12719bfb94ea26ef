// SPDX-License-Identifier: Apache-2.0
//
// The C entry points of the prefill call. Nothing here allocates device memory or waits.
#include "gpu/delta/prefill/args_fields.hpp"
#include "gpu/delta/prefill/check_sequences.hpp"
#include "gpu/delta/prefill/variants.hpp"
#include "gpu/launch/describe.hpp"
#include "gpu/launch/guard.hpp"
#include "gpu/launch/pack_call.hpp"

namespace goldenrule::gpu::prefill {
namespace {

constexpr Description kDescription = describe<Group>();

Problem check_and_launch(const Args* args) {
  CheckedCall<Group> call;
  Problem problem = check_call(args, call);
  // Without a sequence nothing is written; with one of no tokens its state may move.
  if (!problem.ok() || call.args.N == 0) return problem;
  problem = kernels().prepare(call.device);
  if (!problem.ok()) return problem;
  const Variant& variant = select(call.params, call.device);
  Launch launch{.params = call.params,
                .device = call.device,
                .stream = call.args.stream,
                .dependent = (call.args.flags & GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH) != 0,
                .first = first_kernel(variant)};
  return variant.launch(launch);
}

Problem check_on_device(const Args* args, goldenrule_gpu_prefill_report* device_report) {
  if (device_report == nullptr) return null_problem("device_report");
  CheckedCall<Group> call;
  Problem problem = check_call(args, call);
  if (!problem.ok()) return problem;
  return launch_check(call.params, device_report, call.args.stream);
}

}  // namespace
}  // namespace goldenrule::gpu::prefill

using goldenrule::gpu::guarded;
namespace prefill = goldenrule::gpu::prefill;

extern "C" {

void goldenrule_gpu_prefill_defaults(goldenrule_gpu_prefill_args* args, size_t struct_size) {
  goldenrule::gpu::give_defaults<prefill::Group>(args, struct_size);
}

const char* goldenrule_gpu_prefill_fields(void) { return prefill::kDescription.text; }

goldenrule_gpu_status goldenrule_gpu_prefill_validate(const goldenrule_gpu_prefill_args* args,
                                                      char* message, size_t message_size) {
  return guarded(message, message_size, [&] {
    goldenrule::gpu::CheckedCall<prefill::Group> call;
    return check_call(args, call);
  });
}

size_t goldenrule_gpu_prefill_workspace_size(const goldenrule_gpu_prefill_args* args) {
  std::size_t size = 0;
  const auto ask = [&] {
    goldenrule_gpu_prefill_args known;
    goldenrule::gpu::Problem problem = goldenrule::gpu::take_args<prefill::Group>(args, known);
    if (problem.ok()) size = prefill::workspace_size(known);
    return problem;
  };
  return guarded(nullptr, 0, ask) == GOLDENRULE_GPU_OK ? size : 0;
}

goldenrule_gpu_status goldenrule_gpu_prefill(const goldenrule_gpu_prefill_args* args, char* message,
                                             size_t message_size) {
  return guarded(message, message_size, [&] { return prefill::check_and_launch(args); });
}

goldenrule_gpu_status goldenrule_gpu_prefill_check(const goldenrule_gpu_prefill_args* args,
                                                   goldenrule_gpu_prefill_report* device_report,
                                                   char* message, size_t message_size) {
  return guarded(message, message_size,
                 [&] { return prefill::check_on_device(args, device_report); });
}

}  // extern "C"
