// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/family.cuh"

namespace goldenrule::gpu {
namespace {

using Here = Family<float, GOLDENRULE_GPU_STATE_KV,
                    Shapes{.one = {{2, 4, 5}, {4, 4, 3}},
                           .few = {{1, 2, 6}, {2, 2, 6}},
                           .any = {{2, 4, 4}, {4, 4, 4}}}>;

}  // namespace

const FamilyEntries& family_f32_kv() { return Here::kEntries; }

}  // namespace goldenrule::gpu
