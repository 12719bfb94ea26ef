// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/family.cuh"

namespace goldenrule::gpu {
namespace {

using Here = Family<__nv_bfloat16, GOLDENRULE_GPU_STATE_VK,
                    Shapes{.small_one = {4, 2, 6},
                           .large_one = {4, 2, 6, 2},
                           .small_many = {2, 4, 4},
                           .large_many = {4, 4, 4}}>;

}  // namespace

const FamilyEntries& family_bf16_vk() { return Here::kEntries; }

}  // namespace goldenrule::gpu
