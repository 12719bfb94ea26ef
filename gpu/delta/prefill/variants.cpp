// SPDX-License-Identifier: Apache-2.0
#include "gpu/delta/prefill/variants.hpp"

#include <algorithm>
#include <iterator>

#include "gpu/delta/prefill/args_fields.hpp"
#include "gpu/launch/check_args.hpp"

namespace goldenrule::gpu::prefill {
namespace {

Kernel kernel_at(int i) {
  for (const Variant* variant : kVariants) {
    if (i < variant->kernels) return variant->kernel(i);
    i -= variant->kernels;
  }
  return {};
}

bool is_loaded(const Variant& variant, const Device& device) {
  const int first = first_kernel(variant);
  for (int i = first; i < first + variant.kernels; ++i) {
    if (!kernels().is_loaded(i, device.id)) return false;
  }
  return true;
}

int count_kernels() {
  int count = 0;
  for (const Variant* variant : kVariants) count += variant->kernels;
  return count;
}

}  // namespace

Problem Launch::kernel(int i, std::int64_t blocks, void* argument, bool is_dependent) const {
  const LaunchPlan plan{
      .device = device.id, .blocks = static_cast<unsigned>(blocks), .dependent = is_dependent};
  return kernels().launch(first + i, plan, argument, stream);
}

const Variant& select(const Params& params, const Device& device) {
  return **std::find_if(
      std::begin(kVariants), std::prev(std::end(kVariants)),
      [&](const Variant* v) { return v->serves(params, device) && is_loaded(*v, device); });
}

std::size_t workspace_size(const Args& args) {
  Problem problem;
  check_choices<Group>(args, problem);
  if (problem.ok()) check_extents<Group>(args, problem);
  if (!problem.ok()) return 0;
  const Sizes sizes{.kda = args.op == GOLDENRULE_GPU_KDA,
                    .precise = (args.flags & GOLDENRULE_GPU_FLAG_PRECISE) != 0,
                    .never_split = (args.flags & GOLDENRULE_GPU_FLAG_NEVER_SPLIT) != 0,
                    .total = args.total,
                    .N = args.N,
                    .H = args.H,
                    .HV = args.HV,
                    .K = args.K,
                    .V = args.V,
                    .checkpoint_rows = args.checkpoint_rows};
  std::size_t most = 0;
  for (const Variant* variant : kVariants) {
    if (variant->workspace != nullptr) most = std::max(most, variant->workspace(sizes));
  }
  return most;
}

KernelTable& kernels() {
  static KernelTable table(count_kernels(), kernel_at);
  return table;
}

int first_kernel(const Variant& variant) {
  int first = 0;
  for (const Variant* v : kVariants) {
    if (v == &variant) break;
    first += v->kernels;
  }
  return first;
}

}  // namespace goldenrule::gpu::prefill
