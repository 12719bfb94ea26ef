// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/slices.hpp"

#include <array>
#include <vector>

#include "reference/attention/slice.hpp"
#include "reference/backward/slice.hpp"
#include "reference/delta/slice.hpp"
#include "reference/drafts/slice.hpp"

namespace goldenrule::suites {
namespace {

// In the order of call::Family.
const std::array<const verdict::Slice*, call::kFamilyRows.size()>& slices() {
  static const std::array kAll{&delta::slice(), &backward::slice(), &attention::slice(),
                               &drafts::slice()};
  return kAll;
}

}  // namespace

const verdict::Slice& slice_of(call::Op op) {
  return *slices()[static_cast<std::size_t>(call::family_of(op))];
}

std::span<const calls::Mistake> mistakes() {
  static const std::vector<calls::Mistake> all = [] {
    std::vector<calls::Mistake> joined;
    for (const verdict::Slice* slice : slices()) {
      const auto part = slice->mistakes();
      joined.insert(joined.end(), part.begin(), part.end());
    }
    return joined;
  }();
  return all;
}

std::vector<std::string_view> telling_suites() {
  std::vector<std::string_view> names;
  for (const verdict::Slice* slice : slices()) {
    names.insert(names.end(), slice->telling_suites.begin(), slice->telling_suites.end());
  }
  return names;
}

std::span<const calls::Mistake> mistakes_of(call::Op op) {
  std::size_t before = 0;
  for (const verdict::Slice* slice : slices()) {
    if (slice == &slice_of(op)) break;
    before += slice->mistakes().size();
  }
  return mistakes().subspan(before, slice_of(op).mistakes().size());
}

}  // namespace goldenrule::suites
