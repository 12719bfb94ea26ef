// SPDX-License-Identifier: Apache-2.0
//
// How the program reads files that it was given: each in a child process of its own, unless the
// user trusts them.
#pragma once

#include "fixtures/schema/read.hpp"

namespace goldenrule::tools {

/// Files are read in this process from here on (--trust).
void trust_files();

/// Where to read. Says once on stderr what this system cannot do.
[[nodiscard]] schema::Reader reader();

}  // namespace goldenrule::tools
