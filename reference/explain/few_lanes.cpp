// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/few_lanes.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "fixtures/call/take.hpp"
#include "reference/explain/screening.hpp"

namespace goldenrule::explain {
namespace {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

FewLanes::FewLanes(const Trial& whole, std::span<const Failures> failures) : whole_(whole) {
  const Capture& capture = *whole.capture;
  const call::Dims d = call::validate(capture.call);
  if (d.V <= kFewChannels) return;
  channels_ = telling_channels(capture, failures, kFewChannels);
  Trial few(cut(capture, {.values = channels_}));
  if (few.matcher.match_right_call().failing > 0) few_.emplace(std::move(few));
}

bool FewLanes::acts_by_channel(const calls::Mistake& mistake) {
  const auto [known, is_new] = by_channel_.try_emplace(&mistake, false);
  if (!is_new) return known->second;
  seconds_ += whole_.prediction_seconds + few_->prediction_seconds;
  const auto all = whole_.predictor.predict({&mistake}, SpreadBy::kScaling);
  const auto few = few_->predictor.predict({&mistake}, SpreadBy::kScaling);
  if (!all || !few) return false;
  const call::Record& call = whole_.capture->call;
  return known->second = std::ranges::all_of(all->outputs, [&](const auto& item) {
           const auto& [name, output] = item;
           const call::TensorRow& row = *call::find_row(call, call::Group::kOutput, name);
           const auto axis = call::find_axis(call::axes_of(call, row), call::axis::kValue);
           const std::vector<double>& cut = few->outputs.at(name).value;
           if (!axis) return same_bits(output.value, cut);
           const call::Shape& shape = whole_.capture->outputs.at(name).shape();
           return same_bits(call::take(output.value, shape, *axis, channels_), cut);
         });
}

bool FewLanes::admits(const Hypothesis& hypothesis) {
  if (!few_) return true;
  const auto by_channel = [&](const calls::Mistake* m) { return acts_by_channel(*m); };
  if (!std::ranges::all_of(hypothesis, by_channel)) return true;
  seconds_ += few_->prediction_seconds;
  const auto prediction = few_->predictor.predict(hypothesis, SpreadBy::kScaling);
  return !prediction || few_->matcher.match(*prediction).accounted >= kAccounted;
}

double FewLanes::take_seconds() { return std::exchange(seconds_, 0.0); }

}  // namespace goldenrule::explain
