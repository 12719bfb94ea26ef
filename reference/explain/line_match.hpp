// SPDX-License-Identifier: Apache-2.0
//
// Which line of a source (what is right of an output, or an input) stands in a line of a captured
// output. The lines of a source are sorted by one channel, so that a captured line is compared with
// those alone whose number there is within budget.
//
// Chance. The numbers of a line may depend on one another: rows of a state after one token are all
// proportional. So many of them count as the lines have dimensions,
//
//   d = n^2 / sum_ij cos^2(x_i, x_j)      of n lines x_i of the source,
//
// which is the number of channels where lines are independent and 1 where they are proportional.
// A channel of a line of the source has -log2 p bits, p the share of those n lines whose number
// there would pass for it ((hits + 1) / (n + 1): n lines show no p below 1 / n): where the budget
// is as wide as the numbers are, it has none. The line has d times the median of its channels. A
// map that F different lines of the source fit, out of c that could be tried, comes about by chance
// with probability c 2^-(sum of their bits).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "reference/explain/line_source.hpp"
#include "reference/explain/line_view.hpp"

namespace goldenrule::explain {

/// The lines of an output that fail.
struct WrongLines {
  const call::Tensor* output = nullptr;
  LineView view;
  std::vector<std::int64_t> lines;
  std::vector<std::size_t> channels;  ///< in which any of them fails

  [[nodiscard]] double value(std::int64_t line, std::size_t channel) const {
    return (*output)[view.base(line) + view.within[channel]];
  }
};

class LineMatcher {
 public:
  /// Both must outlive it. The channels of `wrong` are channels of the source.
  LineMatcher(const WrongLines& wrong, const LineSource& source);

  [[nodiscard]] bool matches(std::int64_t line, std::int64_t of_source) const;
  /// The one line of the source that stands in `line`; -1: none; nothing: several, or too many that
  /// would have to be compared.
  [[nodiscard]] std::optional<std::int64_t> find(std::int64_t line) const;
  /// Bits of a line of the source, as above.
  [[nodiscard]] double bits(std::int64_t of_source) const;

 private:
  void sort_by(std::size_t channel);
  [[nodiscard]] double dimensions() const;
  [[nodiscard]] double size(std::int64_t of_source) const;

  const WrongLines& wrong_;
  const LineSource& source_;
  std::size_t key_ = 0;  // channel
  double reach_ = 0.0;   // of the numbers there
  std::vector<std::pair<double, std::int64_t>> sorted_;
  std::vector<std::int64_t> sample_;  // lines of the source
  double dimensions_ = 0.0;
};

}  // namespace goldenrule::explain
