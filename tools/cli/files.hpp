// SPDX-License-Identifier: Apache-2.0
//
// How the program reads files that it was given: each in a child process of its own, unless the
// user trusts them, and only where the memory that its call needs is there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fixtures/schema/read.hpp"
#include "reference/verdict/memory.hpp"
#include "reference/verdict/work.hpp"

namespace goldenrule::tools {

/// Files are read in this process from here on (--trust).
void trust_files();

/// What a call may need from here on (--memory); before, three quarters of what the machine, or the
/// control group of this process, has left, but for a small file at most 1 GiB.
void limit_memory(std::uint64_t bytes);
[[nodiscard]] double most_bytes();

/// Refuses a call that needs more memory than there is: Error(kUnsafe) with both numbers.
void admit(const verdict::Declared& call, bool explained);

/// The same for tensors that alone are more than there is, before they are copied.
void admit_tensors(double bytes);
/// The same of a simulated server of which something needs so many bytes.
void admit_scenario(const std::string& line, double bytes);

/// Core-seconds that the verdict on a call may take from here on (--work); before, an hour.
void limit_work(double core_seconds);
/// That limit, of the call in `file`; what takes a while is announced on stderr. Where none was
/// given, a small file has a small one.
[[nodiscard]] verdict::WorkLimit work_limit(const std::string& file);
/// Seconds that are looked for the mistake behind the failure of `file` at most, where none are
/// given.
[[nodiscard]] double most_explain_seconds(const std::string& file);

/// What is done with the tensors of a file.
struct Use {
  bool explained = false;           ///< a failure may be explained
  std::vector<std::string> only{};  ///< the outputs that are judged; empty: all
  bool compared = false;            ///< everything stands in memory twice: it is made again
};

/// Where to read, and a refusal of calls that need more memory than there is: Error(kUnsafe) with
/// both numbers, before any tensor is read. Says once on stderr what this system cannot do.
[[nodiscard]] schema::ReadOptions reading(const Use& use);

}  // namespace goldenrule::tools
