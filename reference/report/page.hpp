// SPDX-License-Identifier: Apache-2.0
//
// The report as a page: one HTML file that needs nothing else, for a reviewer with a telephone as
// much as for one with a desk. Verdicts of all files as a matrix (file x tensor) whose rows lead to
// the files; of a file the explanation, the command that judges it again, and of each tensor the
// distribution of error over budget, the worst element and the error maps (verdict/error_map.hpp).
//
// It is made from the JSON report alone, so a page can be made anywhere from the reports of many
// machines. Texts of files are shown and never obeyed: they are escaped, the page has no script,
// and its Content-Security-Policy allows none.
#pragma once

#include <string>

namespace goldenrule::report {

/// The page of a JSON report of `check` or `diff` (report.hpp), or of several that were merged
/// (merge.hpp). Below 2 MB: where there is more to show, the files that fail come first, then those
/// that could not be judged, and the page says what it leaves out and where that is. Throws
/// Error(kSchema) for another text.
[[nodiscard]] std::string page(const std::string& json);

}  // namespace goldenrule::report
