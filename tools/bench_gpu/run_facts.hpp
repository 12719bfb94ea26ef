// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace goldenrule::bench {

/// Prints what a time belongs to: the sources of the kernels and their commit, the device and its
/// driver. What cannot be found out is said.
void print_run_facts();

/// Prints the clocks and the power of the moment; called with the device still warm.
void print_clocks();

}  // namespace goldenrule::bench
