// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/grants.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/call/f32_bound.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::verdict {

double deviation_multiple(std::int64_t n) {
  return std::sqrt(2.0 *
                   std::log(2.0 * static_cast<double>(std::max<std::int64_t>(n, 1)) / kFalseAlarm));
}

Grant empty_grant(const Exact& exact, double multiple, GrantDetail detail) {
  Grant grant;
  grant.given = true;
  grant.multiple = multiple;
  grant.spread.assign(exact.golden.size(), 0.0F);
  if (detail == GrantDetail::kTerms) {
    grant.sigma.assign(exact.golden.size(), 0.0F);
    grant.bias.assign(exact.golden.size(), 0.0F);
  }
  return grant;
}

void store_grant(Grant& to, std::size_t at, double sigma, double bias) {
  to.spread[at] = call::f32_not_below(to.multiple * sigma + bias);
  if (to.sigma.empty()) return;
  to.sigma[at] = call::f32_not_below(sigma);
  to.bias[at] = call::f32_not_below(bias);
}

void admit_infinities(const call::Record& record, const contract::Contract& contract,
                      Expectations& expected) {
  for (auto& [name, e] : expected.outputs) {
    e.grant.infinities.clear();
    const auto output = record.outputs.find(name);
    if (!e.grant.given || output == record.outputs.end()) continue;
    if (!call::info(output->second.dtype()).is_float) continue;
    const Budget budget(name, output->second.dtype(), e, contract);
    for (std::size_t i = 0; i < e.exact.golden.size(); ++i) {
      const bool kept =
          !e.exact.touched.empty() && e.exact.touched[i / e.exact.block] != Touch::kComputed;
      if (kept || !budget.reaches_infinity(i)) continue;
      e.grant.infinities.resize(e.exact.golden.size());
      e.grant.infinities[i] = 1;
    }
  }
}

}  // namespace goldenrule::verdict
