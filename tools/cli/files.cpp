// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/files.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "fixtures/isolation/child.hpp"

namespace goldenrule::tools {
namespace {

void announce(double core_seconds) {
  constexpr double kWhile = 60.0;
  if (core_seconds < kWhile) return;
  fmt::print(stderr, "goldenrule: this call will take about {:.0f} core-seconds (--work)\n",
             core_seconds);
}

}  // namespace

arbiter::Limits& limits() {
  static arbiter::Limits of_this_run{.announce = announce};
  return of_this_run;
}

void say_what_is_missing() {
  static bool said = false;
  if (said || limits().trusted) return;
  said = true;
  using isolation::Isolation;
  switch (isolation::available()) {
    case Isolation::kNone:
      fmt::print(stderr,
                 "goldenrule: this system has no child processes: files are read in the "
                 "process itself, as with --trust\n");
      break;
    case Isolation::kProcess:
      fmt::print(stderr,
                 "goldenrule: this kernel has no filter of system calls: the processes that "
                 "read files have limits, but no such filter\n");
      break;
    case Isolation::kProcessAndSystemCalls:
      break;
  }
}

schema::ReadOptions reading(const arbiter::Use& use) {
  say_what_is_missing();
  return limits().reading(use);
}

}  // namespace goldenrule::tools
