// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/line_match.hpp"

#include <algorithm>
#include <cmath>

namespace goldenrule::explain {
namespace {

constexpr std::int64_t kCompared = 1024;  // lines of a source, for one captured line
constexpr std::size_t kKeys = 8;          // channels that lines may be sorted by
constexpr std::size_t kSample = 64;       // lines and channels from which bits are estimated

// `most` of `count` numbers from 0, spread over all.
std::vector<std::int64_t> spread_over(std::int64_t count, std::size_t most) {
  const std::int64_t n = std::min(count, static_cast<std::int64_t>(most));
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back(i * count / n);
  return all;
}

double median(std::vector<double> x) {
  if (x.empty()) return 0.0;
  const auto middle = x.begin() + std::ssize(x) / 2;
  std::ranges::nth_element(x, middle);
  return *middle;
}

}  // namespace

LineMatcher::LineMatcher(const WrongLines& wrong, const LineSource& source)
    : wrong_(wrong), source_(source), sample_(spread_over(source.view.count(), kSample)) {
  // The channel with most different numbers: a state may have channels of zeros.
  std::size_t most = 0;
  std::size_t best = wrong.channels.front();
  for (const std::int64_t c : spread_over(std::ssize(wrong.channels), kKeys)) {
    sort_by(wrong.channels[static_cast<std::size_t>(c)]);
    std::size_t different = sorted_.empty() ? 0 : 1;
    for (std::size_t i = 1; i < sorted_.size(); ++i) {
      different += sorted_[i].first > sorted_[i - 1].first ? 1 : 0;
    }
    if (different <= most) continue;
    most = different;
    best = key_;
  }
  sort_by(best);
  dimensions_ = dimensions();
}

void LineMatcher::sort_by(std::size_t channel) {
  key_ = channel;
  reach_ = 0.0;
  sorted_.clear();
  for (std::int64_t s = 0; s < source_.view.count(); ++s) {
    const std::int64_t i = source_.element(s, channel);
    const double x = source_.value(i);
    const double reach = source_.reach(i, wrong_.output->dtype());
    if (!std::isfinite(x) || !std::isfinite(reach)) continue;
    sorted_.emplace_back(x, s);
    reach_ = std::max(reach_, reach);
  }
  std::ranges::sort(sorted_);
}

bool LineMatcher::matches(std::int64_t line, std::int64_t of_source) const {
  const std::int64_t from = source_.view.base(of_source);
  const std::int64_t at = wrong_.view.base(line);
  const call::DType type = wrong_.output->dtype();
  return std::ranges::all_of(wrong_.channels, [&](std::size_t c) {
    return source_.holds(from + source_.view.within[c],
                         (*wrong_.output)[at + wrong_.view.within[c]], type);
  });
}

std::optional<std::int64_t> LineMatcher::find(std::int64_t line) const {
  const double y = wrong_.value(line, key_);
  if (!std::isfinite(y)) return -1;
  const auto value = &std::pair<double, std::int64_t>::first;
  const auto first = std::ranges::lower_bound(sorted_, y - reach_, {}, value);
  const auto last = std::ranges::upper_bound(sorted_, y + reach_, {}, value);
  if (last - first > kCompared) return std::nullopt;
  std::int64_t found = -1;
  for (auto it = first; it != last; ++it) {
    if (!matches(line, it->second)) continue;
    if (found >= 0) return std::nullopt;
    found = it->second;
  }
  return found;
}

double LineMatcher::dimensions() const {
  std::vector<std::vector<double>> unit;
  const auto channels = spread_over(std::ssize(wrong_.channels), 4 * kSample);
  for (const std::int64_t s : sample_) {
    std::vector<double> x;
    double norm = 0.0;
    for (const std::int64_t c : channels) {
      x.push_back(source_.value(source_.element(s, wrong_.channels[static_cast<std::size_t>(c)])));
      norm += x.back() * x.back();
    }
    if (!(norm > 0.0) || !std::isfinite(norm)) continue;
    for (double& value : x) value /= std::sqrt(norm);
    unit.push_back(std::move(x));
  }
  double sum = 0.0;
  for (const auto& a : unit) {
    for (const auto& b : unit) {
      double cosine = 0.0;
      for (std::size_t c = 0; c < a.size(); ++c) cosine += a[c] * b[c];
      sum += cosine * cosine;
    }
  }
  const auto n = static_cast<double>(unit.size());
  return sum > 0.0 ? n * n / sum : 0.0;
}

double LineMatcher::size(std::int64_t of_source) const {
  double squares = 0.0;
  for (const std::int64_t c : spread_over(std::ssize(wrong_.channels), kSample)) {
    const double x =
        source_.value(source_.element(of_source, wrong_.channels[static_cast<std::size_t>(c)]));
    squares += x * x;
  }
  return std::sqrt(squares);
}

double LineMatcher::bits(std::int64_t of_source) const {
  // A number of its own has no size to be told from.
  const bool scaled = wrong_.channels.size() > 1;
  std::vector<double> factors;
  for (const std::int64_t s : sample_) {
    const double factor = scaled ? size(of_source) / size(s) : 1.0;
    factors.push_back(std::isfinite(factor) ? factor : 1.0);
  }
  std::vector<double> of_channels;
  for (const std::int64_t c : spread_over(std::ssize(wrong_.channels), kSample)) {
    const std::size_t channel = wrong_.channels[static_cast<std::size_t>(c)];
    const std::int64_t i = source_.element(of_source, channel);
    std::int64_t hits = 0;
    for (std::size_t s = 0; s < sample_.size(); ++s) {
      const double other = factors[s] * source_.value(source_.element(sample_[s], channel));
      hits += source_.holds(i, other, wrong_.output->dtype()) ? 1 : 0;
    }
    of_channels.push_back(
        std::log2(static_cast<double>(sample_.size() + 1) / static_cast<double>(hits + 1)));
  }
  return median(std::move(of_channels)) * dimensions_;
}

}  // namespace goldenrule::explain
