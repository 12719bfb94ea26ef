// SPDX-License-Identifier: Apache-2.0
#include "fixtures/parallel/stop.hpp"

#include <doctest/doctest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "fixtures/parallel/for_each_index.hpp"
#include "tests/threads.hpp"

using goldenrule::parallel::for_each_index;
using goldenrule::parallel::Stoppable;
using goldenrule::parallel::Stopped;

TEST_CASE("a flag ends a loop before its next job, on one thread and on several") {
  const goldenrule::test::RestoreThreads restore;
  for (const int threads : {1, 4}) {
    omp_set_num_threads(threads);
    std::atomic<bool> flag = false;
    std::atomic<int> begun = 0;
    const Stoppable lent(&flag);
    const auto job = [&](std::int64_t) {
      if (++begun >= 10) flag = true;
    };
    CHECK_THROWS_AS(for_each_index(1000, job), Stopped);
    CHECK(begun >= 10);
    CHECK(begun < 10 + threads);  // those that had begun when the flag was set
  }
}

TEST_CASE("a flag ends the loops inside a job, on whichever thread it runs") {
  const goldenrule::test::RestoreThreads restore;
  omp_set_num_threads(2);
  std::atomic<bool> flag = false;
  std::atomic<int> inner = 0;
  std::atomic<int> outer = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const Stoppable lent(&flag);
  const auto job = [&](std::int64_t) {
    ++outer;  // each of the two is on a thread of its own
    while (outer < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    for_each_index(1000, [&](std::int64_t) {
      if (++inner >= 10) flag = true;
    });
  };
  CHECK_THROWS_AS(for_each_index(2, job), Stopped);
  CHECK(inner < 10 + 2);
}

TEST_CASE("a flag serves its scope and no other thread's loops") {
  std::atomic<bool> flag = true;
  int done = 0;
  {
    const Stoppable lent(&flag);
    CHECK_THROWS_AS(for_each_index(1, [&](std::int64_t) { ++done; }), Stopped);
  }
  for_each_index(1, [&](std::int64_t) { ++done; });
  CHECK(done == 1);
}
