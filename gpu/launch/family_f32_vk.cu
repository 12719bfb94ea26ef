// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/family.cuh"

namespace goldenrule::gpu {
namespace {

using Here = Family<float, GOLDENRULE_GPU_STATE_VK,
                    Shapes{.small_one = {2, 2, 8},
                           .large_one = {4, 4, 3},
                           .small_many = {2, 4, 4},
                           .large_many = {4, 4, 4}}>;

}  // namespace

const FamilyEntries& family_f32_vk() { return Here::kEntries; }

}  // namespace goldenrule::gpu
