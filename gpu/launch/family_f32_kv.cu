// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/family.cuh"

namespace goldenrule::gpu {
namespace {

using Here = Family<float, GOLDENRULE_GPU_STATE_KV,
                    Shapes{.small_one = {2, 4, 5},
                           .large_one = {4, 2, 6},
                           .small_many = {2, 4, 4},
                           .large_many = {4, 4, 4}}>;

}  // namespace

const FamilyEntries& family_f32_kv() { return Here::kEntries; }

}  // namespace goldenrule::gpu
