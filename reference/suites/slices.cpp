// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/slices.hpp"

#include <vector>

#include "reference/attention/slice.hpp"
#include "reference/delta/slice.hpp"

namespace goldenrule::suites {

const verdict::Slice& slice_of(call::Op op) {
  switch (op) {
    case call::Op::kGatedDeltaRule:
    case call::Op::kKda:
      return delta::slice();
    case call::Op::kAttention:
      return attention::slice();
  }
  return delta::slice();  // unreachable: every operation is handled above
}

std::span<const calls::Mistake> mistakes() {
  static const std::vector<calls::Mistake> all = [] {
    std::vector<calls::Mistake> joined;
    for (const auto part : {delta::slice().mistakes(), attention::slice().mistakes()}) {
      joined.insert(joined.end(), part.begin(), part.end());
    }
    return joined;
  }();
  return all;
}

std::span<const calls::Mistake> mistakes_of(call::Op op) {
  const std::size_t of_delta = delta::slice().mistakes().size();
  return call::is_attention(op) ? mistakes().subspan(of_delta) : mistakes().first(of_delta);
}

}  // namespace goldenrule::suites
