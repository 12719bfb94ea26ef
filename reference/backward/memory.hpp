// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/verdict/memory.hpp"

namespace goldenrule::backward {

/// What judging a backward pass takes: the tensors, expectations of all gradients, and per thread a
/// lane in the widest tier beside what an emulated kernel keeps of it. Stages are held for one
/// query/key head per thread.
[[nodiscard]] verdict::Need memory_needed(const verdict::Declared& call, int threads);

}  // namespace goldenrule::backward
