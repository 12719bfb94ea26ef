// SPDX-License-Identifier: Apache-2.0
#include "reference/scalar/tier.hpp"

namespace goldenrule::scalar {
namespace {

// f(tier) for the tier of `precision`.
template <class F>
auto with_tier(Precision precision, F&& f) {
  switch (precision) {
    case Precision::kDouble:
      return f(Tier<double>());
    case Precision::kQuad:
      return f(Tier<Quad>());
    case Precision::kMulti:
      break;
  }
  return f(Tier<Multi>());
}

}  // namespace

std::string_view name_of(Precision precision) {
  return with_tier(precision, [](auto tier) { return decltype(tier)::kName; });
}

int bits_of(Precision precision) {
  return with_tier(precision, [](auto tier) { return decltype(tier)::kBits; });
}

}  // namespace goldenrule::scalar
