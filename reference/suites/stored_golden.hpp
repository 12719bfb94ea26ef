// SPDX-License-Identifier: Apache-2.0
//
// Are the golden values of a file those of its inputs? They come from a stranger: a kernel that was
// judged against them would be told what their author likes. No verdict is made from them; but a
// file whose golden values are not those of its call is refused, since whoever compares with them
// by other means would be misled.
#pragma once

#include "fixtures/schema/fixture.hpp"

namespace goldenrule::suites {

/// Recomputes the golden values. Throws Error(kValue) naming the dataset unless
/// - every value lies within stored and recomputed radius of the recomputed one, is NaN where no
///   kernel writes the element, and is not finite just where the recomputed one is not;
/// - the stored radius is at most that of the tier which the file names (the widest where it names
///   none).
/// Most files cost one evaluation in double: it says yes for files whose values fit and whose
/// radius is the rounding to f64. Only the tier that the file names says no.
void check_stored_golden(const schema::Fixture& fixture);

}  // namespace goldenrule::suites
