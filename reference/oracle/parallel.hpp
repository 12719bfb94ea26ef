// SPDX-License-Identifier: Apache-2.0
//
// The one place where threads are started. Every index is an independent job that writes its own
// results, so nothing depends on the number of threads; the first exception of a job is rethrown
// on the calling thread, since one that leaves an OpenMP region would end the program.
#pragma once

#include <cstdint>
#include <exception>

namespace goldenrule::oracle {

template <class F>
void parallel_for(std::int64_t count, F&& job) {
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      job(i);
    } catch (...) {
#pragma omp critical(goldenrule_parallel_for)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace goldenrule::oracle
