// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/screening.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "fixtures/call/plan.hpp"

namespace goldenrule::explain {

std::int64_t steps_of(const Capture& capture) {
  const call::Dims d = call::validate(capture.call);
  if (d.V == 0) return 0;  // without value channels nothing is cut
  return call::work_of(capture.call, d) + (d.slots + d.checkpoints) * d.HV * d.state_size();
}

std::vector<std::int64_t> telling_channels(const Capture& capture,
                                           std::span<const Failures> failures, std::int64_t count) {
  const call::Dims d = call::validate(capture.call);
  std::vector<std::pair<std::int64_t, std::int64_t>> by_channel;  // failing, channel
  for (std::int64_t v = 0; v < d.V; ++v) by_channel.emplace_back(0, v);
  for (const Failures& f : failures) {
    const Grid grid(capture.call, d, f.name);
    // What stands in a ring need not be a value channel, and an lse has none.
    if (grid.rings || grid.values != d.V) continue;
    for (std::int64_t i = 0; i < std::ssize(f.failing); ++i) {
      by_channel[static_cast<std::size_t>(grid.value_of(i))].first +=
          f.failing[static_cast<std::size_t>(i)];
    }
  }
  std::ranges::stable_sort(by_channel, std::greater<>{},
                           &std::pair<std::int64_t, std::int64_t>::first);
  std::vector<std::int64_t> channels;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = i % 2 == 0 ? i / 2 : d.V - 1 - i / 2;
    channels.push_back(by_channel[static_cast<std::size_t>(at)].second);
  }
  std::ranges::sort(channels);
  return channels;
}

std::vector<Capture> screening_cuts(const Capture& capture, std::span<const Failures> failures,
                                    std::int64_t hypotheses) {
  const call::Dims d = call::validate(capture.call);
  const std::int64_t affordable = kScreeningSteps / 2 / std::max<std::int64_t>(hypotheses, 1);
  std::vector<Capture> cuts;
  const std::int64_t per_channel =
      std::max<std::int64_t>(call::work_of(capture.call, d) / std::max<std::int64_t>(d.V, 1), 1);
  const std::int64_t channels = std::clamp<std::int64_t>(affordable / per_channel, 2, d.V);
  cuts.push_back(cut(capture, {.values = telling_channels(capture, failures, channels)}));
  if (is_cut_by_tokens(capture.call)) {
    const std::int64_t per_token = d.HV * d.K * d.V;
    const std::int64_t tokens =
        std::max<std::int64_t>(affordable / per_token / std::max<std::int64_t>(d.rows, 1), 1);
    cuts.push_back(cut(capture, {.values = {}, .sequences = -1, .tokens = tokens}));
  }
  return cuts;
}

Capture few_lanes(const Capture& capture, std::span<const Failures> failures, calls::CutBy by,
                  std::int64_t hypotheses) {
  const call::Dims d = call::validate(capture.call);
  const std::int64_t channels = std::min(kFewChannels, d.V);
  Cut what{.values = telling_channels(capture, failures, channels)};
  if (by != calls::CutBy::kValuesAndTokens || !is_cut_by_tokens(capture.call)) {
    return cut(capture, what);
  }
  const std::int64_t affordable = kScreeningSteps / 4 / std::max<std::int64_t>(hypotheses, 1);
  const std::int64_t per_token = std::max<std::int64_t>(d.HV * d.K * (channels + kFewTokens), 1);
  const std::int64_t longest = std::max(affordable / per_token, kFewTokens);
  if (d.tokens <= longest) return cut(capture, what);
  what.tokens = std::max(longest / std::max<std::int64_t>(d.rows, 1), kFewTokens);
  what.sequences = std::clamp<std::int64_t>(longest / what.tokens, 1, d.rows);
  return cut(capture, what);
}

}  // namespace goldenrule::explain
