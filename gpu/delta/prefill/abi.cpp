// SPDX-License-Identifier: Apache-2.0
//
// The C entry points of the prefill call. Nothing here allocates device memory or waits.
#include "gpu/delta/prefill/args_fields.hpp"
#include "gpu/delta/prefill/check_sequences.hpp"
#include "gpu/delta/prefill/variants.hpp"
#include "gpu/launch/entry_points.hpp"

namespace goldenrule::gpu::prefill {
namespace {

Problem launch_call(const Args* args) {
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

Problem launch_check_of(const CheckedCall<Group>& call, goldenrule_gpu_prefill_report* report) {
  return launch_check(call.params, report, call.args.stream);
}

}  // namespace
}  // namespace goldenrule::gpu::prefill

extern "C" {

GOLDENRULE_GPU_ENTRY_POINTS(prefill, goldenrule_gpu_prefill_report)

size_t goldenrule_gpu_prefill_workspace_size(const goldenrule_gpu_prefill_args* args) {
  std::size_t size = 0;
  const auto ask = [&] {
    goldenrule_gpu_prefill_args known;
    goldenrule::gpu::Problem problem =
        goldenrule::gpu::take_args<goldenrule::gpu::prefill::Group>(args, known);
    if (problem.ok()) size = goldenrule::gpu::prefill::workspace_size(known);
    return problem;
  };
  return goldenrule::gpu::guarded(nullptr, 0, ask) == GOLDENRULE_GPU_OK ? size : 0;
}

}  // extern "C"
