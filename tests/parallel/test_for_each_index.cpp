// SPDX-License-Identifier: Apache-2.0
#include "fixtures/parallel/for_each_index.hpp"

#include <doctest/doctest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/threads.hpp"

using goldenrule::parallel::for_each_index;

TEST_CASE("every index is a job, once") {
  const goldenrule::test::RestoreThreads restore;
  for (const int threads : {1, 4}) {
    omp_set_num_threads(threads);
    for (const std::int64_t count : {0, 1, 2, 1000}) {
      std::vector<int> done(static_cast<std::size_t>(count));
      for_each_index(count, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
      CHECK(done == std::vector<int>(done.size(), 1));
    }
  }
}

TEST_CASE("the exception of the first index that has one reaches the caller, after all jobs") {
  const goldenrule::test::RestoreThreads restore;
  for (const int threads : {1, 2}) {
    omp_set_num_threads(threads);
    std::atomic<int> done = 0;
    const auto job = [&](std::int64_t i) {
      // On two threads the other one does all later jobs first, and fails in one of them.
      while (i == 23 && omp_get_num_threads() == 2 && done < 98) std::this_thread::yield();
      if (i == 23 || i == 57) throw std::runtime_error("job " + std::to_string(i));
      ++done;
    };
    CHECK_THROWS_WITH_AS(for_each_index(100, job), "job 23", std::runtime_error);
    CHECK(done == 98);
  }
}

TEST_CASE("a single job may start threads of its own") {
  using Clock = std::chrono::steady_clock;
  const goldenrule::test::RestoreThreads restore;
  omp_set_num_threads(4);
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  std::atomic<int> inside = 0;
  for_each_index(1, [&](std::int64_t) {
    for_each_index(2, [&](std::int64_t) {
      ++inside;
      while (inside < 2 && Clock::now() < deadline) std::this_thread::yield();
    });
  });
  CHECK(Clock::now() < deadline);  // each of the two saw the other
}
