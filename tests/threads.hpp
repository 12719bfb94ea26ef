// SPDX-License-Identifier: Apache-2.0
//
// For tests that ask what the number of threads changes.
#pragma once

#include <omp.h>

namespace goldenrule::test {

/// Restores the number of threads that the process had.
class RestoreThreads {
 public:
  RestoreThreads() : before_(omp_get_max_threads()) {}
  ~RestoreThreads() { omp_set_num_threads(before_); }
  RestoreThreads(const RestoreThreads&) = delete;
  RestoreThreads& operator=(const RestoreThreads&) = delete;

 private:
  int before_;
};

}  // namespace goldenrule::test
