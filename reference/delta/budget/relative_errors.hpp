// SPDX-License-Identifier: Apache-2.0
//
// The errors of runs, averaged over numbers of different size (spread.hpp): in units of what each
// of them holds.
#pragma once

#include "reference/delta/rule/forms.hpp"

namespace goldenrule::delta {

/// sum (run - exact)^2 over the runs, turned into sigma in place: half of it an element's own, half
/// the mean over `together` rows of errors in units of what each element holds, `size2` squared.
/// Elements of less than `smallest`, where the spacing of a type is absolute, say nothing of larger
/// ones; where there are no others, it is their errors together over their sizes together, since
/// the ratio of one that is almost 0 is that of a spacing to nothing. What is not finite says
/// nothing at all.
void to_sigma(Matrix<double>& squares, const Matrix<double>& size2, double smallest,
              Eigen::Index together, int runs);

/// The squared sizes of a state's elements: the mean error of their key channel, times what those
/// of their value channel are of such a mean, K samples a run.
[[nodiscard]] Matrix<double> channel_errors(const Matrix<double>& squares);

}  // namespace goldenrule::delta
