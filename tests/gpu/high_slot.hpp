// SPDX-License-Identifier: Apache-2.0
//
// A pool beyond 8 GiB: 32-bit offsets of elements or bytes wrap long before its end (public kernels
// did so from slot 4,096 on). The same row in a low and in a high slot must give the same bits.
#pragma once

#include <string>

#include "tests/gpu/live_call.hpp"

namespace goldenrule::test {

/// The rest of a case line, with which a slot has 2 MiB.
inline const std::string kHighSlotShape =
    "B=1 H=16 HV=32 K=128 V=128 state=f32 slots=permuted index=i32";

/// Whether the device has the memory.
[[nodiscard]] bool has_room_for_high_slot();

/// "" or what is wrong with a call whose slot lies beyond 2^31 elements.
[[nodiscard]] std::string high_slot_complaint(const LiveCase& c, const Kernel& kernel);

/// Only runs the call, for the sanitizer.
void run_in_high_slot(const LiveCase& c, const Kernel& kernel);

}  // namespace goldenrule::test
