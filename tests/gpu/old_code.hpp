// SPDX-License-Identifier: Apache-2.0
//
// A kernel that is there as PTX for 8.0 alone, which a newer device compiles: it calls what waits
// for the kernel in front, and there the call is nothing.
#pragma once

namespace goldenrule::test {

/// Its only parameter.
struct CopyOfOne {
  int* to;
  const int* from;
};

[[nodiscard]] const void* kernel_of_old_code();

}  // namespace goldenrule::test
