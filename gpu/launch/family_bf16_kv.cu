// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/family.cuh"

namespace goldenrule::gpu {
namespace {

using Here = Family<__nv_bfloat16, GOLDENRULE_GPU_STATE_KV,
                    Shapes{.one = {{4, 4, 4}, {4, 2, 6, 2}},
                           .few = {{1, 2, 6}, {2, 2, 8}},
                           .any = {{4, 4, 3}, {4, 4, 4}}}>;

}  // namespace

const FamilyEntries& family_bf16_kv() { return Here::kEntries; }

}  // namespace goldenrule::gpu
