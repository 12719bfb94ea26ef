// SPDX-License-Identifier: Apache-2.0
//
// What a launch must know of the current device, asked once per device and then read from a cache:
// the queries cost more than a launch.
#pragma once

#include "gpu/launch/problem.hpp"

namespace goldenrule::gpu {

/// Devices of a process; one with a higher number is refused.
inline constexpr int kMaxDevices = 64;

struct Device {
  int id = 0;
  int multiprocessors = 0;
  int capability = 0;  ///< 10 * major + minor
};

/// The current device; the problem says why there is none that can run the kernels.
[[nodiscard]] Problem current_device(Device& device);

}  // namespace goldenrule::gpu
