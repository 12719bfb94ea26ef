// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/family.cuh"

namespace goldenrule::gpu {
namespace {

using Here = Family<__nv_bfloat16, GOLDENRULE_GPU_STATE_KV,
                    Shapes{.small_one = {4, 4, 4},
                           .large_one = {4, 2, 6, 2},
                           .small_many = {4, 4, 3},
                           .large_many = {4, 4, 4}}>;

}  // namespace

const FamilyEntries& family_bf16_kv() { return Here::kEntries; }

}  // namespace goldenrule::gpu
