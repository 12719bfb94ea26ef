// SPDX-License-Identifier: Apache-2.0
//
// How long the host takes for a call, over many of them: a call that compiles, loads, allocates or
// waits now and then is not seen in a median, and is what a serving engine feels. Host only: no
// device is asked anything here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "fixtures/call/error.hpp"

namespace goldenrule::bench {

/// Microseconds.
struct HostTimes {
  std::size_t calls = 0;
  double median = 0, p99 = 0, max = 0;

  [[nodiscard]] double max_over_median() const { return max / median; }
};

/// Goals: a call whose time depends on what it has not seen before took a thousand medians.
inline constexpr double kMostOverMedian = 3.0;
inline constexpr std::uint64_t kMostMisses = 0;

/// Throws Error(kArgument) for no calls.
inline HostTimes summary_of(std::vector<double> us) {
  if (us.empty()) throw Error(ErrorKind::kArgument, "host times", "at least one call", "none");
  std::ranges::sort(us);
  const std::size_t n = us.size();
  return {.calls = n, .median = us[n / 2], .p99 = us[n * 99 / 100], .max = us.back()};
}

/// One line: the times, and both goals with whether they are met.
inline std::string text_of(const HostTimes& times, std::uint64_t misses) {
  const auto goal = [](bool met) { return met ? "met" : "MISSED"; };
  char text[256];
  std::snprintf(text, sizeof text,
                "host time of %zu calls: median %.2f us, 99%% %.2f us, max %.2f us, max/median "
                "%.1f (goal %.0f: %s); dispatch misses %llu (goal %llu: %s)",
                times.calls, times.median, times.p99, times.max, times.max_over_median(),
                kMostOverMedian, goal(times.max_over_median() <= kMostOverMedian),
                static_cast<unsigned long long>(misses),
                static_cast<unsigned long long>(kMostMisses), goal(misses <= kMostMisses));
  return text;
}

}  // namespace goldenrule::bench
