// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/family.cuh"

namespace goldenrule::gpu {
namespace {

using Here = Family<__nv_bfloat16, GOLDENRULE_GPU_STATE_VK,
                    Shapes{.one = {{4, 2, 6}, {4, 2, 6, 2}},
                           .few = {{1, 2, 6}, {2, 2, 8}},
                           .any = {{2, 4, 4}, {4, 4, 4}}}>;

}  // namespace

const FamilyEntries& family_bf16_vk() { return Here::kEntries; }

}  // namespace goldenrule::gpu
