// SPDX-License-Identifier: Apache-2.0
//
// What the C entry points of every group do alike, once for all groups. A group has a type Group,
// its lists of fields, and two functions:
//   launch_call(args)              checks the call and launches it
//   launch_check_of(call, report)  launches the kernel that reports bad indices of a checked call
// GOLDENRULE_GPU_ENTRY_POINTS makes its five entry points of them, as goldenrule_gpu_recurrent and
// its .._defaults, .._fields, .._validate and .._check.
#pragma once

#include <cstddef>

#include "gpu/launch/describe.hpp"
#include "gpu/launch/guard.hpp"
#include "gpu/launch/pack_call.hpp"

namespace goldenrule::gpu {

template <class Group>
inline constexpr Description kDescription = describe<Group>();

/// Checks on the host, without a launch.
template <class Group>
goldenrule_gpu_status validate(const typename Group::Args* args, char* message, std::size_t size) {
  return guarded(message, size, [&] {
    CheckedCall<Group> call;
    return check_call(args, call);
  });
}

/// Checks, then launches the kernel that fills the report on the device.
template <class Group, class Report, class Launch>
goldenrule_gpu_status check_on_device(const typename Group::Args* args, Report* report,
                                      char* message, std::size_t size, Launch&& launch) {
  return guarded(message, size, [&] {
    if (report == nullptr) return null_problem("device_report");
    CheckedCall<Group> call;
    Problem problem = check_call(args, call);
    return problem.ok() ? launch(call, report) : problem;
  });
}

}  // namespace goldenrule::gpu

#define GOLDENRULE_GPU_ENTRY_POINTS(name, Report)                                                  \
  void goldenrule_gpu_##name##_defaults(goldenrule_gpu_##name##_args* args, size_t struct_size) {  \
    goldenrule::gpu::give_defaults<goldenrule::gpu::name::Group>(args, struct_size);               \
  }                                                                                                \
  const char* goldenrule_gpu_##name##_fields(void) {                                               \
    return goldenrule::gpu::kDescription<goldenrule::gpu::name::Group>.text;                       \
  }                                                                                                \
  goldenrule_gpu_status goldenrule_gpu_##name##_validate(const goldenrule_gpu_##name##_args* args, \
                                                         char* message, size_t message_size) {     \
    return goldenrule::gpu::validate<goldenrule::gpu::name::Group>(args, message, message_size);   \
  }                                                                                                \
  goldenrule_gpu_status goldenrule_gpu_##name(const goldenrule_gpu_##name##_args* args,            \
                                              char* message, size_t message_size) {                \
    return goldenrule::gpu::guarded(message, message_size,                                         \
                                    [&] { return goldenrule::gpu::name::launch_call(args); });     \
  }                                                                                                \
  goldenrule_gpu_status goldenrule_gpu_##name##_check(const goldenrule_gpu_##name##_args* args,    \
                                                      Report* device_report, char* message,        \
                                                      size_t message_size) {                       \
    return goldenrule::gpu::check_on_device<goldenrule::gpu::name::Group>(                         \
        args, device_report, message, message_size, goldenrule::gpu::name::launch_check_of);       \
  }
