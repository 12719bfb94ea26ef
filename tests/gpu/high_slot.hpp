// SPDX-License-Identifier: Apache-2.0
//
// A pool beyond 8 GiB: 32-bit offsets of elements or bytes wrap long before its end (public kernels
// did so from slot 4,096 on). The same row in a low and in a high slot must give the same bits.
#pragma once

#include <string>

#include "tests/gpu/live_call.hpp"

namespace goldenrule::test {

/// Whether the device has the memory.
[[nodiscard]] bool has_room_for_high_slot();

/// "" or what is wrong with a call whose slot lies beyond 2^31 elements. `c` has no index tensors;
/// its heads and extents are replaced by those that make a slot 2 MiB.
[[nodiscard]] std::string high_slot_complaint(Case c, Kernel kernel);

/// Only runs the call, for the sanitizer.
void run_in_high_slot(Case c, Kernel kernel);

}  // namespace goldenrule::test
