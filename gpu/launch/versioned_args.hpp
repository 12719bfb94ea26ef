// SPDX-License-Identifier: Apache-2.0
//
// Aggregates of callers that were compiled against another version of the header. Fields are only
// ever added, at the end, and 0 says that a new one is not used. So what an older caller does not
// have is 0, and what a newer one has beyond our own may be ignored as long as it is 0.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "gpu/launch/guard.hpp"

namespace goldenrule::gpu {

/// Above every size that an aggregate will have: a struct_size that was never set is not followed.
inline constexpr std::uint64_t kMostStructBytes = 1 << 16;

/// Fills `args`, the aggregate of this version, from what the caller has.
template <class Group>
[[nodiscard]] Problem take_args(const typename Group::Args* given, typename Group::Args& args) {
  if (given == nullptr) return null_problem("args");
  Problem problem;
  std::uint64_t size = 0;
  std::memcpy(&size, given, sizeof size);  // the first field of every version
  if (size < Group::kFirstSize || size > kMostStructBytes || size % sizeof size != 0) {
    problem.invalid("struct_size", std::to_string(sizeof args) + " (sizeof the aggregate)",
                    std::to_string(size));
    return problem;
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const std::uint64_t known = std::min<std::uint64_t>(size, sizeof args);
  args = {};
  std::memcpy(&args, bytes, known);
  args.struct_size = sizeof args;
  if (std::any_of(bytes + known, bytes + size, [](unsigned char byte) { return byte != 0; })) {
    problem.report(GOLDENRULE_GPU_UNSUPPORTED, "struct_size",
                   std::to_string(sizeof args) + ", or 0 in all that lies beyond (version " +
                       std::to_string(GOLDENRULE_GPU_VERSION) + ")",
                   std::to_string(size) + " and a field in use that is not known here");
  }
  return problem;
}

/// The defaults of this version in as much as the caller's aggregate has room for.
template <class Group>
void give_defaults(typename Group::Args* to, std::size_t struct_size) {
  if (to == nullptr || struct_size < sizeof(std::uint64_t)) return;
  typename Group::Args args;
  set_defaults<Group>(args);
  args.struct_size = struct_size;
  const std::size_t known = std::min(struct_size, sizeof args);
  std::memcpy(to, &args, known);
  if (struct_size <= kMostStructBytes) {
    std::memset(reinterpret_cast<unsigned char*>(to) + known, 0, struct_size - known);
  }
}

}  // namespace goldenrule::gpu
