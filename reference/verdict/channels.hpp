// SPDX-License-Identifier: Apache-2.0
//
// Whether a budget says anything of a channel. A pass proves nothing where the contract grants as
// much as there is, and how much there is is a question of each value channel of a row and head:
// they are calls of their own, and a large one is no signal of the others.
//
// An output of a token has one number in a channel, and that may be small by chance. So a channel's
// signal is also what q would read of its state in a random direction (Exact::reach), times the
// root mean square, over the channels, of what it does read in that unit: above 1 where q reads
// along what all channels hold. Numbers of their own channels without a reach are one channel
// together. What has a unit (Exact::unit) is measured in it: a column that is larger than the
// others is then no signal of theirs, nor its budget one of theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/verdict/budget.hpp"
#include "reference/verdict/expectation.hpp"

namespace goldenrule::verdict {

/// One channel of a block: its budget and its signal, as sums of squares.
struct ChannelSignal {
  std::int64_t first = 0;  ///< element
  double budget2 = 0.0, signal2 = 0.0;
  bool is_zero = false;     ///< every exact value is 0, and no logarithm
  bool is_vacuous = false;  ///< the contract grants as much as there is
};

/// The sums of one block, channel by channel.
class Channels {
 public:
  /// Refers to both.
  Channels(const Expected& expected, const Budget& budget)
      : expected_(&expected), budget_(&budget), sums_(expected.exact.channels) {}

  void clear();
  void add(std::size_t element, double golden, double budget);
  /// Of the channels that have elements, those of this block, which are all in.
  [[nodiscard]] std::vector<ChannelSignal> signals(std::size_t block);

 private:
  struct Sums {
    double golden2 = 0.0, budget2 = 0.0;
    double signal2 = 0.0, spread2 = 0.0, flushed2 = 0.0;  // in units
    std::int64_t count = 0;
    std::int64_t first = 0;
  };

  void pool();
  [[nodiscard]] double unit_of(std::size_t element) const;
  [[nodiscard]] double reach_of(const Sums& channel) const;
  [[nodiscard]] double mean_relative() const;
  [[nodiscard]] ChannelSignal signal_of(const Sums& channel, double relative2, bool anything) const;

  const Expected* expected_;
  const Budget* budget_;
  std::vector<Sums> sums_;
};

}  // namespace goldenrule::verdict
