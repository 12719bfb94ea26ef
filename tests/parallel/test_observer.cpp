// SPDX-License-Identifier: Apache-2.0
#include "fixtures/parallel/observer.hpp"

#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "fixtures/parallel/for_each_index.hpp"
#include "tests/threads.hpp"

using goldenrule::parallel::for_each_index;
using goldenrule::parallel::Observed;
using goldenrule::parallel::Phase;

namespace {

// "oracle 1/3", in the order of the reports.
class Log : public goldenrule::parallel::Observer {
 public:
  void progressed(const char* phase, std::int64_t done, std::int64_t total) override {
    const std::lock_guard lock(mutex_);
    lines.push_back(std::string(phase) + " " + std::to_string(done) + "/" + std::to_string(total));
  }
  std::vector<std::string> lines;

 private:
  std::mutex mutex_;
};

using Lines = std::vector<std::string>;
void nothing(std::int64_t) {}

}  // namespace

TEST_CASE("an observer hears of the jobs of a loop, under the name of the phase, while installed") {
  const goldenrule::test::RestoreThreads restore;
  omp_set_num_threads(1);
  Log log;
  for_each_index(2, nothing);
  {
    const Observed observed(log);
    const Phase phase("oracle");
    for_each_index(2, nothing);
    for_each_index(1, nothing);  // a single job is no progress
  }
  for_each_index(2, nothing);
  CHECK(log.lines == Lines{"oracle 1/2", "oracle 2/2"});
}

TEST_CASE("jobs on several threads are counted once each") {
  const goldenrule::test::RestoreThreads restore;
  omp_set_num_threads(4);
  Log log;
  const Observed observed(log);
  for_each_index(100, nothing);
  REQUIRE(log.lines.size() == 100);
  std::ranges::sort(log.lines);
  CHECK(std::ranges::adjacent_find(log.lines) == log.lines.end());
}

TEST_CASE("loops inside a job, or inside a phase that counts for itself, are silent") {
  const goldenrule::test::RestoreThreads restore;
  omp_set_num_threads(1);
  Log log;
  const Observed observed(log);
  for_each_index(2, [](std::int64_t) { for_each_index(3, nothing); });
  CHECK(log.lines == Lines{" 1/2", " 2/2"});
  log.lines.clear();
  {
    Phase search("search", 2);
    for_each_index(3, nothing);
    search.advance();
    Phase inner("inner", 7);
    inner.advance();
    search.advance();
  }
  CHECK(log.lines == Lines{"search 1/2", "search 2/2"});
  log.lines.clear();
  for_each_index(2, nothing);
  CHECK(log.lines.size() == 2);
}

TEST_CASE("a job that throws does not silence the loops after it") {
  const goldenrule::test::RestoreThreads restore;
  omp_set_num_threads(1);
  Log log;
  const Observed observed(log);
  CHECK_THROWS(for_each_index(2, [](std::int64_t) { throw std::runtime_error("no"); }));
  log.lines.clear();
  for_each_index(2, nothing);
  CHECK(log.lines.size() == 2);
}
