// SPDX-License-Identifier: Apache-2.0
//
// The entry points that concern all kernel groups: loading, the dispatch tables and their counters,
// names. The tables stand one behind the other in the order of groups.hpp.
#include "gpu/goldenrule_gpu.h"
#include "gpu/groups.hpp"
#include "gpu/launch/launch_kernel.hpp"

namespace goldenrule::gpu {
namespace {

Problem prepare_all() {
  Device device;
  Problem problem = current_device(device);
  for (KernelTable* group : all_groups()) {
    if (problem.ok()) problem = group->prepare(device);
  }
  for (const void* function : check_functions()) {
    if (problem.ok()) problem = load_kernel(function, "check");
  }
  return problem;
}

/// Entry i of all tables: calls f(table, place in it); `none` outside.
template <class F, class T>
T with_entry(std::int32_t i, T none, F&& f) {
  for (const KernelTable* group : all_groups()) {
    if (i >= 0 && i < group->size()) return f(*group, i);
    i -= group->size();
  }
  return none;
}

}  // namespace
}  // namespace goldenrule::gpu

using goldenrule::gpu::all_groups;
using goldenrule::gpu::KernelTable;

extern "C" {

int32_t goldenrule_gpu_version(void) { return GOLDENRULE_GPU_VERSION; }

goldenrule_gpu_status goldenrule_gpu_initialize(char* message, size_t message_size) {
  return goldenrule::gpu::guarded(message, message_size,
                                  [] { return goldenrule::gpu::prepare_all(); });
}

uint64_t goldenrule_gpu_dispatch_hits(void) {
  uint64_t sum = 0;
  for (const KernelTable* group : all_groups()) {
    for (int i = 0; i < group->size(); ++i) sum += group->hits(i);
  }
  return sum;
}

uint64_t goldenrule_gpu_dispatch_misses(void) {
  uint64_t sum = 0;
  for (const KernelTable* group : all_groups()) sum += group->misses();
  return sum;
}

int32_t goldenrule_gpu_dispatch_size(void) {
  int32_t sum = 0;
  for (const KernelTable* group : all_groups()) sum += group->size();
  return sum;
}

const char* goldenrule_gpu_dispatch_name(int32_t i) {
  return goldenrule::gpu::with_entry(
      i, static_cast<const char*>(nullptr),
      [](const KernelTable& group, int at) { return group.name(at); });
}

uint64_t goldenrule_gpu_dispatch_entry_hits(int32_t i) {
  return goldenrule::gpu::with_entry(
      i, uint64_t{0}, [](const KernelTable& group, int at) { return group.hits(at); });
}

const char* goldenrule_gpu_status_name(goldenrule_gpu_status status) {
  switch (status) {
    case GOLDENRULE_GPU_OK:
      return "ok";
    case GOLDENRULE_GPU_INVALID_ARGUMENT:
      return "invalid argument";
    case GOLDENRULE_GPU_UNSUPPORTED:
      return "unsupported";
    case GOLDENRULE_GPU_UNSUPPORTED_ARCHITECTURE:
      return "unsupported architecture";
    case GOLDENRULE_GPU_CUDA_ERROR:
      return "CUDA error";
    case GOLDENRULE_GPU_NO_DEVICE:
      return "no device";
  }
  return "unknown status";
}

}  // extern "C"
