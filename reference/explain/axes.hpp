// SPDX-License-Identifier: Apache-2.0
//
// The axes of an output as its author calls them, and which two of them depend on each other in
// what fails (cells.hpp).
#pragma once

#include <optional>

#include "reference/explain/cells.hpp"
#include "reference/explain/failures.hpp"

namespace goldenrule::explain {

/// In the order in which they are said.
enum Axis : std::size_t { kRowAxis, kHeadAxis, kTokenAxis, kKeyAxis, kValueAxis, kAxes };

/// "sequence", "slot", .., "head", "key channel", ..; not of tokens.
[[nodiscard]] AxisName name_of(const Grid& grid, Axis axis);

struct DependentAxes {
  Axis a, b;
  Cells cells;
};

/// The two axes whose failing cells are the least likely by chance. Heads are also taken as groups
/// of one q head, where all heads of a group fail alike.
[[nodiscard]] std::optional<DependentAxes> dependent_axes(const call::Record& record,
                                                          const call::Dims& dims, const Grid& grid,
                                                          const Failures& failures);

}  // namespace goldenrule::explain
