// SPDX-License-Identifier: Apache-2.0
//
// OMP_NUM_THREADS may ask for more threads than the runtime survives to be asked for.
#pragma once

#include <omp.h>

#include <algorithm>

namespace goldenrule::tools {

/// For the loops that the calling thread starts from here on.
inline void limit_threads() {
  constexpr int kTimesProcessors = 4;
  omp_set_num_threads(std::min(omp_get_max_threads(), kTimesProcessors * omp_get_num_procs()));
}

}  // namespace goldenrule::tools
