// SPDX-License-Identifier: Apache-2.0
//
// What judging a file that nobody vouches for may take. A file of a few kilobytes may declare
// tensors of terabytes, so what a call needs is known from its shapes (verdict/work.hpp and the
// slice's memory_needed) and refused before any tensor is read. A small file gets less by default:
// whoever crafted it should not keep a machine busy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/schema/read.hpp"
#include "reference/verdict/slice.hpp"
#include "reference/verdict/work.hpp"

namespace goldenrule::arbiter {

/// What is done with the tensors of a file.
struct Use {
  bool explained = false;           ///< a failure may be explained
  std::vector<std::string> only{};  ///< the outputs that are judged; empty: all
  bool compared = false;            ///< everything stands in memory twice: it is made again
};

struct Limits {
  /// Bytes that a call may need. None: three quarters of what the machine, or the control group of
  /// this process, has left, but for a small file at most 1 GiB.
  std::optional<std::uint64_t> memory{};
  /// Core-seconds that the verdict on a call may take. None: an hour, for a small file 30 s.
  std::optional<double> core_seconds{};
  /// Files are read in this process, not in a child process of their own.
  bool trusted = false;
  /// Told how many core-seconds a verdict will take, as estimated; none: nobody is.
  void (*announce)(double core_seconds) = nullptr;

  [[nodiscard]] std::uint64_t most_bytes() const;
  /// Throws Error(kUnsafe) with both numbers for a call that needs more memory than there is.
  void admit(const verdict::Declared& call, bool explained) const;
  /// The same for tensors that alone are more than there is, before they are copied.
  void admit_tensors(double bytes) const;
  /// The same of a simulated server of which something needs so many bytes.
  void admit_scenario(const std::string& line, double bytes) const;
  /// Of the verdict on the call in `file`.
  [[nodiscard]] verdict::WorkLimit work(const std::string& file) const;
  /// Where to read, and a refusal of calls that need more memory than there is: Error(kUnsafe) with
  /// both numbers, before any tensor is read.
  [[nodiscard]] schema::ReadOptions reading(const Use& use) const;
};

/// Core-seconds, as estimated, that are spent on the mistake behind the failure of `file` at most,
/// where none are given.
[[nodiscard]] double most_explain_seconds(const std::string& file);

}  // namespace goldenrule::arbiter
