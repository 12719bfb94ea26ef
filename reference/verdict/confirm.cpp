// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/confirm.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/parallel/for_each_index.hpp"

namespace goldenrule::verdict {

Compared::Compared(const std::string& name, const call::TensorMap& outputs,
                   const Expected* expected, const contract::Contract& contract)
    : expected_(expected) {
  const auto output = outputs.find(name);
  if (output == outputs.end() || expected == nullptr || !expected->grant.given) return;
  output_ = &output->second;
  budget_.emplace(name, output_->dtype(), *expected, contract);
}

bool Compared::is_out(std::size_t at) const {
  if (!budget_) return false;
  const double error =
      std::fabs((*output_)[static_cast<std::int64_t>(at)] - expected_->exact.golden[at]);
  return std::isfinite(error) &&
         error > static_cast<double>(expected_->exact.radius[at]) + (*budget_)(at);
}

std::vector<std::int64_t> fewest_out(
    std::int64_t parts, std::int64_t most,
    const std::function<std::int64_t(std::int64_t part)>& count_out) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(parts));
  parallel::for_each_index(
      parts, [&](std::int64_t i) { counts[static_cast<std::size_t>(i)] = count_out(i); });
  const auto count = [&](std::int64_t i) { return counts[static_cast<std::size_t>(i)]; };
  std::vector<std::int64_t> failing;
  for (std::int64_t i = 0; i < parts; ++i) {
    if (count(i) > 0) failing.push_back(i);
  }
  std::ranges::stable_sort(failing, {}, count);
  const auto kept = std::clamp<std::int64_t>(most, 0, std::ssize(failing));
  failing.resize(static_cast<std::size_t>(kept));
  return failing;
}

void confirm_parts(std::int64_t parts, double work, double of_run,
                   const std::function<std::int64_t(std::int64_t part)>& count_out,
                   const std::function<void(std::int64_t part, int runs)>& ask) {
  const double of_part = of_run / static_cast<double>(std::max<std::int64_t>(parts, 1));
  for (const int runs : kConfirmingRuns) {
    const auto most = static_cast<std::int64_t>(work / (of_part * runs));
    const std::vector<std::int64_t> failing = fewest_out(parts, most, count_out);
    parallel::for_each_index(std::ssize(failing), [&](std::int64_t i) {
      ask(failing[static_cast<std::size_t>(i)], runs);
    });
    work -= of_part * runs * static_cast<double>(failing.size());
  }
}

}  // namespace goldenrule::verdict
