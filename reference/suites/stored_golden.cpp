// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/stored_golden.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "fixtures/call/error.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/suites/golden.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::suites {
namespace {

using scalar::Precision;

double largest(const std::vector<double>& golden) {
  double found = 0.0;
  for (const double x : golden) {
    if (std::isfinite(x)) found = std::max(found, std::fabs(x));
  }
  return found;
}

// What the radius of a wide tier is: the rounding of the largest value to f64, 2^-53 of it, itself
// rounded up to f32. Its own error is 2^-53 of that or less, hence the last factor.
double rounding_radius(double largest) {
  return static_cast<double>(call::f32_not_below(0x1p-53 * largest)) * (1.0 + 0x1p-22);
}

Error refusal(const std::string& name, const call::Shape& index, const std::string& expected,
              double actual) {
  return {ErrorKind::kValue, "/golden/" + name + call::to_string(index), expected,
          fmt::format("{:.17g}", actual)};
}

// The first element that is not what it should be, or a radius that is too large.
std::optional<Error> disagreement(const std::string& name, const schema::GoldenTensor& stored,
                                  const verdict::Exact& expected, double largest_radius, int bits) {
  if (!(stored.radius <= largest_radius)) {
    return Error(ErrorKind::kValue, "/golden/" + name + "@radius",
                 fmt::format("at most {:.9g}, recomputed with {} bits", largest_radius, bits),
                 fmt::format("{:.9g}", stored.radius));
  }
  for (std::int64_t i = 0; i < stored.value.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double value = stored.value[i];
    const double exact = expected.golden[at];
    const auto refuse = [&](const std::string& what) {
      return refusal(name, call::unravel(expected.shape, i), what, value);
    };
    if (!expected.is_defined(at)) {
      if (!std::isnan(value)) return refuse("NaN, since no kernel writes this element");
    } else if (!std::isfinite(exact)) {
      if (!expected.admits_nonfinite(at, value)) return refuse("NaN or Inf, as recomputed");
    } else {
      const double radius = stored.radius + static_cast<double>(expected.radius[at]);
      if (!std::isfinite(radius)) return refuse("a value that the oracle can certify");
      if (!(std::fabs(value - exact) <= radius)) {
        return refuse(
            fmt::format("{:.17g} +- {:.3g}, recomputed with {} bits", exact, radius, bits));
      }
    }
  }
  return std::nullopt;
}

// Inputs that are not finite, or an overflow in this tier: the two look alike.
bool has_nonfinite(const verdict::Exact& expected) {
  for (std::size_t i = 0; i < expected.golden.size(); ++i) {
    if (expected.is_defined(i) && !std::isfinite(expected.golden[i]) &&
        !expected.is_right_infinity(i)) {
      return true;
    }
  }
  return false;
}

verdict::Expectations recompute(const schema::Fixture& fixture, Precision tier) {
  return slice_of(fixture.record.op)
      .evaluate(fixture.record, tier, {.kept_states = call::has_kept_states(fixture.golden)});
}

// Whether double precision alone shows that the file is right. Where its own radius is not small
// beside the values (calls that expand, 1e-9 being far above what others need), it cannot.
bool is_plainly_right(const schema::Fixture& fixture) {
  const verdict::Expectations again = recompute(fixture, Precision::kDouble);
  return std::ranges::all_of(fixture.golden, [&](const auto& item) {
    const auto& [name, stored] = item;
    const verdict::Exact& expected = again.outputs.at(name).exact;
    const double signal = largest(expected.golden);
    return expected.max_radius() <= 1e-9 * signal && !has_nonfinite(expected) &&
           !disagreement(name, stored, expected, rounding_radius(signal), 53);
  });
}

}  // namespace

void check_stored_golden(const schema::Fixture& fixture) {
  const Precision named = stored_precision(fixture).value_or(Precision::kMulti);
  if (named != Precision::kDouble && is_plainly_right(fixture)) return;
  const verdict::Expectations again = recompute(fixture, named);
  for (const auto& [name, stored] : fixture.golden) {
    const verdict::Exact& expected = again.outputs.at(name).exact;
    const auto found =
        disagreement(name, stored, expected, expected.max_radius(), scalar::bits_of(named));
    if (found) throw *found;
  }
}

}  // namespace goldenrule::suites
