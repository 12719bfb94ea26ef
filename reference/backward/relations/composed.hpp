// SPDX-License-Identifier: Apache-2.0
//
// Bounds of numbers that are made of several elements, or of a call that is given what another one
// stored. What a contract grants is per element; how the errors of elements hang together it does
// not say, and adding up their bounds would grant as much as there is signal. So honest kernels are
// emulated, and the same number is made of what they return. An exact kernel has two equal sides.
// With w a bound on their difference for errors that are independent, defect / w of R runs has a
// mean square rho^2 over the elements of a tensor, and
//
//   bound = w max(1, m rho),
//
// m the number of sigmas that n elements and R runs ask for (delta/budget/spread.hpp). Neither w
// nor rho is of calls that take what the judged kernel returned: w is granted to calls that take
// the exact result in its place, and rho is of emulated kernels alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/delta/relations/trial.hpp"

namespace goldenrule::backward {

/// Two sides that an exact kernel makes equal, named after an element of the original call.
struct Sides {
  std::string tensor;
  std::size_t at = 0;
  double expected = 0.0, actual = 0.0;
  double independent = 0.0;  ///< w; relations::kNotGranted: nothing is granted
};
/// A call by some kernel.
using Runner = std::function<relations::Run(call::Record)>;
/// What a kernel, which has made `whole` of the original call, makes of the two sides, always of
/// the same elements in the same order; w is read where `grants`.
using Composition =
    std::function<std::vector<Sides>(const relations::Run& whole, const Runner& run, bool grants)>;

/// Claims that the sides are equal within the bound.
void claim_composed(relations::Trial& trial, const Composition& composition);

}  // namespace goldenrule::backward
