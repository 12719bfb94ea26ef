// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/slices.hpp"

#include "reference/delta/slice.hpp"

namespace goldenrule::suites {

const verdict::Slice& slice_of(call::Op op) {
  switch (op) {
    case call::Op::kGatedDeltaRule:
    case call::Op::kKda:
      return delta::slice();
  }
  return delta::slice();  // unreachable: every operation is handled above
}

std::span<const calls::Mistake> mistakes() { return delta::slice().mistakes(); }

}  // namespace goldenrule::suites
