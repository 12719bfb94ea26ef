// SPDX-License-Identifier: Apache-2.0
//
// What the kernels are run on beyond the suites: every shape at which a kernel has a tail, in every
// layout and type, every convention, every use of slots, every placement. Data: a list is a text of
// lines as in placement.hpp, so that a list can be read, extended and quoted.
#pragma once

#include <span>
#include <string_view>

namespace goldenrule::test {

struct CaseList {
  std::string_view name, lines;
};

[[nodiscard]] std::span<const CaseList> case_lists();
/// Throws Error(kArgument) for an unknown name.
[[nodiscard]] const CaseList& case_list(std::string_view name);

}  // namespace goldenrule::test
