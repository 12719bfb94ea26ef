// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/channels.hpp"

#include <algorithm>
#include <cmath>

namespace goldenrule::verdict {

void Channels::clear() { std::ranges::fill(sums_, Sums()); }

void Channels::add(std::size_t element, double golden, double budget) {
  const Exact& exact = expected_->exact;
  Sums& channel = sums_[element % exact.block / exact.run % exact.channels];
  if (channel.count++ == 0) channel.first = static_cast<std::int64_t>(element);
  const double unit = unit_of(element);
  const auto squared = [unit](double x) { return x / unit * (x / unit); };
  channel.golden2 += golden * golden;
  channel.budget2 += budget * budget;
  channel.signal2 += squared(golden);
  channel.spread2 += squared(budget_->spread(element));
  channel.flushed2 += squared(budget_->flushed(element));
}

double Channels::unit_of(std::size_t element) const {
  const std::vector<float>& all = expected_->exact.unit;
  if (all.empty() || !expected_->exact.reach.empty()) return 1.0;
  return all[element] > 0.0F ? static_cast<double>(all[element]) : 1.0;
}

std::vector<ChannelSignal> Channels::signals(std::size_t block) {
  const std::vector<char>& all = expected_->grant.anything;
  const bool anything = !all.empty() && all[block] != 0;
  const double relative2 = std::max(1.0, mean_relative());
  if (expected_->exact.reach.empty() && sums_.size() == expected_->exact.block) pool();
  std::vector<ChannelSignal> signals;
  for (const Sums& channel : sums_) {
    if (channel.count > 0) signals.push_back(signal_of(channel, relative2, anything));
  }
  return signals;
}

void Channels::pool() {
  Sums all;
  for (Sums& channel : sums_) {
    if (channel.count == 0) continue;
    if (all.count == 0) all.first = channel.first;
    all.count += channel.count;
    all.golden2 += channel.golden2;
    all.budget2 += channel.budget2;
    all.signal2 += channel.signal2;
    all.spread2 += channel.spread2;
    all.flushed2 += channel.flushed2;
    channel = {};
  }
  sums_.front() = all;
}

double Channels::reach_of(const Sums& channel) const {
  const std::vector<float>& all = expected_->exact.reach;
  const auto at = static_cast<std::size_t>(channel.first);
  return all.empty() ? 0.0 : static_cast<double>(all[expected_->exact.channel(at)]);
}

double Channels::mean_relative() const {
  double sum = 0.0;
  double count = 0.0;
  for (const Sums& channel : sums_) {
    const double reach = channel.count > 0 ? reach_of(channel) : 0.0;
    const double relative = channel.golden2 / (reach * reach);
    if (reach == 0.0 || !std::isfinite(relative)) continue;
    sum += relative;
    count += 1.0;
  }
  return count > 0.0 ? sum / count : 0.0;
}

ChannelSignal Channels::signal_of(const Sums& channel, double relative2, bool anything) const {
  const bool logarithms = expected_->exact.logarithms;
  const double reach = reach_of(channel);
  const double held2 =
      std::max(relative2 * reach * reach, logarithms ? static_cast<double>(channel.count) : 0.0);
  const double signal2 = std::max(channel.signal2, held2);
  // Below what fp32 can hold every kernel returns 0, and no budget can tell it from another. Where
  // the exact result is 0 whatever the numbers are (dg of a token that no state precedes), 0 is
  // right, and the budget is what an honest kernel leaves beside it.
  const bool is_granted = channel.spread2 > channel.flushed2 && channel.spread2 >= signal2 &&
                          !(signal2 == 0.0 && !expected_->exact.reach.empty());
  return {.first = channel.first,
          .budget2 = channel.budget2,
          .signal2 = std::max(channel.golden2, held2),
          .is_zero = channel.golden2 == 0.0 && !logarithms,
          .is_vacuous = anything || is_granted};
}

}  // namespace goldenrule::verdict
