// SPDX-License-Identifier: Apache-2.0
//
// The limits of this run of the program, as its options set them.
#pragma once

#include "fixtures/schema/read.hpp"
#include "reference/arbiter/limits.hpp"

namespace goldenrule::tools {

/// Set from the options before any command runs.
[[nodiscard]] arbiter::Limits& limits();

/// Once on stderr: what of the isolation of files this system cannot do.
void say_what_is_missing();

/// How this run reads a file (arbiter::Limits::reading), after say_what_is_missing.
[[nodiscard]] schema::ReadOptions reading(const arbiter::Use& use);

}  // namespace goldenrule::tools
